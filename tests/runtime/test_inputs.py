"""Checks of what a user gives to a graph: integers of other widths are converted, if they fit."""

from __future__ import annotations

import itertools
import logging

import numpy as np
import pytest

from samba_onnx.errors import InputError
from samba_onnx.runtime.inputs import of_width

TYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


@pytest.mark.parametrize(("given", "compiled"), [*itertools.permutations(TYPES, 2)])
def test_every_width_becomes_every_other_or_is_refused(given: str, compiled: str) -> None:
    limits, wanted = np.iinfo(given), np.iinfo(compiled)
    inside = [max(limits.min, wanted.min), 0, 7, min(limits.max, wanted.max)]
    array = np.array(inside, given)
    result = of_width("ids", array, np.dtype(compiled))
    assert result.dtype == compiled
    assert result.tolist() == inside
    for number in (limits.min, limits.max):
        if not wanted.min <= number <= wanted.max:
            with pytest.raises(InputError, match=f"'ids' is {given} and holds {number}, which"):
                of_width("ids", np.array([0, number], given), np.dtype(compiled))


def test_other_types_stay_as_they_are() -> None:
    for given, compiled in (("float32", "int32"), ("int64", "float32"), ("bool", "int64")):
        array = np.ones(3, given)
        assert of_width("x", array, np.dtype(compiled)) is array
    empty = of_width("x", np.empty((0, 3), np.int64), np.dtype(np.int32))
    assert (empty.dtype, empty.shape) == (np.int32, (0, 3))


def test_it_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            of_width("said once", np.ones(3, np.int64), np.dtype(np.int32))
        of_width("said once", np.ones(3, np.int16), np.dtype(np.int32))
    assert [record.getMessage() for record in caplog.records] == [
        f"input 'said once' is {given}, compiled was int32: it is converted"
        for given in ("int64", "int16")
    ]
