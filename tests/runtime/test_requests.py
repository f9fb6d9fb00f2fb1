"""Requests of runs: equal ones are prepared once, however they were spelled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from samba_onnx.program.kinds import SectionType
from samba_onnx.runtime.requests import run_request, whole_request


@pytest.mark.parametrize("types", [None, ("FWD",), ("BCKWD", "OPT")])
def test_the_plain_tuple_is_the_request(types: tuple[str, ...] | None) -> None:
    plain = whole_request("forward", ("x", "y"), ("loss",), types)
    request = run_request("forward", ["x", "y"], ["loss"], section_types=types)
    assert plain == request
    assert hash(plain) == hash(request)


def test_what_restricts_a_run_is_part_of_its_request() -> None:
    plain = whole_request("forward", ("x",), ("y",), None)
    restricted = [
        run_request("forward", ["x"], ["y"], section_ids=[0]),
        run_request("forward", ["x"], ["y"], from_call=1),
        run_request("forward", ["x"], ["y"], until_call=1),
        run_request("forward", ["x"], ["y"], single=True),
    ]
    assert plain not in restricted
    assert len(set(restricted)) == len(restricted)


@pytest.mark.parametrize(
    "ids", [[0, [2, 3]], (0, (2, 3)), [0, np.array([2, 3])], [np.int64(0), {2: "a", 3: "b"}]]
)
def test_ids_that_are_spelled_in_another_way_are_the_same_request(ids: Any) -> None:
    request = run_request("forward", ["x"], ["y"], section_ids=ids)
    assert request == run_request("forward", ["x"], ["y"], section_ids=[0, [2, 3]])
    assert request.section_ids == (0, (2, 3))


def test_a_set_of_ids_or_types_is_its_own_selection() -> None:
    """It has no order, so that it differs from a list; and it is not all sections."""
    assert run_request(None, None, None, section_ids={2, 3}).section_ids == {2, 3}
    assert run_request(None, None, None, section_types={"FWD"}).section_types == {"FWD"}


@pytest.mark.parametrize("empty", [[], (), set(), {}, np.array([], int)])
def test_empty_selections_are_all_sections(empty: Any) -> None:
    assert run_request(None, None, None, section_ids=empty) == run_request(None, None, None)


def test_one_type_is_not_a_list_of_letters() -> None:
    request = run_request(None, None, None, section_types=SectionType.FWD)
    assert request == run_request(None, None, None, section_types="FWD")
    assert request.section_types == "FWD"


def test_how_gradients_are_combined_is_part_of_the_request() -> None:
    reduction: Any = object()
    request = run_request(None, None, None, reduction=reduction)
    assert request.reduction is reduction
    assert request != run_request(None, None, None)
