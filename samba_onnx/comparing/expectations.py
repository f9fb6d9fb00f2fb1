"""What results should be, who says so, and how far they may be off: the one record that is judged by."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from numpy.typing import NDArray

from samba_onnx.facts.tolerances import OUTPUT

__all__ = ["EQUAL", "ChosenTolerances", "Expectation", "Expected", "KnownResults", "ReferenceRuns"]

EQUAL: Final = "equal"
"""What the tolerance of exact types is called."""


class ReferenceRuns(Protocol):
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
class KnownResults:
    """Results that are at hand already, of which there are none in a wider type."""

    native: Mapping[str, NDArray[Any]]
    """The results by name."""
    unit: float
    """One rounding of the type that they were computed in."""
    movement: Callable[[int, float], Mapping[str, NDArray[Any]] | None] | None = None
    """Runs again with everything moved by roundings; None where nobody can."""
    exact: None = None
    """Nothing: they are as wide as there are."""

    def moved(self, seed: int, amplitude: float) -> Mapping[str, NDArray[Any]] | None:
        """Return results with everything moved by roundings.

        Args:
            seed: Seed of the amounts.
            amplitude: How many roundings each number may move.
        """
        return None if self.movement is None else self.movement(seed, amplitude)


@dataclass(frozen=True)
class Expected:
    """What one array should be, as far as its reference is known by now."""

    values: NDArray[Any]
    """What is held to be right, in the type in which distances are computed."""
    allowed: NDArray[Any]
    """How far each element may be off; zero where it must be equal."""
    scale: float
    """The largest magnitude that is expected, of which relative errors are fractions."""
    reason: str
    """Why just so far: the rule of the type, or what the reference itself loses, in words."""
    pattern: NDArray[Any] | None = None
    """What must not be finite in the same places and in the same way; the values themselves where None."""
    right: NDArray[Any] | None = None
    """Elements that are right whatever their distance, as another right answer of the reference has them."""
    typical: float = math.inf
    """What the root of the mean of the squares of all errors may be."""
    coarse: bool = False
    """Whether the reference is so unsure that a wrong result might not be noticed."""


@dataclass(frozen=True)
class Expectation:
    """What one run should have given; the reasons for which it may be off are what is known of its reference."""

    outputs: Mapping[str, Any]
    """Values by name: arrays, lists of them, or None."""
    wide: Mapping[str, Any] | None = None
    """The same in float32 and without rounding to whole numbers, where the model has numbers of 16 bits
    or quantises, and could be computed so: it tells the reference's own error."""
    depth: int = 1
    """Operators that round, on the longest way from an input to an output."""
    steps: Mapping[str, float] = field(default_factory=dict)
    """Distance of neighbouring numbers, by the names of outputs of floats that are dequantised."""
    coarser: float = 1.0
    """How many times larger than in float16 a rounding is on a device that rounds more than the original."""
    again: Callable[[], Sequence[Mapping[str, Any]]] | None = field(default=None, compare=False)
    """Computes other answers of the original that are as right: in another order of summation, and to inputs
    that nobody can tell from these. It is asked only where an output is beyond the tolerance of its type."""
    again_wide: Callable[[], Sequence[Mapping[str, Any]]] | None = field(
        default=None, compare=False
    )
    """The same in float32 and without rounding to whole numbers."""
    zeros: Mapping[str, float] = field(default_factory=dict)
    """What stands for zero, by the names of outputs of integers that a quantisation rounded."""
    runs: ReferenceRuns | None = field(default=None, compare=False)
    """What torch computes otherwise, where the outputs are its own: its roundings then decide, not the types."""
    stated: Mapping[str, Expected] = field(default_factory=dict, compare=False)
    """All that is allowed, by name, where whoever expects the outputs has worked it out already."""

    @classmethod
    def of_torch(cls, runs: ReferenceRuns) -> Expectation:
        """Return torch's results as what is expected.

        Args:
            runs: Results; those in float64 and with roundings only happen if results are not near torch's at once.
        """
        return cls(runs.native, runs=runs)


@dataclass(frozen=True)
class ChosenTolerances:
    """Tolerances that the user gave; None for those that are as the types demand."""

    rtol: float | None = None
    atol: float | None = None
    defaults: tuple[float, float] = (OUTPUT.relative, OUTPUT.absolute)
    """What the two are, in this order, of types that are judged by them."""

    def plain(self) -> tuple[float, float]:
        """Return relative and absolute tolerance of outputs that are judged by these two."""
        return (
            self.defaults[0] if self.rtol is None else self.rtol,
            self.defaults[1] if self.atol is None else self.atol,
        )

    @property
    def chosen(self) -> bool:
        """Whether the user gave one."""
        return self.rtol is not None or self.atol is not None
