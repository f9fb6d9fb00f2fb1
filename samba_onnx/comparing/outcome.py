"""The outcome of a comparison that found no mismatch."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

EAGER_TORCH: Final = "eager torch"
"""What an exported module is compared with."""
ORIGINAL_MODEL: Final = "the ONNX model on onnxruntime"
"""What a compiled ONNX model is compared with."""
WHOLE: Final = "What was compiled"
"""What is compared, where it is not only a part of the program."""


class ComparisonOutcome(enum.StrEnum):
    """Whether anything was compared; a mismatch is an error and no outcome."""

    DONE = "done"
    NOT_COMPARABLE = "not comparable"


class NotComparableError(Exception):
    """There is nothing to compare; its text says why. Caught where the comparison was begun."""


@dataclass(frozen=True)
class Comparison:
    """What a comparison came to that found no mismatch."""

    outcome: ComparisonOutcome
    errors: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Largest error of each output that was compared, by its name, as a fraction of the output's
    largest number."""
    reason: str = ""
    """Why nothing was compared, as ``an input has no values``; empty where the outcome is done."""
    condition: str = ""
    """Under which circumstances it was compared, where these are not those of a run: ``with the
    rates of all dropouts at 0``."""
    oracle: str = EAGER_TORCH
    """What was compared with, or would have been."""
    subject: str = WHOLE
    """What was compared, or would have been, as the beginning of a sentence."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What people must know of it: a sentence for the PEF and its report, or none."""
        if self.outcome is ComparisonOutcome.NOT_COMPARABLE:
            return (f"{self.subject} is not compared with {self.oracle}: {self.reason}.",)
        if self.condition:
            return (f"{self.subject} is compared with {self.oracle} {self.condition}.",)
        return ()


def done(errors: Mapping[str, float], condition: str = "", oracle: str = EAGER_TORCH) -> Comparison:
    """Return the outcome of a comparison in which everything agrees.

    Args:
        errors: Largest error of each output, as a fraction of the output's largest number.
        condition: See ``Comparison.condition``.
        oracle: What was compared with.
    """
    known = MappingProxyType(dict(errors))
    return Comparison(ComparisonOutcome.DONE, known, condition=condition, oracle=oracle)


def own_values(names: Iterable[str]) -> str:
    """Return the condition that a check has values of its own for some inputs.

    Args:
        names: Names of these inputs; the condition is empty without any.
    """
    listed = ", ".join(map(repr, names))
    return f"on values of its own for {listed}" if listed else ""


def both(one: str, other: str) -> str:
    """Return two conditions as one.

    Args:
        one: See ``Comparison.condition``; may be empty.
        other: The same.
    """
    return " and ".join(filter(None, [one, other]))


def not_comparable(reason: str, oracle: str = EAGER_TORCH, subject: str = WHOLE) -> Comparison:
    """Return the outcome where there is nothing to compare.

    Args:
        reason: A clause that says what is missing, without a full stop.
        oracle: What would have been compared with.
        subject: What would have been compared, as the beginning of a sentence.
    """
    return Comparison(
        ComparisonOutcome.NOT_COMPARABLE, reason=reason, oracle=oracle, subject=subject
    )
