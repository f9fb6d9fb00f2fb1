"""Whether results are as near to what is exact as those of torch itself.

Two programs that sum in another order never agree to the last bit, and a deep network makes 1e-2 of
1e-7 without anybody's fault. So what is not near torch at once is held against float64: an error is
a mismatch if it is larger than a small multiple of torch's own error there. A ReLU, a maximum or a
sort that a rounding decides makes torch's results jump, and ours at other places: torch runs again
with roundings added, and as far as it jumps then, we may.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from samba_onnx.comparing.element_errors import wide_array
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


class Runs(Protocol):
    """torch's results by name, in one precision or another."""

    @property
    def native(self) -> Mapping[str, NDArray[Any]]:
        """Results in the program's own types."""

    @property
    def exact(self) -> Mapping[str, NDArray[Any]] | None:
        """Results in float64, if there are any."""

    @property
    def unit(self) -> float:
        """One rounding of the type in which the program computes."""

    def moved(self, seed: int, amplitude: float) -> Mapping[str, NDArray[Any]] | None:
        """Return results with everything moved by roundings, in float64 if there are any."""


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

    def in_units_of(self, unit: Distance) -> float:
        """Return how many times another distance it is, by the figure for which that is more."""
        pairs = ((self.largest, unit.largest), (self.typical, unit.typical))
        return max((a / b if b else math.inf) for a, b in pairs if a) if self.largest else 0.0

    def within(self, allowed: Distance) -> bool:
        """Return whether neither figure is beyond that of another distance."""
        return self.largest <= allowed.largest and self.typical <= allowed.typical


_NONE: Final = Distance(0.0, 0.0)


@dataclass(frozen=True)
class Mismatch:
    """A result that is further from what is exact than torch accounts for."""

    name: str
    error: float
    """The largest error, as a fraction of the tensor's largest number; infinite where numbers must
    be equal and are not."""
    excess: float
    """How many times the allowed error that is."""
    extent: str
    """By what it differs, in words."""


@dataclass(frozen=True)
class Judgement:
    """What a comparison with torch came to."""

    errors: Mapping[str, float]
    """Largest difference from torch's results by name, as a fraction of the largest number."""
    mismatches: tuple[Mismatch, ...] = ()
    """Results that are further from what is exact than torch accounts for."""
    coarse: frozenset[str] = frozenset()
    """Results of which torch itself is so unsure that a wrong one might not be noticed."""


def judged(ours: Mapping[str, NDArray[Any] | None], runs: Runs) -> Judgement:
    """Compare results with torch's.

    Args:
        ours: Results by name, None for one that is missing; others than torch's are not looked at.
        runs: Runs of torch; those in float64 and with roundings only happen if results are not near
            torch's at once.
    """
    scales = _scales(runs.native)
    pairs = {n: _Pair(ours.get(n), expected, scales[n]) for n, expected in runs.native.items()}
    errors = {name: pair.error for name, pair in pairs.items()}
    doubtful = {name: pair for name, pair in pairs.items() if not pair.is_near}
    if not doubtful:
        return Judgement(errors)
    exact = runs.exact  # a run of torch, which need not keep it
    yardsticks = {
        name: _Yardstick.of(pair, runs.native[name], _get(exact, name))
        for name, pair in doubtful.items()
    }
    _widen(yardsticks, runs)
    wrong = tuple(y.mismatch(name) for name, y in yardsticks.items() if not y.accepts)
    coarse = frozenset(name for name, yardstick in yardsticks.items() if yardstick.is_coarse)
    return Judgement(errors, wrong, coarse)


def _get(results: Mapping[str, NDArray[Any]] | None, name: str) -> NDArray[Any] | None:
    return None if results is None else results.get(name)


def _widen(yardsticks: dict[str, _Yardstick], runs: Runs) -> None:
    """Let torch move until it explains all errors, or is unlikely to."""
    for seed, amplitude in enumerate(AMPLITUDES):
        left = [name for name, yardstick in yardsticks.items() if not yardstick.accepts]
        hopeless = any(yardsticks[name].is_hopeless for name in left)
        if not left or (seed >= _FEW and hopeless):
            return
        moved = runs.moved(seed, amplitude)
        if moved is None:
            return
        yardsticks |= {n: y.widened(moved[n], amplitude) for n, y in yardsticks.items()}


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
    if not largest:
        return _NONE
    magnitudes = magnitudes / largest  # whose squares neither overflow nor vanish
    return Distance(largest, largest * math.sqrt(float(magnitudes @ magnitudes) / magnitudes.size))


class _Pair:
    """A result of ours and torch's."""

    def __init__(
        self, actual: NDArray[Any] | None, expected: NDArray[Any], scale: Distance
    ) -> None:
        self.scale = scale
        self.dtype = expected.dtype
        self.error, self.is_near = math.inf, False
        self.actual: NDArray[Any] | None = None
        self.kind = ""
        if actual is None:
            self.kind = "the program does not compute it"
            return
        if actual.shape != expected.shape or actual.dtype != expected.dtype:
            self.kind = (
                f"it is {actual.dtype.name} of sizes {list(actual.shape)} instead of "
                f"{expected.dtype.name} of sizes {list(expected.shape)}"
            )
            return
        self.actual = _computable(actual)
        native = _computable(expected)
        distance = _distance(self.actual, native)
        near = near_torch(expected.dtype.name)
        allowed = Distance(near * scale.largest, near * TYPICAL_PART * scale.typical)
        equal = not _unequal(self.actual, native).any()
        self.is_near = equal and distance.within(allowed)
        self.error = _fraction(distance.largest, scale.largest) if equal else math.inf


def _computable(array: NDArray[Any]) -> NDArray[Any]:
    """Return numbers in a type that numpy computes well in: float32 will do for a first look."""
    return array if array.dtype == np.float32 else wide_array(array)


def _fraction(error: float, largest: float) -> float:
    return error / max(largest, float(np.finfo(np.float32).tiny)) if error else 0.0


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
    """Return how far the numbers of two arrays are apart that are finite in both."""
    if expected.dtype.kind not in "fc" or not expected.size:
        return _NONE
    with np.errstate(invalid="ignore", over="ignore"):
        difference = actual - expected
        if not np.isfinite(difference).all():  # from infinite numbers, or float32 holds it not
            difference = wide_array(actual) - wide_array(expected)
    return _size(difference)


@dataclass(frozen=True)
class _Yardstick:
    """What torch's own results allow a result of ours to be."""

    pair: _Pair
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
    def of(cls, pair: _Pair, native: NDArray[Any], exact: NDArray[Any] | None) -> _Yardstick:
        """Return what torch's error says, before any run with roundings.

        Args:
            pair: Our result and torch's.
            native: torch's result.
            exact: The same in float64, if there is that.
        """
        own = wide_array(native)
        centre = own if exact is None else wide_array(exact)
        beyond = np.zeros(own.shape, np.bool_)
        if own.dtype.kind in "fc":
            beyond = ~np.isfinite(own) | ~(np.abs(centre) <= _greatest(native.dtype))
            centre = np.where(beyond, own, centre)
        return cls(pair, centre, _distance(own, centre), _NONE, _unequal(own, centre), beyond)

    def widened(self, moved: NDArray[Any], amplitude: float) -> _Yardstick:
        """Return the yardstick after one more run of torch.

        Args:
            moved: Its results, after numbers moved.
            amplitude: By how many roundings.
        """
        results = np.where(self.beyond, self.centre, wide_array(moved))
        distance = _distance(results, self.centre)
        loose = self.loose | _unequal(results, self.centre)
        if amplitude == 1:
            return dataclasses.replace(self, torchs=self.torchs | distance, loose=loose)
        smooth = self.torchs * (2 * amplitude)
        jump = Distance(
            max(distance.largest - smooth.largest, 0.0), max(distance.typical - smooth.typical, 0.0)
        )
        return dataclasses.replace(self, jumps=self.jumps | jump, loose=loose)

    @property
    def error(self) -> Distance:
        """The distance of our result."""
        assert self.pair.actual is not None
        return _distance(self.pair.actual, self.centre)

    @property
    def allowed(self) -> Distance:
        floor = self.pair.scale * (FLOOR_ROUNDINGS * spacing(self.pair.dtype.name))
        return self.torchs * TIMES_TORCHS_ERROR + self.jumps * TIMES_TORCHS_JUMPS + floor

    @property
    def accepts(self) -> bool:
        """Whether our result is as near as torch's own are."""
        if (
            self.pair.actual is None
            or (_unequal(self.pair.actual, self.centre) & ~self.loose).any()
        ):
            return False
        return self.error.within(self.allowed)

    @property
    def is_hopeless(self) -> bool:
        """Whether further runs of torch are not worth their while."""
        if self.pair.actual is None:
            return True
        scale = self.pair.scale.typical
        steady = (self.torchs | self.jumps).typical <= _STEADY * scale
        return steady and self.error.typical >= _HOPELESS * scale > 0

    @property
    def is_coarse(self) -> bool:
        """Whether a wrong result would be accepted, too, if it was not very wrong."""
        return self.allowed.typical > COARSE * self.pair.scale.typical

    def mismatch(self, name: str) -> Mismatch:
        """Return what is wrong with our result.

        Args:
            name: Its name.
        """
        if self.pair.actual is None:
            return Mismatch(name, math.inf, math.inf, self.pair.kind)
        wrong = _unequal(self.pair.actual, self.centre) & ~self.loose
        if wrong.any():
            kind = "not finite, or finite, unlike torch's" if self._is_real else "not torch's"
            extent = f"{int(wrong.sum())} of its {wrong.size} numbers are {kind}"
            return Mismatch(name, math.inf, math.inf, extent)
        error = _fraction(self.error.largest, self.pair.scale.largest)
        torchs = _fraction((self.torchs | self.jumps).largest, self.pair.scale.largest)
        extent = (
            f"it is off by {error:.2g} of its largest number, and torch's own roundings account for "
            f"{torchs:.2g}"
        )
        return Mismatch(name, error, self.error.in_units_of(self.allowed), extent)

    @property
    def _is_real(self) -> bool:
        return self.centre.dtype.kind in "fc"


def _greatest(dtype: np.dtype[Any]) -> float:
    """Return the largest number that a type can hold."""
    return float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]
