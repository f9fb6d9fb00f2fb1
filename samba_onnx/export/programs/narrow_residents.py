"""Weights that a program reads in bfloat16 only, and is given in bfloat16."""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Final

import onnx_ir as ir

__all__ = ["narrow_residents"]

_WIDE: Final = (ir.DataType.FLOAT, ir.DataType.FLOAT16)


def narrow_residents(graph: ir.Graph, names: Collection[str]) -> None:
    """Give residents that nothing but Casts to bfloat16 reads that type, and leave out the Casts.

    On the device they take half the bytes then. Whoever sends them rounds them.

    Args:
        graph: A graph that trains nothing; is changed in place.
        names: Inputs that are residents, and that no run writes.
    """
    for value in graph.inputs:
        casts = [use.node for use in value.uses()]
        if value.name not in names or value.dtype not in _WIDE or not casts:
            continue
        # An output has the type that the module returns.
        if value.is_graph_output() or not all(map(_narrows, casts)):
            continue
        value.type = copy.deepcopy(value.type)  # types are shared between values
        value.dtype = ir.DataType.BFLOAT16
        for cast in dict.fromkeys(casts):
            cast.outputs[0].replace_all_uses_with(value, replace_graph_outputs=True)
            graph.remove(cast, safe=True)


def _narrows(node: ir.Node) -> bool:
    is_cast = node.op_type == "Cast" and node.outputs[0].dtype == ir.DataType.BFLOAT16
    return is_cast and not node.outputs[0].is_graph_output()
