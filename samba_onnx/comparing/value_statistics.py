"""How near one value of a PEF is to the same value of the original, in some numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from samba_onnx.comparing.expectations import ChosenTolerances, Expectation
from samba_onnx.comparing.judge import Verdict, judge, worst_of

Array = npt.NDArray[Any]

_HALVES: Final = frozenset({"float16", "bfloat16"})
_FLOATS: Final = _HALVES | {"float32", "float64"}
_SHORT_INTEGERS: Final = frozenset({"int2", "uint2", "int4", "uint4"})
"""Integers that numpy itself does not have."""


@dataclass(frozen=True)
class ValueStatistics:
    """The distance of two arrays, besides what judges it."""

    comparison: Verdict
    """Largest errors, the tolerance, and whether all elements are within it."""
    mean_absolute_error: float | None
    """Mean over the elements; None where types or shapes differ, and of texts."""
    cosine: float | None
    """Cosine of the angle between the two as vectors; None as above, and where one has no length."""
    identical: bool
    """Whether all bits are equal."""
    dtype: str = ""
    """The numpy dtype in the PEF, where that is not the original's."""


def value_statistics(
    name: str,
    actual: Any,
    expected: Any,
    limits: ChosenTolerances,
    depth: int,
    coarser: float = 1.0,
    zero: float | None = None,
    others: Sequence[Any] = (),
) -> ValueStatistics:
    """Compare one value.

    Args:
        name: Its name.
        actual: What the PEF computes: an array, a list of arrays, or None.
        expected: What the original computes.
        limits: Tolerances that the user chose.
        depth: Operators that round, on the longest way through the original.
        coarser: 8 where the PEF rounds to bfloat16 what the original computes in float32.
        zero: What stands for zero in integers that a quantisation rounded; None of any other value.
        others: What the original computes to inputs that nobody can tell from these, where that is known.

    Returns:
        The statistics; of a sequence those of its worst element.
    """
    dtype = ""
    if isinstance(actual, np.ndarray) and isinstance(expected, np.ndarray):
        dtype = "" if actual.dtype == expected.dtype else str(actual.dtype)
        actual, expected = _in_one_type(actual, expected)
        # float32 that the PEF keeps in 16 bits is the original's value,
        # rounded: no mismatch of types.
        if coarser != 1 and str(actual.dtype) in _HALVES and expected.dtype == np.float32:
            actual = actual.astype(np.float32)
    zeros = {} if zero is None else {name: zero}
    others = [_as_type(other, expected) for other in others]
    expectation = Expectation(
        {name: expected},
        None,
        depth,
        coarser=coarser,
        zeros=zeros,
        again=lambda: [{name: other} for other in others],
    )
    return replace(_statistics(name, actual, expectation, limits), dtype=dtype)


def _as_type(other: Any, expected: Any) -> Any:
    """Return another answer of the original in the type in which what is expected is compared."""
    arrays = isinstance(other, np.ndarray) and isinstance(expected, np.ndarray)
    return other.astype(expected.dtype) if arrays and other.dtype != expected.dtype else other


def _in_one_type(actual: Array, expected: Array) -> tuple[Array, Array]:
    """Return both in one type, where passes may have chosen another one for the same numbers.

    16-bit floats are computed in a float that the target has, and compared as 16-bit floats; quantised
    integers are floats of whole numbers, and compared as these.
    """
    if actual.dtype == expected.dtype or str(actual.dtype) not in _FLOATS:
        return actual, expected
    if str(expected.dtype) in _HALVES:
        # What is too large for 16 bits becomes infinite, as it is in the original.
        with np.errstate(over="ignore"):
            return actual.astype(expected.dtype), expected
    if expected.dtype.kind in "iu" or str(expected.dtype) in _SHORT_INTEGERS:
        return actual, expected.astype(actual.dtype)
    return actual, expected


def _statistics(
    name: str, actual: Any, expectation: Expectation, limits: ChosenTolerances
) -> ValueStatistics:
    expected = expectation.outputs[name]
    # Bits first: most values of a right PEF are equal, and need no arithmetic.
    if _identical(actual, expected):
        return ValueStatistics(_agreement(name, expected), 0.0, 1.0, True)
    compared = judge({name: actual}, expectation, limits)
    if not compared:  # two empty sequences
        return ValueStatistics(_agreement(name, np.empty(0)), 0.0, 1.0, True)
    (worst,) = worst_of([[replace(one, name=name) for one in compared]])
    comparable = isinstance(actual, np.ndarray) and isinstance(expected, np.ndarray)
    if not comparable or actual.shape != expected.shape or _is_text(actual) or _is_text(expected):
        return ValueStatistics(worst, None, None, False)
    return ValueStatistics(worst, *_means(_wide(actual), _wide(expected)), False)


def _means(left: Array, right: Array) -> tuple[float | None, float | None]:
    """Return the mean absolute error and the cosine of two vectors; None for what is not finite."""
    # Infinities leave NaN in differences; the figures are then left out of reports.
    with np.errstate(invalid="ignore", over="ignore"):
        mean = float(np.abs(left - right).mean()) if left.size else 0.0
        lengths = float(np.linalg.norm(left)) * float(np.linalg.norm(right))
        product = float(np.vdot(left, right).real)
    cosine = product / lengths if lengths and math.isfinite(lengths) else None
    known = cosine is not None and math.isfinite(cosine)
    return (
        mean if math.isfinite(mean) else None,
        # Rounding can take the quotient of parallel vectors beyond 1.
        max(-1.0, min(1.0, cosine)) if cosine is not None and known else None,
    )


def _is_text(array: Array) -> bool:
    return array.dtype.kind in "OUST"


def _wide(array: Array) -> Array:
    """Return an array flat, in a type in which sums do not overflow."""
    kind = np.complex128 if array.dtype.kind == "c" else np.float64
    return np.asarray(array.astype(kind)).ravel()


def _identical(actual: Any, expected: Any) -> bool:
    """Return whether two arrays are equal to the last bit."""
    if not isinstance(actual, np.ndarray) or not isinstance(expected, np.ndarray):
        return False
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return False
    if _is_text(actual):
        return bool((actual == expected).all())
    # By bytes: NaN is not equal to itself, and 0.0 is equal to -0.0.
    left, right = (
        np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (actual, expected)
    )
    return bool(np.array_equal(left, right))


def _agreement(name: str, array: Array) -> Verdict:
    return Verdict(
        name=name,
        type=str(array.dtype),
        shape=array.shape,
        max_absolute_error=0.0,
        max_relative_error=0.0,
        mismatched=0,
        elements=array.size,
        passed=True,
    )
