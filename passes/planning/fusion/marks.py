"""Nodes that the user's program marks to be one section, with ``samba.directives.op_fusion``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from samba_onnx.program.dataflow import Dataflow
from samba_onnx.program.fusion_marks import read_mark


@dataclass(frozen=True)
class FusionMark:
    """One use of ``op_fusion``: a module, or lines that ran once."""

    identity: str
    """Tells uses apart that have the same name."""
    rule: str
    """What reports call it."""


def marked(flow: Dataflow) -> dict[FusionMark, list[int]]:
    """Return the nodes of each mark.

    Args:
        flow: Nodes of one group.

    Returns:
        Positions, ascending, by mark in the order of their first nodes.
    """
    positions: dict[FusionMark, list[int]] = {}
    for position, node in enumerate(flow.nodes):
        mark = read_mark(node)
        if mark is not None:
            positions.setdefault(FusionMark(*mark), []).append(position)
    return positions


def convex_parts(flow: Dataflow, positions: Sequence[int]) -> list[list[int]]:
    """Return nodes in the fewest parts of which no way leads out and back in.

    Args:
        flow: Nodes in topological order.
        positions: The nodes that are to be together, ascending.

    Returns:
        Positions by part, in an order in which the parts can run.
    """
    inside = set(positions)
    phases: list[int] = []
    for position in range(len(flow.nodes)):
        # Outside of the part, a node knows the last phase that it waits for, plus one.
        phases.append(
            # Only a way out of the part counts one more: what comes from outside, however long its way,
            # runs before.
            max(
                (
                    phases[p] + (p in inside and position not in inside)
                    for p in flow.predecessors(position)
                ),
                default=0,
            )
        )
    parts: dict[int, list[int]] = {}
    for position in positions:
        parts.setdefault(phases[position], []).append(position)
    return [parts[phase] for phase in sorted(parts)]
