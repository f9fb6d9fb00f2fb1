"""How far results may be off whose reference is torch: as near to what is exact as torch's own are.

Two programs that sum in another order never agree to the last bit, and a deep network makes 1e-2 of
1e-7 without anybody's fault. So what is not near torch at once is held against float64: an error is
too large if it is larger than a small multiple of torch's own error there. A ReLU, a maximum or a
sort that a rounding decides makes torch's results jump, and ours at other places: torch runs again
with roundings added, and as far as it jumps then, we may.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from samba_onnx.comparing.element_errors import typical_error, wide_array
from samba_onnx.comparing.expectations import Expected, ReferenceRuns
from samba_onnx.facts.names import GRADIENT
from samba_onnx.facts.tolerances import (
    FLOOR_ROUNDINGS,
    NEGLIGIBLE_GRADIENT,
    TIMES_TORCHS_ERROR,
    TIMES_TORCHS_JUMPS,
    TYPICAL_PART,
    near_torch,
    spacing,
)

__all__ = ["AMPLITUDES", "Distance", "TorchRules"]

AMPLITUDES: Final = (1, 1, 1, 4, 4, 4, 4, 4, 8, 8, 8, 8)
"""How many roundings numbers move in each run. The first runs tell how smoothly results follow; what
lies within reach of a rounding flips with a probability of about a half in each of the others."""
_HOPELESS: Final = 0.25
"""Error, as a part of the numbers, that is no longer explained if torch did not move ..."""
_STEADY: Final = 1e-2
"""... by more than this part in the first few runs ..."""
_FEW: Final = 4
"""... which are so many."""
COARSE: Final = 2e-2
"""Allowed error, as a part of the numbers, beyond which a comparison says little."""
_LEAST: Final = float(np.finfo(np.float32).tiny)
"""Numbers below it are none that errors are parts of."""


@dataclass(frozen=True)
class Distance:
    """How far two arrays are apart."""

    largest: float
    """The largest distance of two numbers."""
    typical: float
    """Root of the mean of the squares of all distances."""

    def __or__(self, other: Distance) -> Distance:
        return Distance(max(self.largest, other.largest), max(self.typical, other.typical))

    def __add__(self, other: Distance) -> Distance:
        return Distance(self.largest + other.largest, self.typical + other.typical)

    def __mul__(self, factor: float) -> Distance:
        return Distance(factor * self.largest, factor * self.typical)


_NONE: Final = Distance(0.0, 0.0)


@dataclass(frozen=True)
class TorchRules:
    """The rules for torch's results, with the runs of torch that there were so far."""

    runs: ReferenceRuns
    scales: Mapping[str, Distance]
    """Sizes of tensors that errors are fractions of."""
    yardsticks: Mapping[str, _Yardstick] | None = None
    """What torch's own error allows results that are not near torch at once; None at first."""
    moves: int = 0
    """How many times torch ran with roundings."""

    @classmethod
    def of(cls, runs: ReferenceRuns) -> TorchRules:
        """Return the rules before any other run of torch than the first."""
        return cls(runs, _scales(runs.native))

    @property
    def names(self) -> Collection[str] | None:
        """Results that were not near torch's at once; None before anything was judged."""
        return self.yardsticks

    def expected(self, name: str, actual: NDArray[Any]) -> Expected:
        """Return what a result should be: near torch's at first, later as near to float64 as torch's is."""
        if self.yardsticks is not None:
            return self.yardsticks[name].expected(actual)
        native = self.runs.native[name]
        scale, near = self.scales[name], near_torch(native.dtype.name)
        return Expected(
            _computable(native),
            np.asarray(near * scale.largest),
            max(scale.largest, _LEAST),
            "what is near torch at once",
            typical=near * TYPICAL_PART * scale.typical,
        )

    def wider(self, failed: Mapping[str, NDArray[Any] | None]) -> TorchRules | None:
        """Return the rules after one more run of torch: in float64, then with ever larger roundings."""
        arrays = {name: array for name, array in failed.items() if array is not None}
        if self.yardsticks is None:
            exact = self.runs.exact  # a run of torch, which need not keep it
            yardsticks = {
                name: _Yardstick.of(
                    self.runs.native[name],
                    None if exact is None else exact.get(name),
                    self.scales[name],
                )
                for name in arrays
            }
            return dataclasses.replace(self, yardsticks=yardsticks)
        if self._is_hopeless(arrays, len(failed)):
            return None
        # Seeds follow from the number of the run, so that a verdict is the same every time.
        amplitude = AMPLITUDES[self.moves]
        moved = self.runs.moved(self.moves, amplitude)
        if moved is None:
            return None
        widened = {n: one.widened(moved[n], amplitude) for n, one in self.yardsticks.items()}
        return dataclasses.replace(self, yardsticks=widened, moves=self.moves + 1)

    def _is_hopeless(self, arrays: Mapping[str, NDArray[Any]], failed: int) -> bool:
        """Return whether further runs of torch are not worth their while."""
        assert self.yardsticks is not None
        if self.moves < _FEW:
            return False
        # A result of another type or shape fails whatever torch does in further runs.
        hopeless = any(self.yardsticks[name].is_hopeless(array) for name, array in arrays.items())
        return self.moves == len(AMPLITUDES) or len(arrays) < failed or hopeless


def _scales(results: Mapping[str, NDArray[Any]]) -> dict[str, Distance]:
    """Return the sizes of tensors that errors are fractions of: their own numbers'.

    Of gradients that are far below the largest, they are a part of that one.
    """
    sizes = {name: _size(_computable(array)) for name, array in results.items()}
    gradients = [size for name, size in sizes.items() if name.endswith(GRADIENT)]
    largest = max((size.largest for size in gradients), default=0.0)
    least = Distance(largest, largest) * NEGLIGIBLE_GRADIENT
    return {n: size | least if n.endswith(GRADIENT) else size for n, size in sizes.items()}


def _size(array: NDArray[Any]) -> Distance:
    """Return largest and typical magnitude of the finite numbers of an array."""
    if array.dtype.kind not in "fc":
        return _NONE
    magnitudes = np.abs(array).ravel()
    largest = float(magnitudes.max(initial=0.0))
    if not math.isfinite(largest):
        magnitudes = magnitudes[np.isfinite(magnitudes)]
        largest = float(magnitudes.max(initial=0.0))
    return Distance(largest, typical_error(magnitudes))


def _computable(array: NDArray[Any]) -> NDArray[Any]:
    """Return numbers in a type that numpy computes well in: float32 will do for a first look."""
    return array if array.dtype == np.float32 else wide_array(array)


def _unequal(actual: NDArray[Any], expected: NDArray[Any]) -> NDArray[np.bool_]:
    """Return where numbers differ that must be equal: whole ones, and those that are not finite."""
    if expected.dtype.kind not in "fc":
        return np.asarray(np.not_equal(actual, expected))
    finite = np.isfinite(actual) & np.isfinite(expected)
    if finite.all():
        return np.zeros(expected.shape, np.bool_)
    both = np.isnan(actual) & np.isnan(expected)
    return np.asarray(np.not_equal(actual, expected) & ~both & ~finite)


def _distance(actual: NDArray[Any], expected: NDArray[Any]) -> Distance:
    """Return how far the numbers of two arrays of float64 are apart that are finite in both."""
    if expected.dtype.kind not in "fc" or not expected.size:
        return _NONE
    with np.errstate(invalid="ignore", over="ignore"):
        return _size(actual - expected)


@dataclass(frozen=True)
class _Yardstick:
    """What torch's own results allow a result of ours to be."""

    dtype: str
    scale: Distance
    centre: NDArray[Any]
    """What is held to be right: float64's numbers, or else torch's own."""
    torchs: Distance
    """torch's error, and how far it moves when numbers move by one rounding."""
    jumps: Distance
    """How much further torch moves when numbers move by several roundings than it smoothly would."""
    loose: NDArray[np.bool_]
    """Where torch's whole numbers changed."""
    beyond: NDArray[np.bool_]
    """Where a number is not finite in the program's own type: float64 does not know when a float32
    overflows, and torch's own number there is the right one."""

    @classmethod
    def of(cls, native: NDArray[Any], exact: NDArray[Any] | None, scale: Distance) -> _Yardstick:
        """Return what torch's error says, before any run with roundings.

        Args:
            native: torch's result.
            exact: The same in float64, if there is that.
            scale: What errors are fractions of.
        """
        own = wide_array(native)
        centre = own if exact is None else wide_array(exact)
        beyond = np.zeros(own.shape, np.bool_)
        if own.dtype.kind in "fc":
            # Written with a negation, so that NaN in float64 counts as beyond, too.
            beyond = ~np.isfinite(own) | ~(np.abs(centre) <= _greatest(native.dtype))
            centre = np.where(beyond, own, centre)
        error, loose = _distance(own, centre), _unequal(own, centre)
        return cls(
            dtype=native.dtype.name,
            scale=scale,
            centre=centre,
            torchs=error,
            jumps=_NONE,
            loose=loose,
            beyond=beyond,
        )

    def widened(self, moved: NDArray[Any], amplitude: float) -> _Yardstick:
        """Return the yardstick after one more run of torch.

        Args:
            moved: Its results, after numbers moved.
            amplitude: By how many roundings.
        """
        # What overflows is judged by torch's own number, which the run with
        # roundings may not replace.
        results = np.where(self.beyond, self.centre, wide_array(moved))
        distance = _distance(results, self.centre)
        loose = self.loose | _unequal(results, self.centre)
        if amplitude == 1:
            return dataclasses.replace(self, torchs=self.torchs | distance, loose=loose)
        # Twice the amplitude: what follows roundings smoothly moves at most that much further than
        # it did by one of them, and only what is beyond that has jumped.
        smooth = self.torchs * (2 * amplitude)
        jump = Distance(
            max(distance.largest - smooth.largest, 0.0), max(distance.typical - smooth.typical, 0.0)
        )
        return dataclasses.replace(self, jumps=self.jumps | jump, loose=loose)

    def expected(self, actual: NDArray[Any]) -> Expected:
        """Return what a result should be: as near as torch's own are."""
        floor = self.scale * (FLOOR_ROUNDINGS * spacing(self.dtype))
        allowed = self.torchs * TIMES_TORCHS_ERROR + self.jumps * TIMES_TORCHS_JUMPS + floor
        largest = max(self.scale.largest, _LEAST)
        torchs = (self.torchs | self.jumps).largest / largest
        return Expected(
            self.centre,
            np.asarray(allowed.largest),
            largest,
            f"torch's own roundings account for {torchs:.2g}",
            right=self.loose & _unequal(wide_array(actual), self.centre),
            typical=allowed.typical,
            # A wrong result would be accepted, too, if it was not very wrong.
            coarse=allowed.typical > COARSE * self.scale.typical,
        )

    def is_hopeless(self, actual: NDArray[Any]) -> bool:
        """Return whether further runs of torch are not worth their while."""
        scale = self.scale.typical
        steady = (self.torchs | self.jumps).typical <= _STEADY * scale
        error = _distance(wide_array(actual), self.centre).typical
        return steady and error >= _HOPELESS * scale > 0


def _greatest(dtype: np.dtype[Any]) -> float:
    """Return the largest number that a type can hold."""
    return float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]
