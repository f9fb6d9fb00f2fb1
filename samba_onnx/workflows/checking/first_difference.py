"""Which operator of an exported graph is the first whose result differs from torch's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import onnx_ir as ir
import torch
from torch import fx, nn

from samba_onnx.errors import ExecutionError
from samba_onnx.export.capture.modules import Captured, PlaceholderKind
from samba_onnx.export.programs.inference import Exported
from samba_onnx.export.translation.builder import GraphBuilder
from samba_onnx.export.translation.dtypes import onnx_type
from samba_onnx.export.translation.graphs import constant, translate
from samba_onnx.runtime.engine.evaluation import evaluate
from samba_onnx.tensor import SambaTensor
from samba_onnx.workflows.checking.dropouts import without_dropouts
from samba_onnx.workflows.checking.numbers import to_array, wide_array
from samba_onnx.workflows.checking.judge import _Pair, _size
from samba_onnx.workflows.checking.running import members_of


def first_difference(
    module: nn.Module, flat: Sequence[Any], exported: Exported
) -> tuple[fx.Node, float] | None:
    """Return the first operator of a captured graph whose result differs, and by how much.

    Args:
        module: With values of all parameters.
        flat: Flat inputs.
        exported: What the module was exported to; dropouts are left out of it.

    Returns:
        The operator, and its error as a fraction of the largest number of its result; None if each
        operator by itself is near enough.
    """
    captured = without_dropouts(exported.captured)
    operands = _operands(module, flat, captured)
    truth = _Recording(captured.graph_module)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        truth.run(*(operands[p.name] for p in captured.placeholders))
    values, model = _observed(captured)
    feeds = {name: to_array(t) for name, t in operands.items() if isinstance(t, torch.Tensor)}
    try:
        results = evaluate(ir.to_proto(model), feeds)
    except ExecutionError:  # with so many outputs; the graph itself was run before
        return None
    for node, value in values.items():
        expected = truth.results.get(node)
        if expected is None:
            continue
        e = to_array(expected)
        pair = _Pair(results[value.name or ""], e, _size(wide_array(e)))
        amount = pair.error
        if not pair.is_near:
            return node, amount
    return None


def _operands(module: nn.Module, flat: Sequence[Any], captured: Captured) -> dict[str, Any]:
    """Return what the placeholders of a captured graph stand for, by name."""
    members = members_of(module)
    left: Iterable[Any] = iter(flat)
    operands = {}
    for placeholder in captured.placeholders:
        if placeholder.kind in (PlaceholderKind.INPUT, PlaceholderKind.STATIC):
            value = next(left)  # type: ignore[call-overload]
        elif placeholder.kind is PlaceholderKind.CONSTANT:
            value = captured.constants[placeholder.name]
        else:
            value = members[placeholder.qualified]
        if isinstance(value, SambaTensor):
            value = value.torch_tensor()
        operands[placeholder.name] = value.detach() if isinstance(value, torch.Tensor) else value
    return operands


class _Recording(fx.Interpreter):
    """Runs a captured graph in torch and keeps every tensor."""

    def __init__(self, graph_module: fx.GraphModule) -> None:
        super().__init__(graph_module)
        self.results: dict[fx.Node, torch.Tensor] = {}

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if isinstance(result, torch.Tensor):
            self.results[n] = result
        return result


def _observed(captured: Captured) -> tuple[dict[fx.Node, ir.Value], ir.Model]:
    """Return the graph once more, with the results of all operators as outputs."""
    builder = GraphBuilder("observed")
    inputs = {}
    for node in captured.graph_module.graph.find_nodes(op="placeholder"):
        content = node.meta.get("val")
        if node.name in captured.constants:
            inputs[node.name] = constant(builder, captured.constants[node.name])
        elif isinstance(content, torch.Tensor):
            inputs[node.name] = builder.input(node.name, onnx_type(content.dtype), content.shape)
    translated: dict[fx.Node, Any] = {}
    translate(captured.graph_module, builder, inputs, translated)
    values = {}
    for node, value in translated.items():
        if isinstance(value, ir.Value) and value.producer() is not None:
            if not value.is_graph_output():
                builder.graph.outputs.append(value)
            values[node] = value
    return values, builder.model()
