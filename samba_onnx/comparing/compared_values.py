"""What a comparison of all values came to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from samba_onnx.comparing.value_statistics import ValueStatistics


@dataclass(frozen=True)
class ComparedValue:
    """One value of the original, with the node that computes it there."""

    name: str
    position: int
    """Place of its node in the original, in topological order."""
    node: str
    """Name of that node; may be empty."""
    operator: str
    """``Op``, or ``domain::Op`` outside the default domain."""
    location: str
    """``file.py:line`` of the user's own model; empty if the model does not carry it."""
    stage: int
    """Id of the section or fallback that computes it in the PEF."""
    dtype: str
    """The numpy dtype in the original; empty for what is no array."""
    statistics: ValueStatistics
    operands_agree: bool
    """Whether all that its node reads, as far as it was compared, is within the tolerance."""

    @property
    def passed(self) -> bool:
        """Whether it is within the tolerance."""
        return self.statistics.comparison.passed


@dataclass(frozen=True)
class ValueComparison:
    """The comparison of all values."""

    graph: str
    """Name of the graph of the PEF."""
    values: tuple[ComparedValue, ...]
    """The values that both sides have, in the original's topological order."""
    total: int
    """Values that nodes of the original's main graph compute, and that something reads or that are
    outputs."""
    gone: Mapping[str, int]
    """How many of the others there are by the operator that computes them in the original."""
    own: int
    """Values that only the PEF has, as those of operators that were expanded."""
    inputs: str
    """What the model was run on, for people."""
    feeds: Mapping[str, Any]
    """The same by the names of the model's inputs."""

    @classmethod
    def of(
        cls,
        graph: str,
        values: Sequence[ComparedValue],
        operators: Mapping[str, str],
        *,
        own: int,
        inputs: str,
        feeds: Mapping[str, Any] = MappingProxyType({}),
    ) -> ValueComparison:
        """Put the comparison together.

        Args:
            graph: Name of the graph of the PEF.
            values: All that were compared.
            operators: What computes each value that counts, by its name in the original.
            own: Values that only the PEF has.
            inputs: What the model was run on, for people.
            feeds: The same by the names of the model's inputs.
        """
        shared = {value.name for value in values}
        gone = Counter(kind for name, kind in operators.items() if name not in shared)
        ordered = tuple(sorted(values, key=lambda value: value.position))
        total, missing = len(operators.keys() | shared), dict(gone.most_common())
        return cls(
            graph=graph,
            values=ordered,
            total=total,
            gone=missing,
            own=own,
            inputs=inputs,
            feeds=feeds,
        )

    @property
    def passed(self) -> bool:
        """Whether every value that was compared is within the tolerance."""
        return all(value.passed for value in self.values)

    @property
    def first(self) -> ComparedValue | None:
        """The first value beyond the tolerance, in the original's order."""
        return next((value for value in self.values if not value.passed), None)
