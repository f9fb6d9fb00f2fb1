"""Operators of torch that read and return bfloat16, and are written in float32 between two Casts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import onnx_ir as ir

from samba_onnx.passes.timing.matrix_products import is_product
from samba_onnx.program.dataflow import Dataflow
from samba_onnx.program.scopes import OPERATOR_KEY, OWN_SCOPE_KEY
from samba_onnx.program.source_location import STACK_TRACE

__all__ = ["wide_operators"]

_WIDENS: Final = (ir.DataType.BFLOAT16, ir.DataType.FLOAT)
_ORIGIN: Final = (OWN_SCOPE_KEY, STACK_TRACE, OPERATOR_KEY)


def wide_operators(flow: Dataflow) -> Iterator[list[int]]:
    """Yield the nodes of each such operator: the Casts of its operands, its arithmetic, and the Cast of its result.

    A device rounds within its operators. What the model itself converts is no part of one, nor are products.

    Args:
        flow: Nodes of one group, with inferred types.

    Yields:
        Positions, ascending; no node is in two of them.
    """
    seen: set[int] = set()
    for position, node in enumerate(flow.nodes):
        if position in seen or _conversion(node) != _WIDENS or not _origin(node)[0]:
            continue
        found = _operator(flow, position)
        seen |= found
        nodes = [flow.nodes[one] for one in found]
        # Without a Cast back it is no operator of bfloat16, but what the model itself computes in float32.
        narrows = any(_conversion(one) == _WIDENS[::-1] for one in nodes)
        computes = any(one.op_type != "Cast" for one in nodes)
        if narrows and computes and not any(map(is_product, nodes)):
            yield sorted(found)


def _operator(flow: Dataflow, first: int) -> set[int]:
    """Return positions: a Cast to float32, the arithmetic that reads it, and the Casts of its other operands."""
    found, pending = {first}, [first]
    origin = _origin(flow.nodes[first])
    while pending:
        position = pending.pop()
        near = list(flow.predecessors(position))
        # Backwards there are only Casts of other operands: arithmetic is reached forwards, from the Cast
        # that it reads.
        near = [one for one in near if _conversion(flow.nodes[one]) == _WIDENS]
        # Behind a result in bfloat16 the operator has ended, though another one of its line may go on.
        if flow.nodes[position].outputs[0].dtype != _WIDENS[0]:
            near += flow.successors(position)
        for one in near:
            if one not in found and _origin(flow.nodes[one]) == origin:
                found.add(one)
                pending.append(one)
    return found


def _conversion(node: ir.Node) -> tuple[ir.DataType | None, ir.DataType | None] | None:
    """Return from which type to which a Cast converts; None for another node."""
    if node.op_type != "Cast" or node.inputs[0] is None:
        return None
    return node.inputs[0].dtype, node.outputs[0].dtype


def _origin(node: ir.Node) -> tuple[str, ...]:
    return tuple(node.metadata_props.get(key, "") for key in _ORIGIN)
