"""The one judge: whether results are what was expected, and how far they are from it.

Whatever the reference is, an array is held against one :class:`~samba_onnx.comparing.expectations.Expected`:
values, how far each element may be off, and why. Types and sizes must agree. NaN equals NaN and infinities
equal their like; a value that is not finite where a number is expected, or the other way round, is an infinite
error. What fails is judged again once more is known of the reference, for as long as there is more to know:
most results never get that far, and a reference is run again only where it may help.

How far elements may be off is worked out by :mod:`~samba_onnx.comparing.type_rules` where an ONNX model is the
reference, and by :mod:`~samba_onnx.comparing.torch_rules` where torch is; or the expectation states it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import numpy as np

from samba_onnx.comparing.element_errors import (
    TEXTS,
    Array,
    element_errors,
    is_exact,
    leaves,
    typical_error,
)
from samba_onnx.comparing.expectations import EQUAL, ChosenTolerances, Expectation, Expected
from samba_onnx.comparing.torch_rules import TorchRules
from samba_onnx.comparing.type_rules import TypeRules, quantised_steps

__all__ = ["Verdict", "judge", "worst_of"]

_AS_TYPES_DEMAND: Final = ChosenTolerances()


@dataclass(frozen=True)
class Verdict:
    """How far one result is from what was expected, and whether that is too far."""

    name: str
    type: str
    """The numpy dtype, as ``float32``."""
    shape: tuple[int, ...]
    max_absolute_error: float
    """Zero for exact types that agree; infinite where shapes or types differ, or one side is not
    finite."""
    max_relative_error: float
    """Largest error divided by the largest expected magnitude."""
    mismatched: int
    """Elements beyond the tolerance."""
    elements: int
    passed: bool
    tolerance: str = EQUAL
    """The tolerance that was used, in words."""
    of_allowed: float = 0.0
    """The largest error of an element as a fraction of what is allowed there: 1 just passes."""
    run: str = ""
    """The run that it is from, of several: its inputs and how weights were kept."""
    steps: float | None = None
    """How many steps of quantisation an element is at most from that of the original, in all runs that round;
    None for outputs that are no quantised numbers."""
    extent: str = ""
    """By what it differs from a result of torch's, in words; empty where it passed."""
    coarse: bool = False
    """Whether the reference is so unsure that a wrong result might not have been noticed."""


class _Rules(Protocol):
    """How far results may be off, by what is known of their reference so far."""

    @property
    def names(self) -> Collection[str] | None:
        """Results that more is known of than the rules before knew; None for all."""

    def expected(self, name: str, actual: Array) -> Expected:
        """Return what one array should be, for one of the right type and shape."""

    def wider(self, failed: Mapping[str, Array | None]) -> _Rules | None:
        """Return the rules once more is known; None where no more can be.

        Args:
            failed: Results that failed so far, None for those of another type or shape.
        """


@dataclass(frozen=True)
class _Stated:
    """Rules of an expectation that says itself what is allowed."""

    stated: Mapping[str, Expected]
    names: None = None

    def expected(self, name: str, actual: Array) -> Expected:
        return self.stated[name]

    def wider(self, failed: Mapping[str, Array | None]) -> None:
        """Return nothing: it has said all."""


def judge(
    actual: Mapping[str, Any],
    expectation: Expectation,
    limits: ChosenTolerances = _AS_TYPES_DEMAND,
    run: str = "",
) -> tuple[Verdict, ...]:
    """Judge the results of one run.

    Args:
        actual: Values by name: arrays, lists of them, or None. Others than what is expected are not looked at.
        expectation: What there should be.
        limits: Tolerances that the user gave.
        run: What to call the run.

    Returns:
        One verdict per array that is expected, in their order, and one for each that is not.
    """
    pairs = _pairs(actual, expectation.outputs)
    alike = dict(_alike(pairs))
    # Every result fails at first: the rules judge only those of the right type and shape.
    verdicts = {name: _unlike(name, pair, run) for name, pair in pairs.items()}
    rules: _Rules | None = _rules(expectation, limits)
    # Every round costs more runs of the reference, so only what failed is judged by the next one.
    while rules is not None:
        for name in alike if rules.names is None else rules.names:
            verdicts[name] = _judged(name, alike[name], rules.expected(name, alike[name]), run)
        failed = {name: alike.get(name) for name, verdict in verdicts.items() if not verdict.passed}
        rules = rules.wider(failed) if failed else None
    return tuple(
        replace(verdict, steps=quantised_steps(name, alike[name], expectation))
        if name in alike
        else verdict
        for name, verdict in verdicts.items()
    )


def worst_of(runs: Sequence[Sequence[Verdict]]) -> tuple[Verdict, ...]:
    """Return for each output the verdict on the run in which it is worst.

    Args:
        runs: The verdicts on each run.

    Returns:
        One per output: failed before passed, then by error as a fraction of what is allowed.
    """
    worst: dict[str, Verdict] = {}
    for output in (output for run in runs for output in run):
        known = worst.get(output.name)
        # The run that is worst by its error need not be the one that is most steps off.
        farthest = max(
            (o.steps for o in (output, known) if o and o.steps is not None), default=None
        )
        if known is None or _badness(output) > _badness(known):
            known = output
        worst[output.name] = replace(known, steps=farthest)
    return tuple(worst.values())


def _badness(output: Verdict) -> tuple[bool, float, float]:
    return not output.passed, output.of_allowed, output.max_absolute_error


def _rules(expectation: Expectation, limits: ChosenTolerances) -> _Rules:
    """Return how far results may be off by the little that is known of their reference at first."""
    if expectation.stated:
        return _Stated(expectation.stated)
    if expectation.runs is not None:
        return TorchRules.of(expectation.runs)
    return TypeRules(expectation, limits)


@dataclass(frozen=True)
class _Pair:
    """What there is of one array, and what is expected; None for what is missing, or is nothing."""

    actual: Array | None
    expected: Array | None
    surplus: bool = False
    """Whether there is an element of a list that nobody expects."""


def _pairs(actual: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, _Pair]:
    """Return what there is and what is expected of each array; None for one that is missing."""
    pairs: dict[str, _Pair] = {}
    for name, value in outputs.items():
        wanted, found = dict(leaves(name, value)), dict(leaves(name, actual.get(name)))
        pairs |= {leaf: _Pair(found.get(leaf), array) for leaf, array in wanted.items()}
        # Only names that are expected are walked through, so what there is besides would go unseen.
        pairs |= {leaf: _Pair(found[leaf], None, True) for leaf in found if leaf not in wanted}
    return pairs


def _alike(pairs: Mapping[str, _Pair]) -> Iterator[tuple[str, Array]]:
    """Yield what there is of the type and shape that is expected; texts are, whatever their lengths."""
    for name, pair in pairs.items():
        actual, expected = pair.actual, pair.expected
        if actual is None or expected is None or actual.shape != expected.shape:
            continue
        # A text's type has the length of the longest one, and either side may have objects instead.
        texts = actual.dtype.kind in TEXTS and expected.dtype.kind in TEXTS
        if texts or actual.dtype == expected.dtype:
            yield name, actual


def _unlike(name: str, pair: _Pair, run: str) -> Verdict:
    """Return the verdict on what is missing, or of another type or shape, or expected to be nothing."""
    actual, expected = pair.actual, pair.expected
    if actual is None and expected is None and not pair.surplus:
        return Verdict(
            name=name,
            type="none",
            shape=(),
            max_absolute_error=0.0,
            max_relative_error=0.0,
            mismatched=0,
            elements=0,
            passed=True,
            run=run,
        )
    extent = "the program does not compute it"
    if actual is not None and expected is not None:
        extent = (
            f"it is {actual.dtype.name} of sizes {list(actual.shape)} instead of "
            f"{expected.dtype.name} of sizes {list(expected.shape)}"
        )
    shown = actual if pair.surplus else expected
    # At least one element is wrong: a mismatch of no elements would read as agreement.
    size = 1 if shown is None else max(shown.size, 1)
    return Verdict(
        name=name,
        type="none" if shown is None else str(shown.dtype),
        shape=() if shown is None else shown.shape,
        max_absolute_error=math.inf,
        max_relative_error=math.inf,
        mismatched=size,
        elements=size,
        passed=False,
        tolerance="the same type and shape",
        of_allowed=math.inf,
        run=run,
        extent=extent,
    )


def _judged(name: str, actual: Array, expected: Expected, run: str) -> Verdict:
    """Hold one array against what is expected of it."""
    errors = element_errors(actual, expected)
    largest = float(errors.max(initial=0.0))
    typical = 0.0
    if math.isfinite(expected.typical):
        # Infinities that agree have errors of zero, which would make the mean smaller than it is.
        known = is_exact(expected.values) or np.isfinite(expected.values)
        typical = typical_error(errors if known is True else errors[known])
    mismatched = int(np.count_nonzero(errors > expected.allowed))
    # Two limits: an element may be far off by chance, where all of them may not be nearly as far.
    passed = mismatched == 0 and typical <= expected.typical
    # By the largest number: a small one may be what two large ones left of each other, and its own
    # size says nothing of what they were rounded by.
    relative = largest / expected.scale if expected.scale else largest
    return Verdict(
        name=name,
        type=str(actual.dtype),
        shape=actual.shape,
        max_absolute_error=largest,
        max_relative_error=relative,
        mismatched=mismatched,
        elements=actual.size,
        passed=passed,
        tolerance=expected.reason,
        of_allowed=max(_of_allowed(errors, expected.allowed), _fraction(typical, expected.typical)),
        run=run,
        extent="" if passed else _extent(errors, expected, relative),
        coarse=expected.coarse,
    )


def _extent(errors: Array, expected: Expected, relative: float) -> str:
    """Say by what an array differs."""
    exact = is_exact(expected.values)
    unlike = int(np.count_nonzero(errors if exact else np.isinf(errors)))
    if unlike:
        kind = "not torch's" if exact else "not finite, or finite, unlike torch's"
        return f"{unlike} of its {errors.size} numbers are {kind}"
    return f"it is off by {relative:.2g} of its largest number, and {expected.reason}"


def _of_allowed(errors: Array, allowed: Array) -> float:
    wrong = errors > 0
    if not wrong.any():
        return 0.0
    # An error where none is allowed is infinitely many times too large.
    with np.errstate(divide="ignore"):
        return float((errors[wrong] / np.broadcast_to(allowed, errors.shape)[wrong]).max())


def _fraction(typical: float, allowed: float) -> float:
    if not typical:
        return 0.0
    return typical / allowed if allowed else math.inf
