"""What the outputs of a run should be, and how far a user lets them be off."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from samba_onnx.facts.tolerances import OUTPUT

__all__ = ["EQUAL", "ChosenTolerances", "Expectation"]

EQUAL: Final = "equal"
"""What the tolerance of exact types is called."""


@dataclass(frozen=True)
class Expectation:
    """What one run should have given."""

    outputs: Mapping[str, Any]
    """Values by name: arrays, lists of them, or None."""
    wide: Mapping[str, Any] | None = None
    """The same in float32 and without rounding to whole numbers, where the model has numbers of 16 bits
    or quantises, and could be computed so."""
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
    others: tuple[Mapping[str, Any], ...] = ()
    """What ``again`` computed, once it was asked."""
    zeros: Mapping[str, float] = field(default_factory=dict)
    """What stands for zero, by the names of outputs of integers that a quantisation rounded."""


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
