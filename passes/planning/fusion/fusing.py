"""Makes sections of groups of RDU nodes: by marks of the user, by rules, and of what is left as ``o0`` does."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import onnx_ir as ir

from samba_onnx.passes.planning.fusion.convexity import BlockOrder
from samba_onnx.passes.planning.fusion.marks import convex_parts, marked
from samba_onnx.passes.planning.fusion.matching import Match, StepBudget, Unit, embeddings
from samba_onnx.passes.planning.fusion.patterns import FusionRule, Pattern, PatternEntry
from samba_onnx.passes.planning.fusion.units import Units
from samba_onnx.passes.planning.fusion.wide_operators import wide_operators
from samba_onnx.passes.planning.origins import by_operator
from samba_onnx.program.dataflow import Dataflow

LOGGER: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class Piece:
    """Nodes that become one section."""

    nodes: tuple[ir.Node, ...]
    rule: str = ""
    """The rule or mark that they are one section for; empty for what ``o0`` makes a section of, too."""


def fuse(
    groups: Sequence[Sequence[ir.Node]], others: Sequence[ir.Node], rules: Sequence[FusionRule]
) -> list[list[Piece]]:
    """Return what the sections of groups of nodes are.

    What the user marked comes first, then the rules in their order. A match that would make sections wait
    for each other in a circle, or that reaches into another group, is none.

    Args:
        groups: The nodes of each group that runs on the RDU, in topological order.
        others: Nodes that run on the CPU: a pattern may say that they are near, and no more.
        rules: The rules of fusion.

    Returns:
        For each group its pieces, in an order in which they can run. Every node is in one of them.
    """
    return _Fusion(groups, others).run(rules)


class _Fusion:
    """The groups of one graph while they are cut."""

    def __init__(self, groups: Sequence[Sequence[ir.Node]], others: Sequence[ir.Node]) -> None:
        self.flows = [Dataflow.of(nodes) for nodes in groups]
        self.orders = [BlockOrder(flow) for flow in self.flows]
        # Patterns are looked for in the whole, whose order of nodes need not be topological.
        self.flow = Dataflow.of([*(node for nodes in groups for node in nodes), *others])
        self.place: list[tuple[int, int] | None] = [
            (group, position)
            for group, nodes in enumerate(groups)
            for position in range(len(nodes))
        ]
        self.place += [None] * len(others)
        self.rules: dict[tuple[int, int], str] = {}
        """The rule that each node was joined by."""

    def run(self, rules: Sequence[FusionRule]) -> list[list[Piece]]:
        """Join what marks and rules ask for, and return all pieces."""
        # First: what the user says of his own lines counts more than a rule for any model.
        self._join_marked()
        units = Units(self.flow)
        for rule in rules:
            for pattern in rule.patterns:
                self._join_matches(rule, pattern, units)
        # Last: it must not take a part of what a rule would match.
        self._join_wide_operators()
        return [list(self._pieces(group)) for group in range(len(self.flows))]

    def _join_marked(self) -> None:
        for group, flow in enumerate(self.flows):
            for mark, positions in marked(flow).items():
                for part in convex_parts(flow, positions):
                    free = [p for p in part if (group, p) not in self.rules]
                    if free and self.orders[group].join(free):
                        self.rules |= {(group, p): mark.rule for p in free}

    def _join_wide_operators(self) -> None:
        """Keep together what torch computes by one operator, where no rule has taken a part of it."""
        for group, flow in enumerate(self.flows):
            for positions in wide_operators(flow):
                # Not noted in `rules`: side by side, these nodes become one piece as at `o0`, which has no
                # rule either.
                if not any((group, position) in self.rules for position in positions):
                    self.orders[group].join(positions)

    def _join_matches(self, rule: FusionRule, pattern: Pattern, units: Units) -> None:
        # Most rules name something that a graph does not have: a look at the names spares the search.
        if any(not units.named(e) for e in pattern.entries.values() if e.required):
            return

        def accept(match: Match) -> bool:
            return self._join(rule, pattern, match)

        steps = StepBudget()
        # A match is joined while the search goes on, so that the next one finds its nodes taken.
        for _ in embeddings(pattern, self.flow, units, steps, self._fits, accept):
            pass
        if steps.exhausted:
            LOGGER.debug("rule %r fits in too many ways: some places were given up", rule.name)

    def _fits(self, entry: PatternEntry, unit: Unit) -> bool:
        # What only says where the pattern is may be part of another section, or run on the CPU.
        return not entry.included or all(self._is_free(position) for position in unit)

    def _is_free(self, position: int) -> bool:
        place = self.place[position]
        return place is not None and place not in self.rules

    def _join(self, rule: FusionRule, pattern: Pattern, match: Match) -> bool:
        """Make a match a section; return whether it can be one."""
        positions = [
            position
            for name, unit in match.items()
            if unit is not None and pattern.entries[name].included
            for position in unit
        ]
        places = [place for p in positions if (place := self.place[p]) is not None]
        group = places[0][0]
        # Between two groups the CPU computes: no section reaches across.
        if any(place[0] != group for place in places):
            return False
        if not self.orders[group].join([place[1] for place in places]):
            return False
        self.rules |= dict.fromkeys(places, rule.name)
        return True

    def _pieces(self, group: int) -> Iterator[Piece]:
        nodes = self.flows[group].nodes
        blocks = list(self.orders[group].blocks())
        for joined, run in itertools.groupby(blocks, key=lambda b: (group, b[0]) in self.rules):
            if joined:
                yield from (
                    Piece(tuple(nodes[p] for p in block), self.rules[group, block[0]])
                    for block in run
                )
            else:
                # All of a run at once: an operator of torch may be several neighbours that no rule joined.
                unmatched = [nodes[p] for block in run for p in block]
                yield from (Piece(operator) for operator in by_operator(unmatched))
