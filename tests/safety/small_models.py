"""Small legitimate models, to be spoiled by the hostile ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
from onnx import TensorProto, helper

FLOAT, INT64, INT32 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32


def value(name: str, shape: Sequence[int | str | None] | None = (2, 3), kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Any:
    name = attributes.pop("name", f"{op}_node")
    return helper.make_node(op, inputs, outputs, name=name, **attributes)


def model(
    nodes: Sequence[onnx.NodeProto],
    *,
    inputs: Sequence[onnx.ValueInfoProto] | None = None,
    outputs: Sequence[onnx.ValueInfoProto] | None = None,
    initializers: Sequence[onnx.TensorProto] = (),
    functions: Sequence[onnx.FunctionProto] = (),
    opset: int = 21,
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "main",
        [value("x")] if inputs is None else inputs,
        [value("y", None)] if outputs is None else outputs,
        initializers,
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10)


def relu() -> onnx.ModelProto:
    return model([node("Relu", ["x"], ["y"])])


def with_weight(tensor: onnx.TensorProto) -> onnx.ModelProto:
    """Add an initializer called ``w`` to the input."""
    return model([node("Add", ["x", "w"], ["y"])], initializers=[tensor])


def weight(shape: Sequence[int] = (2, 3)) -> onnx.TensorProto:
    count = 1
    for size in shape:
        count *= size
    return helper.make_tensor("w", FLOAT, shape, [0.5] * count)


def integers(name: str, values: Sequence[int], kind: int = INT64) -> onnx.TensorProto:
    return helper.make_tensor(name, kind, [len(values)], values)


def branch(nodes: Sequence[onnx.NodeProto], output: str) -> onnx.GraphProto:
    return helper.make_graph(nodes, "branch", [], [value(output, None)])
