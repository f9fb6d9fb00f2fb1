"""Inputs that can hold no integers but places of an axis: with others, a node that always runs stops with an error.

Unlike index ranges, from which inputs are drawn, these are never narrower than what is legal.
"""

from __future__ import annotations

from typing import Final

import onnx_ir as ir

from samba_onnx.facts.families import REARRANGING
from samba_onnx.program.constraints import LEGAL
from samba_onnx.program.dataflow import dimensions
from samba_onnx.program.intervals import Interval

__all__ = ["legal_inputs"]

_LOOKUPS: Final = ("Gather", "GatherElements", "ScatterElements")
"""Operators that take every element of their second operand as a place along one axis."""
_WHOLE: Final = REARRANGING | {"Expand", "Tile"}
"""Operators whose result has every element of their first operand."""


def legal_inputs(graph: ir.Graph) -> dict[ir.Value, Interval]:
    """Return the intervals that inputs of a graph lie in whenever the graph has a result.

    Args:
        graph: A main graph, all of whose nodes run, with shapes; it is looked at, not changed.

    Returns:
        By input of integers; those that nothing is proved of are missing.
    """
    inputs = set(graph.inputs)
    proved: dict[ir.Value, Interval] = {}
    for node in graph:
        # A node that may not run, as in a body, proves nothing: only the main graph is looked at.
        if node.domain or node.op_type not in _LOOKUPS:
            continue
        for value, interval in LEGAL[node.op_type](node):
            origin = _origin(value)
            if origin in inputs and origin is not None and interval != Interval():
                proved[origin] = proved.get(origin, Interval()).within(interval)
    # Demands that exclude each other mean that the graph has no result at all.
    return {value: interval for value, interval in proved.items() if not interval.is_empty}


def _origin(value: ir.Value | None) -> ir.Value | None:
    """Return the value that one has all elements of."""
    while value is not None:
        node = value.producer()
        # A view without elements proves nothing of what it was made of.
        if node is None or node.domain or node.op_type not in _WHOLE or not _has_elements(value):
            return value
        value = node.inputs[0]
    return None


def _has_elements(value: ir.Value) -> bool:
    """Return whether a value is known not to be empty, as what is repeated no times is."""
    shape = dimensions(value)
    return shape is not None and all(isinstance(size, int) and size > 0 for size in shape)
