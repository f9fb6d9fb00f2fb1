"""Checks of what a user gives to a graph: integers of other widths are converted, if they fit."""

from __future__ import annotations

import itertools
import logging

import numpy as np
import pytest

from samba_onnx.errors import InputError
from samba_onnx.pef.manifest import Symbol
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.runtime.inputs import (
    InputSpec,
    check_inputs,
    describe,
    fits,
    of_width,
    own_copy,
    short_batch,
)

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


def spec(kind: str) -> InputSpec:
    return InputSpec(Symbol("ids", SymbolKind.INPUT, f"tensor({kind})", (2, 2), "ids"))


def test_an_input_takes_integers_of_another_width() -> None:
    checked = spec("int64").check(np.array([[1, -2], [3, 4]], np.int16))
    assert checked.dtype == np.int64
    assert checked.tolist() == [[1, -2], [3, 4]]
    # The width is no mistake; the shape is.
    with pytest.raises(InputError, match=r"has shape \[3\], expected tensor\(int64\)\[2, 2\]"):
        spec("int64").check(np.arange(3, dtype=np.int32))


def test_an_input_of_texts_takes_texts_of_any_kind_and_no_other_does() -> None:
    for texts in ([["a", "bü"], ["", "c"]], np.array([["a", "bü"], ["", "c"]], object)):
        assert spec("string").check(texts).tolist() == [["a", "bü"], ["", "c"]]
        assert spec("string").check(texts).dtype == object
    with pytest.raises(InputError, match="has dtype <U1, expected float32"):
        spec("float").check([["a", "b"], ["c", "d"]])


def test_own_copies_lie_as_engines_read_them() -> None:
    array = np.arange(6).reshape(2, 3)
    (copy,) = own_copy({"transposed": [array.T]})["transposed"]
    assert copy.flags.c_contiguous
    assert copy.tolist() == array.T.tolist()
    assert not np.shares_memory(copy, array)


def test_an_unknown_input_is_told_which_there_are() -> None:
    known = r"'a' tensor\(float\)\[2, 2\], 'b' tensor\(int64\)\[2, 2\]$"
    with pytest.raises(InputError, match=rf"'q' does not exist; the graph's inputs are: {known}"):
        check_inputs({"a": spec("float"), "b": spec("int64")}, {"q": 1})
    with pytest.raises(InputError, match=r"the graph's inputs are: none$"):
        check_inputs({}, {"q": 1})


def test_shapes_are_described_and_compared_size_by_size() -> None:
    assert describe("tensor(float)", (None, "N", 3)) == "tensor(float)[?, N, 3]"
    assert describe("tensor(float)", None) == "tensor(float)"
    assert fits((7, 8, 3), (None, "N", 3))
    assert not fits((7, 8, 4), (None, "N", 3))
    assert not fits((7, 3), (None, "N", 3))
    assert fits((7, 3), None)


def test_what_to_do_with_a_last_batch_that_is_short() -> None:
    assert short_batch((5, 3), (8, 3)) == (
        ". A last batch of 5 where 8 were compiled is left out, as DataLoader(..., drop_last=True) does, "
        "or filled up to 8 rows, whose results are then ignored"
    )
    for given, compiled in (
        ((8, 3), (8, 3)),
        ((9, 3), (8, 3)),
        ((5, 4), (8, 3)),
        ((5, 3, 3), (8, 3)),
        ((5, 3), ("n", 3)),
        ((), (8,)),
        ((5,), ()),
        ((5,), None),
    ):
        assert short_batch(given, compiled) == ""
