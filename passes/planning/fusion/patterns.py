"""What a rule of fusion says: operators, what feeds what, and which of them a section is made of."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class PatternEntry:
    """One operator of a pattern."""

    operators: tuple[str, ...]
    """Names of operators, of which it is any: PyTorch's, as ``linear``, or ONNX's, as ``Gemm``."""
    children: tuple[str, ...] = ()
    """Entries that read what it writes."""
    required: bool = True
    """Whether the pattern only matches with it. What feeds an optional operator feeds what reads it where
    the graph does not have it."""
    included: bool = True
    """Whether it becomes part of the section; otherwise it only says where the pattern is."""
    matrix: bool = False
    """Whether its second operand has two dimensions, as the weight of a linear layer."""
    vector: bool = False
    """Whether one of its operands has at most one dimension, as the bias of a linear layer."""


@dataclass(frozen=True, eq=False)
class Pattern:
    """Operators by the names that a rule has for them, in the order of the file."""

    entries: Mapping[str, PatternEntry]

    @functools.cached_property
    def parents(self) -> Mapping[str, tuple[str, ...]]:
        """The entries that feed each entry."""
        parents: dict[str, list[str]] = {name: [] for name in self.entries}
        for name, entry in self.entries.items():
            for child in entry.children:
                parents[child].append(name)
        return {name: tuple(names) for name, names in parents.items()}

    def neighbours(self, name: str) -> Iterator[str]:
        """Yield what feeds an entry, then what it feeds."""
        yield from self.parents[name]
        yield from self.entries[name].children


@dataclass(frozen=True, eq=False)
class FusionRule:
    """A rule: what it matches becomes a section."""

    name: str
    priority: float
    """The rule with the greater one wins where two match the same operators; the earlier one if equal."""
    patterns: tuple[Pattern, ...]
    """One for each choice of options, tried in this order."""
    heuristic: str = ""
    """Name and parameters of a way to lay the section out on the chip; it changes nothing here."""
    source: str = ""
    """The file that it is from, without folder."""
    unknown: tuple[str, ...] = ()
    """Operators that it names and that no graph has: they match nothing."""

    def operators(self) -> Iterator[str]:
        """Yield the names of all operators of its patterns; some of them several times."""
        for pattern in self.patterns:
            for entry in pattern.entries.values():
                yield from entry.operators


_LINEARS: Final = frozenset({"linear", "addmm", "mm", "Gemm"})


@dataclass(frozen=True, eq=False)
class FusionRules:
    """The rules of a compilation."""

    rules: tuple[FusionRule, ...] = ()
    """In the order in which they are tried."""
    notes: tuple[str, ...] = ()
    """Sentences for the report about what files say without effect."""

    def name_parallel_linears(self) -> bool:
        """Return whether a pattern has several linear layers of one operand, as queries, keys and values."""
        return any(
            sum(not _LINEARS.isdisjoint(pattern.entries[c].operators) for c in entry.children) > 1
            for rule in self.rules
            for pattern in rule.patterns
            for entry in pattern.entries.values()
        )


NO_RULES = FusionRules()
