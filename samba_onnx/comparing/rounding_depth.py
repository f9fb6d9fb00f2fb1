"""How many roundings lie behind each other in a model."""

from __future__ import annotations

import onnx_ir as ir

from samba_onnx.facts.domains import is_default
from samba_onnx.facts.operators import operators
from samba_onnx.program.dataflow import subgraphs

__all__ = ["rounding_depth"]

_EXACT = operators(exact_in_bfloat16=True)
"""Operators whose results need no rounding: they move, choose or compare numbers."""


def rounding_depth(model: ir.Model) -> int:
    """Return the number of operators that round, on the longest way through a model.

    A node with subgraphs counts as the longest of them; a loop as one pass through its body, for
    nobody knows how many it will be.

    Args:
        model: Any model; its nodes are in an order in which they can be executed.
    """
    return _depth(model.graph, {})


def _depth(graph: ir.Graph, depths: dict[ir.Value, int]) -> int:
    deepest = 0
    for node in graph:
        before = max(
            (depths.get(value, 0) for value in node.inputs if value is not None), default=0
        )
        graphs = list(subgraphs(node))
        inside = max((_depth(graph, dict(depths)) for graph in graphs), default=0)
        exact = is_default(node.domain) and node.op_type in _EXACT
        depth = max(before + (not exact and not graphs), inside)
        depths.update(dict.fromkeys(node.outputs, depth))
        deepest = max(deepest, depth)
    return deepest
