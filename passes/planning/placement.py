"""Where each node of a graph runs: on the RDU, or on the CPU with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from samba_onnx.passes.targets import Support, Target
from samba_onnx.passes.targets.reasons import Reason


@dataclass(frozen=True)
class Placement:
    """The home of every node of a model's main graph."""

    reasons: Mapping[ir.Node, Reason]
    """Why a node runs on the CPU; a node that is missing here runs on the RDU."""
    supports: Mapping[ir.Node, Support]
    """What the target says of every node, in the order of the graph."""

    def on_rdu(self, node: ir.Node) -> bool:
        """Return whether a node runs on the RDU."""
        return node not in self.reasons


def place(model: ir.Model, target: Target) -> Placement:
    """Give every node of the main graph a home.

    A node that carries subgraphs is placed as a whole, so nodes inside it have no entry.

    Args:
        model: A model with types and shapes inferred.
        target: The target to run on.

    Returns:
        The placement.
    """
    supports = {node: target.support(node) for node in model.graph}
    reasons = {
        node: support.reason for node, support in supports.items() if support.reason is not None
    }
    return Placement(reasons=reasons, supports=supports)
