"""The one walk along a computation that finds where it first goes wrong.

Whoever compares goes from place to place in an order in which later ones follow from earlier ones: operators
of a captured graph, passes over a model, values of a PEF's sections. What is computed at a place is judged,
and the walk remembers which places agree. A place at which nobody can look is suspected together with the next
one at which somebody can.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from samba_onnx.comparing.judge import Verdict

__all__ = ["Difference", "Walk"]

Place = TypeVar("Place", bound=Hashable)


@dataclass(frozen=True)
class Difference(Generic[Place]):
    """The first place that computes something else."""

    suspects: tuple[Place, ...]
    """The place, behind those before it at which nobody could look."""
    verdict: Verdict
    """On the first of its results that is wrong."""

    @property
    def place(self) -> Place:
        """The place at which it shows."""
        return self.suspects[-1]


class Walk(Generic[Place]):
    """Places that were passed, and the first of them that computes something else."""

    def __init__(self, tolerated: float = 0.0) -> None:
        """Begin.

        Args:
            tolerated: How many times what is allowed a result may be off after all, though it fails.
        """
        self.first: Difference[Place] | None = None
        self.agreeing = 0
        """Places before the first difference, those at which nobody could look by themselves included."""
        self.suspects: list[Place] = []
        """Places since the last that agreed."""
        self._tolerated = tolerated
        self._verdicts: dict[Place, bool] = {}

    def skip(self, place: Place) -> None:
        """Pass a place at which nobody can look.

        Args:
            place: The next place.
        """
        self.suspects.append(place)

    def take(
        self, place: Place, verdicts: Sequence[Verdict], reads: Collection[Place] | None = None
    ) -> bool:
        """Pass a place.

        Args:
            place: The next place.
            verdicts: On all that is computed there.
            reads: Places whose results are read there; all before it where None.

        Returns:
            Whether all that is read there is right, as far as it was compared.
        """
        operands = self._verdicts if reads is None else reads
        # What was never compared counts as right: it can be blamed for nothing.
        sound = all(self._verdicts.get(operand, True) for operand in operands)
        wrong = [
            verdict
            for verdict in verdicts
            if not verdict.passed and verdict.of_allowed > self._tolerated
        ]
        # Each place is remembered, also behind the first difference: later ones
        # may be wrong of themselves.
        self._verdicts[place] = not wrong
        self.suspects.append(place)
        if wrong and self.first is None:
            self.first = Difference(tuple(self.suspects), wrong[0])
        if not wrong:
            # Places at which nobody could look are cleared with the next one that agrees.
            self.agreeing += len(self.suspects)
            self.suspects = []
        return sound
