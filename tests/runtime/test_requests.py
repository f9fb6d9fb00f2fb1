"""Requests of runs: equal ones are prepared once, however they were spelled."""

from __future__ import annotations

import pytest

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
