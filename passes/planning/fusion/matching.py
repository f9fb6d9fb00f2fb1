"""Finds where a pattern is in a graph: backtracking over what is near to what was already found.

The search is deterministic: places are tried in the order of the graph, operators of a pattern in the
order of the file, and larger matches before smaller ones. It is bounded, too: a file of rules may have
patterns that fit in more ways than anybody can wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from samba_onnx.passes.planning.fusion.patterns import Pattern, PatternEntry
from samba_onnx.program.dataflow import Dataflow

# Bounds cost completeness and never correctness: what is left unmatched is sections of its own, as at `o0`.
MOST_STEPS: Final = 2_000_000
"""Assignments that are tried for one pattern in one graph."""
# A bound of its own for each place: one that is hopeless must not use up what all others may try.
MOST_STEPS_EACH: Final = 20_000
"""Assignments that are tried from one place of a graph."""

_ACCEPTING: Final = 100
"""What it takes to ask about a whole match, in assignments."""

Unit: TypeAlias = tuple[int, ...]
"""Positions of the nodes that together are one operator of PyTorch, ascending."""
Match: TypeAlias = Mapping[str, Unit | None]
"""The unit of every entry; None for an optional one that is not there."""


class UnitLookup(Protocol):
    """Tells what an entry of a pattern may be."""

    def named(self, entry: PatternEntry) -> Sequence[Unit]:
        """Return everything in the graph that an entry may be, in its order."""

    def touching(self, entry: PatternEntry, position: int) -> Iterator[Unit]:
        """Yield what an entry may be of which a node is a part."""


@dataclass
class StepBudget:
    """How much a search may still try."""

    left: int = MOST_STEPS
    exhausted: bool = False
    """Whether a search was given up."""


def embeddings(
    pattern: Pattern,
    flow: Dataflow,
    units: UnitLookup,
    steps: StepBudget,
    fits: Callable[[PatternEntry, Unit], bool] = lambda entry, unit: True,
    accept: Callable[[Match], bool] = lambda match: True,
) -> Iterator[Match]:
    """Yield the places where a pattern is.

    Args:
        pattern: Operators and what feeds what.
        flow: The graph.
        units: Tells what the operators may be in it.
        steps: Bounds the search.
        fits: Says of a unit whether an entry may be it now; asked again for every place.
        accept: Says of a whole match whether it counts; of one place the first that does is taken.

    Yields:
        At most one match for each unit that the rarest operator of the pattern may be.
    """
    search = _Search(pattern, flow, units, steps, fits, accept)
    required = [name for name, entry in pattern.entries.items() if entry.required]
    # The rarest operator: the search begins once for each of its units, and nowhere else.
    anchor = min(required, key=lambda name: len(units.named(pattern.entries[name])))
    entry = pattern.entries[anchor]
    for unit in units.named(entry):
        if steps.left <= 0:
            steps.exhausted = True
            return
        found = search.start(anchor, unit)
        if found is not None:
            yield found


@dataclass
class _Search:
    """One pattern in one graph."""

    pattern: Pattern
    flow: Dataflow
    units: UnitLookup
    steps: StepBudget
    fits: Callable[[PatternEntry, Unit], bool]
    accept: Callable[[Match], bool]
    found: dict[str, Unit | None] = field(default_factory=dict)
    taken: set[int] = field(default_factory=set)
    left: int = 0

    def start(self, anchor: str, unit: Unit) -> Match | None:
        """Return the first match in which an entry is a unit."""
        self.found, self.taken, self.left = {}, set(), MOST_STEPS_EACH
        if self.fits(self.pattern.entries[anchor], unit) and self._assign(anchor, unit):
            return dict(self.found)
        return None

    def _assign(self, name: str, unit: Unit | None) -> bool:
        """Let an entry be a unit, or absent, and go on; take that back where nothing comes of it."""
        self.steps.left -= 1
        self.left -= 1
        if self.left <= 0 or self.steps.left <= 0:
            self.steps.exhausted = True
            return False
        # Two operators of a pattern are two of the graph.
        if unit is not None and not self.taken.isdisjoint(unit):
            return False
        self.found[name] = unit
        if self._edges_hold(name, unit):
            self.taken.update(unit or ())
            if self._extend():
                return True
            self.taken.difference_update(unit or ())
        del self.found[name]
        return False

    def _extend(self) -> bool:
        """Assign the next entry; of a whole match, ask whether it counts."""
        if len(self.found) == len(self.pattern.entries):
            self.left -= _ACCEPTING
            return self.accept(self.found)
        name, candidates = self._next()
        entry = self.pattern.entries[name]
        for unit in candidates:
            if self.left <= 0 or self.steps.left <= 0:
                break
            if self.fits(entry, unit) and self._assign(name, unit):
                return True
        # Absent only where nothing else leads to a match: larger matches come before smaller ones.
        return not entry.required and self._assign(name, None)

    def _next(self) -> tuple[str, Sequence[Unit]]:
        """Return an entry that is next to what was found, and what it may be."""
        waiting = [name for name in self.pattern.entries if name not in self.found]
        # Operators that have to be there end a search in vain sooner than optional ones.
        waiting.sort(key=lambda name: not self.pattern.entries[name].required)
        for name in waiting:
            entry = self.pattern.entries[name]
            for near in self._around(name, upwards=True):
                return name, self._beside(entry, near, self.flow.successors)
            for near in self._around(name, upwards=False):
                return name, self._beside(entry, near, self.flow.predecessors)
        # What only absent operators connect may be anywhere.
        name = waiting[0]
        return name, self.units.named(self.pattern.entries[name])

    def _beside(
        self, entry: PatternEntry, unit: Unit, steps: Callable[[int], Sequence[int]]
    ) -> list[Unit]:
        # Neighbours alone are tried, not every unit of that name: a model of many layers has hundreds of
        # them.
        near = dict.fromkeys(p for position in unit for p in steps(position) if p not in unit)
        return list(
            dict.fromkeys(
                found for position in sorted(near) for found in self.units.touching(entry, position)
            )
        )

    def _around(self, name: str, *, upwards: bool) -> list[Unit]:
        """Return the units that feed an entry or are fed by it, across absent ones."""
        around: list[Unit] = []
        seen: set[str] = set()
        pending = [name]
        while pending:
            current = pending.pop()
            entries = self.pattern.parents[current] if upwards else self._children(current)
            for other in entries:
                if other in seen or other not in self.found:
                    continue
                seen.add(other)
                unit = self.found[other]
                if unit is None:
                    # An operator that is absent feeds nothing itself: what feeds it feeds what reads it.
                    pending.append(other)
                else:
                    around.append(unit)
        return around

    def _children(self, name: str) -> tuple[str, ...]:
        return self.pattern.entries[name].children

    def _edges_hold(self, name: str, unit: Unit | None) -> bool:
        """Return whether what feeds each other in the pattern does so in the graph, as far as is known."""
        before, after = self._around(name, upwards=True), self._around(name, upwards=False)
        if unit is None:
            return all(self._feeds(parent, other) for parent in before for other in after)
        return all(self._feeds(parent, unit) for parent in before) and all(
            self._feeds(unit, other) for other in after
        )

    def _feeds(self, before: Unit, after: Unit) -> bool:
        return any(p in after for position in before for p in self.flow.successors(position))
