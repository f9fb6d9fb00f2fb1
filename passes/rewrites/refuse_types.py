"""Refuse a model with values of an element type that a PEF cannot hold."""

from __future__ import annotations

from typing import Final

import onnx_ir as ir

from samba_onnx.errors import InvalidModelError
from samba_onnx.facts.dtypes import ELEMENT_TYPES
from samba_onnx.passes.rewrites.rewriting import each_graph
from samba_onnx.safety.files import printable

KNOWN: Final = frozenset(
    {
        *(row.number for row in ELEMENT_TYPES.values()),
        int(ir.DataType.STRING),
        int(ir.DataType.UNDEFINED),
    }
)
"""Types by their numbers in ONNX. What is not known yet is no type to refuse."""


class RefuseTypesPass(ir.passes.InPlacePass):
    """Find the first value of an element type that onnx defines and neither engines nor PEFs know.

    1. At the end, when types are inferred: attributes name types, too.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Refuse the first value of a type that nothing computes with.

        Raises:
            InvalidModelError: One is of such a type; the message names it.
        """
        for graph in each_graph(model):
            values = [*graph.inputs, *graph.initializers.values()]
            values += [value for node in graph for value in node.outputs]
            for value in values:
                if value.dtype is not None and int(value.dtype) not in KNOWN:
                    raise InvalidModelError(
                        f"value {printable(value.name or '')!r} is of type {value.dtype.name}, which "
                        "no engine computes with: convert it to another type in the model"
                    )
        return ir.passes.PassResult(model, modified=False)
