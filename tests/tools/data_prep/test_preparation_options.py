"""What may be chosen: limits are allowed, and a refusal names what is."""

from __future__ import annotations

import os
import re

import pytest

from samba_onnx.data_prep import PackingConfig, PreparationOptions
from samba_onnx.errors import UsageError
from samba_onnx.tools.data_prep.preparation_options import (
    MOST_LENGTH,
    DatasetOptions,
    Overflow,
    PackingStyle,
    default_workers,
)

PACKINGS = (
    "full, greedy::drop, greedy::truncate_left, greedy::truncate_right, single::drop, "
    "single::truncate_left, single::truncate_right"
)


@pytest.mark.parametrize(("cores", "workers"), [(None, 1), (1, 1), (2, 2), (16, 16), (64, 16)])
def test_workers_are_as_many_as_cores(
    cores: int | None, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert default_workers() == DatasetOptions().num_workers == workers


@pytest.mark.parametrize("length", [1, MOST_LENGTH])
def test_the_shortest_and_the_longest_sequence_are_allowed(length: int) -> None:
    assert PreparationOptions(max_seq_length=length).max_seq_length == length


def test_a_category_that_stands_twice_is_shown_among_the_others() -> None:
    with pytest.raises(UsageError, match=r"^categories a, b, a: a name stands there twice$"):
        PreparationOptions(categories=("a", "b", "a"))


def test_packings_are_what_they_are_called() -> None:
    assert ", ".join(PackingConfig.choices()) == PACKINGS
    for name in PackingConfig.choices():
        assert str(PackingConfig.parse(name)) == name


@pytest.mark.parametrize(
    ("style", "overflow", "name"),
    [(PackingStyle.FULL, Overflow.DROP, "full::drop"), (PackingStyle.GREEDY, None, "greedy")],
)
def test_a_packing_that_contradicts_itself_is_refused(
    style: PackingStyle, overflow: Overflow | None, name: str
) -> None:
    message = re.escape(f"packing {name}: expected one of {PACKINGS}")
    with pytest.raises(UsageError, match=f"^{message}$"):
        PackingConfig(style, overflow)
    with pytest.raises(UsageError, match=f"^{message}$"):
        PackingConfig.parse(name)
