"""A walk names the first place that computes something else, and whom else it may be."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from samba_onnx.comparing.expectations import Expectation
from samba_onnx.comparing.judge import Verdict, judge
from samba_onnx.comparing.walk import Walk


def verdicts(*factors: float) -> tuple[Verdict, ...]:
    """Return the verdicts on results that are off by factors."""
    right = {f"y{number}": np.ones(3, np.float32) for number in range(len(factors))}
    actual = {f"y{number}": np.full(3, f, np.float32) for number, f in enumerate(factors)}
    return judge(actual, Expectation(right))


@pytest.mark.parametrize("places", list(itertools.product("rws", repeat=5)), ids="".join)
def test_the_first_wrong_place_and_those_that_nobody_saw_before_it(places: tuple[str, ...]) -> None:
    """``r`` is right, ``w`` is wrong, ``s`` cannot be seen; held against an enumeration of the definition."""
    walk = Walk[int]()
    for number, place in enumerate(places):
        if place == "s":
            walk.skip(number)
        else:
            walk.take(number, verdicts(1.0, 1.01 if place == "w" else 1.0))
    wrong = places.index("w") if "w" in places else None
    if wrong is None:
        assert walk.first is None
        seen = max((number for number, place in enumerate(places) if place == "r"), default=-1)
        assert walk.agreeing == seen + 1
        assert walk.suspects == list(range(seen + 1, len(places)))
        return
    right = max((number for number in range(wrong) if places[number] == "r"), default=-1)
    assert walk.first is not None
    assert walk.first.suspects == tuple(range(right + 1, wrong + 1))
    assert walk.first.place == wrong
    assert walk.first.verdict.name == "y1"


def test_what_is_read_is_sound_unless_it_was_seen_to_be_wrong() -> None:
    walk = Walk[str]()
    assert walk.take("a", verdicts(1.0))
    assert walk.take("b", verdicts(1.01), reads=("a", "never compared"))
    assert not walk.take("c", verdicts(1.0), reads=("a", "b"))
    assert walk.take("d", verdicts(1.0), reads=("a", "c"))
    assert not walk.take("e", verdicts(1.0))
    assert walk.take("f", verdicts(1.0), reads=())


def test_what_is_tolerated_is_no_difference() -> None:
    (off,) = verdicts(1.01)
    assert not off.passed
    for tolerated, found in ((0.0, True), (off.of_allowed, False), (0.99 * off.of_allowed, True)):
        walk = Walk[str](tolerated)
        walk.take("a", [off])
        assert (walk.first is not None) == found
