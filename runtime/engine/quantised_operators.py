"""What operators of quantised numbers compute, written with floats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import onnx
from onnx import helper

from samba_onnx.runtime.engine.float_graphs import CannotReadError, FloatGraph

__all__ = ["RULES"]


def _quantize(graph: FloatGraph, node: onnx.NodeProto) -> None:
    number, scale, zero = node.input[0], node.input[1], graph.operand(node, 2)
    ends = graph.ends(zero, node.output[0])
    points = graph.along(zero, number, node) if zero else ""
    graph.quantised(number, graph.along(scale, number, node), points, ends, node.output[0])


def _dequantize(graph: FloatGraph, node: onnx.NodeProto) -> None:
    number, scale, zero = node.input[0], node.input[1], graph.operand(node, 2)
    points = graph.along(zero, number, node) if zero else ""
    graph.scaled(number, graph.along(scale, number, node), points, node.output[0])


def _quantize_dynamically(graph: FloatGraph, node: onnx.NodeProto) -> None:
    """Scale and zero point as ONNX defines them, the zero point unrounded, too.

    What is zero throughout has the scale 1, as onnxruntime chooses.
    """
    number, nothing = node.input[0], graph.number(0.0)
    # ONNX widens the range until zero is in it, so that zero stays what it is.
    low = graph.add("Min", [graph.add("ReduceMin", [number], keepdims=0), nothing])
    high = graph.add("Max", [graph.add("ReduceMax", [number], keepdims=0), nothing])
    most, width = graph.number(255.0), graph.add("Sub", [high, low])
    steps = graph.add("Div", [width, most])
    empty = graph.add("Equal", [width, nothing])
    scale = graph.add("Where", [empty, graph.number(1.0), steps], node.output[1])
    zero = graph.add("Div", [graph.add("Neg", [low]), scale])
    zero = graph.add("Clip", [zero, nothing, most], node.output[2])
    graph.accumulated(zero)
    graph.quantised(number, scale, zero, (0.0, 255.0), node.output[0])


def _product(graph: FloatGraph, node: onnx.NodeProto) -> None:
    left, right = node.input[:2]
    zeros = [graph.operand(node, place) for place in (2, 3)]
    sides = [
        graph.scaled(left, "", graph.single(zeros[0]) if zeros[0] else ""),
        graph.scaled(right, "", graph.spread(zeros[1], 1, 0) if zeros[1] else ""),
    ]
    graph.add("MatMul", sides, node.output[0])
    graph.accumulated(node.output[0])


def _convolution(graph: FloatGraph, node: onnx.NodeProto) -> None:
    image, weight = node.input[:2]
    rank, zeros = graph.rank(weight), [graph.operand(node, place) for place in (2, 3)]
    sides = [
        graph.scaled(image, "", graph.single(zeros[0]) if zeros[0] else ""),
        graph.scaled(weight, "", graph.spread(zeros[1], rank, 0) if zeros[1] else ""),
    ]
    graph.add("Conv", sides, node.output[0], **_attributes(node))
    graph.accumulated(node.output[0])


def _scaled_product(graph: FloatGraph, node: onnx.NodeProto) -> None:
    left = graph.scaled(node.input[0], *map(graph.single, node.input[1:3]))
    scale, zero = (graph.spread(name, 1, 0) for name in node.input[4:6])
    product = graph.add("MatMul", [left, graph.scaled(node.input[3], scale, zero)])
    _finished(graph, node, product, 6)


def _scaled_convolution(graph: FloatGraph, node: onnx.NodeProto) -> None:
    rank = graph.rank(node.input[3])
    image_scale, image_zero = map(graph.single, node.input[1:3])
    image = graph.scaled(node.input[0], image_scale, image_zero)
    weight_scale = graph.spread(node.input[4], rank, 0)
    weight = graph.scaled(node.input[3], weight_scale, graph.spread(node.input[5], rank, 0))
    inputs = [image, weight]
    if graph.operand(node, 8):
        # The bias counts in steps of both scales multiplied, and has no zero point.
        factor = graph.add("Mul", [image_scale, graph.spread(node.input[4], 1, 0)])
        inputs.append(graph.add("Mul", [graph.as_float(node.input[8]), factor]))
    result = graph.add("Conv", inputs, **_attributes(node))
    _finished(graph, node, result, 6)


def _scaled_pair(graph: FloatGraph, node: onnx.NodeProto) -> None:
    """A sum or product of onnxruntime's: two operands with scale and zero point each."""
    sides = [
        graph.scaled(node.input[place], *map(graph.single, node.input[place + 1 : place + 3]))
        for place in (0, 3)
    ]
    result = graph.add(node.op_type.removeprefix("QLinear"), sides)
    _finished(graph, node, result, 6)


def _scaled_mean(graph: FloatGraph, node: onnx.NodeProto) -> None:
    """The mean of each channel, which onnxruntime may also have last."""
    # ONNX's operator has channels second.
    if _attributes(node).get("channels_last"):
        raise CannotReadError
    value = graph.scaled(node.input[0], *map(graph.single, node.input[1:3]))
    _finished(graph, node, graph.add("GlobalAveragePool", [value]), 3)


def _finished(graph: FloatGraph, node: onnx.NodeProto, result: str, place: int) -> None:
    """Quantise a result by the scale at a place, and the zero point behind it."""
    scale, zero = map(graph.single, node.input[place : place + 2])
    ends = graph.ends(node.input[place + 1], node.output[0])
    graph.quantised(result, scale, zero, ends, node.output[0])


RULES: Final[Mapping[str, Callable[[FloatGraph, onnx.NodeProto], None]]] = MappingProxyType(
    {
        "ConvInteger": _convolution,
        "DequantizeLinear": _dequantize,
        "DynamicQuantizeLinear": _quantize_dynamically,
        "MatMulInteger": _product,
        "QLinearAdd": _scaled_pair,
        "QLinearConv": _scaled_convolution,
        "QLinearGlobalAveragePool": _scaled_mean,
        "QLinearMatMul": _scaled_product,
        "QLinearMul": _scaled_pair,
        "QuantizeLinear": _quantize,
    }
)
"""By operator what writes it; each takes the graph and the node."""


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {item.name: helper.get_attribute_value(item) for item in node.attribute}
