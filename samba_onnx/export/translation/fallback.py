"""Single operators as torch's own exporter writes them."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir.passes.common import InlinePass
from torch import fx

from samba_onnx.export.translation.builder import GraphBuilder
from samba_onnx.export.translation.element_types import onnx_type
from samba_onnx.facts.names import joined
from samba_onnx.facts.versions import OPSET
from samba_onnx.safety.collecting import collections_deferred

_LOGGERS = ("torch.onnx", "onnxscript", "torch.export")


def borrowed(
    node: fx.Node, builder: GraphBuilder, values: Mapping[fx.Node, Any]
) -> list[ir.Value | None] | None:
    """Write one operator with ``torch.onnx.export``.

    Args:
        node: A call of an operator, with ``meta["val"]`` on it and its operands.
        builder: The graph to write it to.
        values: What was made of the operands.

    Returns:
        The results; None if torch's exporter cannot write it either, or is not installed.
    """
    operands = node.all_input_nodes
    if not all(isinstance(operand.meta["val"], torch.Tensor) for operand in operands):
        return None
    model = _exported(node, operands)
    if model is None or any(_has_graph(inner) for inner in model.graph):
        return None
    # An operand that is left out stays so.
    known: dict[ir.Value | None, ir.Value | None] = {None: None}
    known |= dict(zip(model.graph.inputs, (values[operand] for operand in operands), strict=True))
    for value in model.graph.initializers.values():
        known[value] = builder.constant(value.const_value.numpy(), value.const_value.dtype)  # type: ignore[union-attr]
    for inner in model.graph:
        _copy(inner, builder, known)
    return _typed([known[value] for value in model.graph.outputs], node)


@collections_deferred()
def _exported(node: fx.Node, operands: list[fx.Node]) -> ir.Model | None:
    module = _OneOperator(node, operands)
    examples = tuple(
        torch.ones(operand.meta["val"].shape, dtype=operand.meta["val"].dtype)
        for operand in operands
    )
    levels = {name: logging.getLogger(name).level for name in _LOGGERS}
    for name in levels:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Given a module, torch would try to capture it in several more ways: for minutes.
            captured = torch.export.export(module, examples, strict=False)
            program = torch.onnx.export(captured, dynamo=True, verbose=False, opset_version=OPSET)
    except (ImportError, torch.onnx.errors.OnnxExporterError):
        return None
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
    model: ir.Model = program.model  # type: ignore[union-attr]
    # torch writes calls of its own functions, which a single graph has no place for.
    InlinePass()(model)
    return model


class _OneOperator(torch.nn.Module):
    """A module that calls the operator of one node."""

    def __init__(self, node: fx.Node, operands: list[fx.Node]) -> None:
        super().__init__()
        self.call = (node.target, node.args, node.kwargs, operands)

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Return what the operator returns for these operands."""
        target, args, keywords, operands = self.call
        known = dict(zip(operands, tensors, strict=True))
        positional, named = fx.node.map_arg((args, keywords), lambda operand: known[operand])
        return target(*positional, **named)  # type: ignore[operator]


def _has_graph(node: ir.Node) -> bool:
    kinds = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
    return any(attribute.type in kinds for attribute in node.attributes.values())


def _copy(
    node: ir.Node, builder: GraphBuilder, known: dict[ir.Value | None, ir.Value | None]
) -> None:
    name = builder.unique(joined(builder.scope, node.op_type.lower()))
    outputs = [
        ir.Value(
            name=builder.unique(joined(name, "outputs", str(index))) if output.name else "",
            type=output.type,
            shape=output.shape,
        )
        for index, output in enumerate(node.outputs)
    ]
    twin = ir.Node(
        node.domain,
        node.op_type,
        [known[value] for value in node.inputs],
        list(node.attributes.values()),
        outputs=outputs,
        name=name,
    )
    twin.metadata_props.update(builder.metadata)
    if node.domain:
        builder.graph.opset_imports.setdefault(node.domain, 1)
    builder.graph.append(twin)
    known |= dict(zip(node.outputs, outputs, strict=True))


def _typed(values: list[ir.Value | None], node: fx.Node) -> list[ir.Value | None]:
    """State types and shapes of results as torch knows them."""
    expected = node.meta["val"]
    expected = list(expected) if isinstance(expected, tuple | list) else [expected]
    for value, one in zip(values, expected, strict=False):
        if value is not None and isinstance(one, torch.Tensor) and value.producer() is not None:
            value.type = ir.TensorType(onnx_type(one.dtype))
            value.shape = ir.Shape(map(int, one.shape))
    return values
