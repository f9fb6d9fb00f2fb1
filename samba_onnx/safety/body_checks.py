"""Checks that the graphs of If, Loop and Scan take and return as much as their nodes do.

Passes and runtimes pair what stands outside with what stands inside, by position.
"""

from __future__ import annotations

from typing import Final

import onnx

from samba_onnx.errors import InvalidModelError

__all__ = ["check_bodies"]

_BODIES: Final = {"If": ("then_branch", "else_branch"), "Loop": ("body",), "Scan": ("body",)}
_COUNTS: Final = ("num_scan_inputs",)
_COUNT_AND_CONDITION: Final = 2
"""Operands of a Loop, and inputs of its body, before the first state."""
_LENGTHS_GONE: Final = 9
"""Version of the operator set since which a Scan has no lengths of sequences as its first operand."""


def check_bodies(node: onnx.NodeProto, version: int) -> None:
    """Check the number of inputs and outputs of a node's graphs.

    Args:
        node: Any node of the default domain that fits its definition.
        version: The version of the operator set.

    Raises:
        InvalidModelError: A graph takes or returns less or more than its node does.
    """
    names = _BODIES.get(node.op_type, ())
    attributes = {attribute.name: attribute for attribute in node.attribute}
    # Of a function that takes its bodies as attributes nothing is known before it is called.
    if not names or any(
        attributes[name].ref_attr_name for name in (*names, *_COUNTS) if name in attributes
    ):
        return
    given, returned = len(node.input), len(node.output)
    states = 0
    if node.op_type == "If":
        # Branches of an If take nothing: they see the values around them.
        given = 0
    elif node.op_type == "Loop":
        states = max(given - _COUNT_AND_CONDITION, 0)
        # A body is given both though the node leaves them out, and returns whether the loop goes on.
        given, states, returned = states + _COUNT_AND_CONDITION, states + 1, returned + 1
    else:
        given -= 1 if version < _LENGTHS_GONE else 0
        states = given - attributes["num_scan_inputs"].i
        if states < 0:
            raise InvalidModelError(f"it scans more inputs than the {given} that it has")
    for name in names:
        _check(name, attributes[name].g, given, max(returned, states))


def _check(name: str, graph: onnx.GraphProto, inputs: int, outputs: int) -> None:
    # Up to IR version 3 initializers stood among the inputs.
    own = {tensor.name for tensor in graph.initializer}
    taken = sum(value.name not in own for value in graph.input)
    if taken != inputs:
        raise InvalidModelError(f"its {name} takes {taken} inputs, and the node gives it {inputs}")
    if len(graph.output) != outputs:
        raise InvalidModelError(
            f"its {name} returns {len(graph.output)} values, and the node takes {outputs}"
        )
