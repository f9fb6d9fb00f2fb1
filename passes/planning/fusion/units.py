"""The operators of a graph by PyTorch's and ONNX's names: single nodes, and forms of several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from samba_onnx.facts.domains import qualified
from samba_onnx.passes.planning.fusion.matching import StepBudget, Unit, embeddings
from samba_onnx.passes.planning.fusion.patterns import Pattern, PatternEntry
from samba_onnx.passes.planning.fusion.pytorch_names import operator_names
from samba_onnx.program.dataflow import Dataflow, dimensions


@dataclass
class Units:
    """Looks units up by name, and finds out which there are when a name is asked for first."""

    flow: Dataflow

    def __post_init__(self) -> None:
        """Sort the nodes by operator."""
        self._nodes: dict[str, list[int]] = {}
        for position, node in enumerate(self.flow.nodes):
            self._nodes.setdefault(qualified(node.domain, node.op_type), []).append(position)
        # Found out when asked: forms are searched for in the whole graph, and rules name few of them.
        self._named: dict[str, tuple[Unit, ...]] = {}
        self._at: dict[str, dict[int, list[Unit]]] = {}

    def named(self, entry: PatternEntry) -> Sequence[Unit]:
        """Return all that an entry of a rule may be, in the order of the graph, larger ones first."""
        if len(entry.operators) == 1:
            return self._of(entry.operators[0])
        every = dict.fromkeys(unit for name in entry.operators for unit in self._of(name))
        return sorted(every, key=_place)

    def touching(self, entry: PatternEntry, position: int) -> Iterator[Unit]:
        """Yield what an entry may be of which a node is a part, larger units first."""
        seen: set[Unit] = set()
        for name in entry.operators:
            self._of(name)
            for unit in self._at[name].get(position, ()):
                if unit not in seen:
                    seen.add(unit)
                    yield unit

    def _of(self, name: str) -> tuple[Unit, ...]:
        if name not in self._named:
            names = operator_names()
            units = {unit for form in names.forms.get(name, ()) for unit in self._forms(form)}
            units |= {(p,) for op in names.onnx_operators(name) for p in self._nodes.get(op, ())}
            self._named[name] = tuple(sorted(units, key=_place))
            places: dict[int, list[Unit]] = {}
            # Larger units first, so that a rule takes an operator whole before it takes a node of it.
            for unit in sorted(units, key=lambda unit: -len(unit)):
                for position in unit:
                    places.setdefault(position, []).append(unit)
            self._at[name] = places
        return self._named[name]

    def _forms(self, form: Pattern) -> Iterator[Unit]:
        """Yield the nodes of every place where a form is, in which nothing outside reads inner values."""
        nodes = _SingleNodes(self.flow, self._nodes)
        *_, last = form.entries
        for found in embeddings(form, self.flow, nodes, StepBudget()):
            final = found[last]
            unit = tuple(
                sorted(
                    position for positions in found.values() if positions for position in positions
                )
            )
            # Where others read an inner value, this is more than the one operator that the form stands for.
            if final and self._is_closed(unit, final[0]):
                yield unit

    def _is_closed(self, unit: Unit, last: int) -> bool:
        return all(
            not value.is_graph_output() and set(self.flow.readers.get(value, ())) <= set(unit)
            for position in unit
            if position != last
            for value in self.flow.nodes[position].outputs
        )


def _place(unit: Unit) -> tuple[int, int]:
    # Of units that begin at one node the largest first.
    return unit[0], -len(unit)


@dataclass(frozen=True)
class _SingleNodes:
    """Every node as a unit of its own, by ONNX's names."""

    flow: Dataflow
    nodes: dict[str, list[int]]

    def named(self, entry: PatternEntry) -> Sequence[Unit]:
        """Return the nodes that an entry of a form may be."""
        positions = sorted(p for name in entry.operators for p in self.nodes.get(name, ()))
        return [(position,) for position in positions if self._fits(entry, position)]

    def touching(self, entry: PatternEntry, position: int) -> Iterator[Unit]:
        """Yield the node itself, if the entry may be it."""
        node = self.flow.nodes[position]
        if qualified(node.domain, node.op_type) in entry.operators and self._fits(entry, position):
            yield (position,)

    def _fits(self, entry: PatternEntry, position: int) -> bool:
        if not (entry.matrix or entry.vector):
            return True
        operands = self.flow.nodes[position].inputs
        ranks = [None if v is None or (s := dimensions(v)) is None else len(s) for v in operands]
        if entry.matrix and not (len(ranks) > 1 and ranks[1] == 2):
            return False
        return not entry.vector or any(rank is not None and rank < 2 for rank in ranks)
