"""Walks backwards as Gathers by constant places: equal to onnxruntime to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.rewrites.applying import numbers
from tests.passes.rewrites.legalisation.legalising import legalised, refusal

HEAD = "g (float[2,5,4] x) => (float[a,b,c] y)"
LOW, HIGH = -(2**63), 2**63 - 1


def _slice(starts: object, ends: object, axes: object, steps: object) -> str:
    """Return a Slice with these lists of numbers."""
    operands = {"s": starts, "e": ends, "a": axes, "t": steps}
    constants = ", ".join(
        f"int64[{len(each)}] {name} = {{{', '.join(map(str, each))}}}"  # type: ignore[arg-type]
        for name, each in operands.items()
    )
    return f"{HEAD} <{constants}> {{ y = Slice(x, s, e, a, t) }}"


WALKS = [
    (-1, LOW, -1),
    (-1, -6, -1),
    (4, 0, -1),
    (3, 1, -1),
    (-2, -4, -1),
    (HIGH, LOW, -2),
    (4, 0, -3),
]
WALKS += [(-100, LOW, -1), (2, -100, -1), (HIGH, 2, -1), (3, LOW, LOW + 1)]


@pytest.mark.parametrize(("start", "end", "step"), WALKS)
def test_an_axis_is_walked_backwards_by_places(start: int, end: int, step: int) -> None:
    text = _slice([start], [end], [1], [step])
    assert legalised(text, [numbers(2, 5, 4)]) == ["Gather"]


def test_every_walk_that_takes_something_is_onnxruntimes() -> None:
    for start in range(-7, 8):
        for end in range(-8, 7):
            first = min(max(start + 5 if start < 0 else start, 0), 4)
            last = min(max(end + 5 if end < 0 else end, -1), 4)
            if first > last:
                text = _slice([start], [end], [-2], [-2])
                assert legalised(text, [numbers(2, 5, 4)]) == ["Gather"]


def test_axes_that_are_walked_forwards_stay_a_slice() -> None:
    text = _slice([-1, 1, 0], [LOW, 4, 4], [0, 1, -1], [-1, 1, 2])
    assert legalised(text, [numbers(2, 5, 4)]) == ["Gather", "Slice"]
    text = _slice([-1, -1, -1], [LOW, LOW, LOW], [0, 2, 1], [-1, -2, -3])
    assert legalised(text, [numbers(2, 5, 4)]) == ["Gather", "Gather", "Gather"]


def test_axes_may_be_left_out() -> None:
    text = f"{HEAD} <int64[2] s = {{-1, -1}}, int64[2] e = {{-9, -9}}, int64[2] t = {{-1, -2}}> {{ y = Slice(x, s, e, , t) }}"
    assert legalised(text, [numbers(2, 5, 4)]) == ["Gather", "Gather"]


@pytest.mark.parametrize("kind", ["int64", "int32", "bool"])
def test_integers_and_truths_are_walked_alike(kind: str) -> None:
    text = f"""g ({kind}[6] x) => ({kind}[a] y) <int64[1] s = {{-1}}, int64[1] e = {{-9}}, int64[1] a = {{0}},
        int64[1] t = {{-1}}> {{ y = Slice(x, s, e, a, t) }}"""
    assert legalised(text, [np.array([3, 0, 1, 5, 0, 2]).astype(kind)]) == ["Gather"]


def test_bounds_that_are_computed_stay() -> None:
    text = """g (float[6] x, int64[1] s) => (float[a] y) <int64[1] e = {-9}, int64[1] a = {0}, int64[1] t = {-1}>
        { y = Slice(x, s, e, a, t) }"""
    assert "is not constant" in refusal(text)


def test_a_dynamic_axis_stays() -> None:
    text = """g (float[n] x) => (float[a] y) <int64[1] s = {-1}, int64[1] e = {-9}, int64[1] a = {0}, int64[1] t = {-1}>
        { y = Slice(x, s, e, a, t) }"""
    assert refusal(text) == "Slice 'y': dimension 0 of 'x' is not static"


REVERSED = {
    "all of one length": ("5, 5", "batch_axis = 0, time_axis = 1", ["Gather"]),
    "the first ones": ("3, 3", "batch_axis = 0, time_axis = 1", ["Gather"]),
    "other lengths": ("5, 2", "batch_axis = 0, time_axis = 1", ["Reshape", "Gather", "Reshape"]),
    "one that is empty": (
        "0, 4",
        "batch_axis = 0, time_axis = 1",
        ["Reshape", "Gather", "Reshape"],
    ),
}


@pytest.mark.parametrize(("lengths", "axes", "found"), REVERSED.values(), ids=REVERSED.keys())
def test_sequences_of_constant_lengths_are_reversed_by_places(
    lengths: str, axes: str, found: list[str]
) -> None:
    text = f"{HEAD} <int64[2] l = {{{lengths}}}> {{ y = ReverseSequence <{axes}> (x, l) }}"
    assert legalised(text, [numbers(2, 5, 4)]) == found


def test_time_comes_first_unless_it_is_said() -> None:
    for lengths, found in (("2, 1, 2, 2, 0", 3), ("2, 2, 2, 2, 2", 1)):
        text = f"{HEAD} <int64[5] l = {{{lengths}}}> {{ y = ReverseSequence(x, l) }}"
        assert len(legalised(text, [numbers(2, 5, 4)])) == found


def test_lengths_that_are_computed_stay() -> None:
    text = "g (float[2,5] x, int64[5] l) => (float[a,b] y) { y = ReverseSequence(x, l) }"
    assert refusal(text) == "ReverseSequence 'y': its lengths 'l' is not constant"


def test_a_length_beyond_the_axis_stays() -> None:
    text = "g (float[2,2] x) => (float[a,b] y) <int64[2] l = {3, 1}> { y = ReverseSequence(x, l) }"
    assert refusal(text) == "ReverseSequence 'y': a length is not from 0 to 2"
