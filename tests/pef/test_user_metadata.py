"""Values in a PEF's metadata come back as what they were."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samba_onnx.pef.user_metadata import read_value, write_value

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)


@given(VALUES)
def test_what_json_has_comes_back(value: Any) -> None:
    back = read_value(write_value(value))
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize("text", ["", "logreg", "4", "true", "null", '"x"', "[1", "NaN", " 1 "])
def test_texts_stay_texts(text: str) -> None:
    assert read_value(write_value(text)) == text


@pytest.mark.parametrize(
    ("value", "back"),
    [
        ((1, 2), [1, 2]),
        ({3}, "{3}"),
        ({"deep": {3}}, {"deep": "{3}"}),
        ({(1, 2): 3}, "{(1, 2): 3}"),
    ],
)
def test_what_json_lacks_comes_back_in_its_stead(value: Any, back: Any) -> None:
    assert read_value(write_value(value)) == back


def test_cycles_are_texts() -> None:
    value: list[Any] = []
    value.append(value)
    assert read_value(write_value(value)) == "[[...]]"


def test_plain_texts_look_as_they_are() -> None:
    assert write_value("logreg") == "logreg"
    assert write_value("4") == '"4"'
    assert write_value(4) == "4"
