"""Shapes of poolings are those that onnxruntime computes, whatever onnx infers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from samba_onnx.passes.rewrites.impossible_shapes import OperandShapes, contradiction
from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.interface import dimensions
from samba_onnx.passes.rewrites.pool_shapes import POOLS, floor_attributes

OPSETS = {"LpPool": 18, "MaxPool": 12, "AveragePool": 19}
"""Of each operator the first operator set at which it has all attributes that are looked at here."""


def pool(op_type: str, size: int, opset: int, **attributes: Any) -> onnx.ModelProto:
    """Return a model of one pooling along one axis, of two where there are two."""
    rank = len(attributes["kernel_shape"])
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x"], ["y"], **attributes)],
        "g",
        [value("x", TensorProto.FLOAT, [1, 1, *[size] * rank])],
        [value("y", TensorProto.FLOAT, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def computed(model: onnx.ModelProto) -> tuple[int, ...] | None:
    """Return the shape that onnxruntime computes; None where it refuses."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    try:
        session = ort.InferenceSession(model.SerializeToString(), options)
        (result,) = session.run(None, {"x": np.zeros(shape, np.float32)})
    except Exception:
        return None
    return tuple(result.shape)


def inferred(model: onnx.ModelProto) -> tuple[int | str | None, ...] | None:
    """Return the shape that is inferred; None where the node is refused before."""
    loaded = ir.from_proto(model)
    InferShapesPass()(loaded)
    node = loaded.graph[0]
    data = tuple(d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim)
    if contradiction(OperandShapes(node, (data,), None)) is not None:
        return None
    return dimensions(node.outputs[0].shape)


def _random_pools(op_type: str, number: int) -> Iterator[tuple[int, dict[str, Any]]]:
    random = np.random.default_rng(len(op_type))
    for _ in range(number):
        width, stride, dilation = (int(random.integers(1, most)) for most in (5, 5, 3))
        attributes = {
            "kernel_shape": [width],
            "strides": [stride],
            "ceil_mode": int(random.integers(2)),
        }
        attributes["dilations"] = [dilation]
        mode = str(random.choice(["NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]))
        attributes["auto_pad"] = mode
        if mode == "NOTSET":
            attributes["pads"] = [int(n) for n in random.integers(0, width, 2)]
        yield int(random.integers(3, 12)), attributes


@pytest.mark.parametrize("op_type", sorted(POOLS))
def test_shapes_are_those_of_onnxruntime(op_type: str) -> None:
    compared = 0
    for size, attributes in _random_pools(op_type, 300):
        model = pool(op_type, size, OPSETS[op_type], **attributes)
        shape = computed(model)
        if shape is None or 0 in shape:  # a window over all of the data and more
            continue
        assert inferred(model) in (shape, None), (size, attributes)
        compared += 1
    assert compared > 200


def test_a_last_window_in_the_padding_is_none() -> None:
    attributes = {"kernel_shape": [2, 2], "strides": [3, 3], "pads": [1, 1, 1, 1], "ceil_mode": 1}
    model = pool("MaxPool", 5, 12, **attributes)
    assert computed(model) == inferred(model) == (1, 1, 2, 2)
    shapes = onnx.shape_inference.infer_shapes(model).graph.output[0].type.tensor_type.shape
    assert [dim.dim_value for dim in shapes.dim] == [1, 1, 3, 3]  # why there is a rule


@pytest.mark.parametrize(
    ("attributes", "wanted"),
    [
        ({"kernel_shape": [3]}, None),
        ({"kernel_shape": [3], "ceil_mode": 0, "pads": [1, 1]}, None),
        ({"kernel_shape": [3], "ceil_mode": 1, "strides": [2]}, {"pads": [0, 1]}),
        ({"kernel_shape": [2], "ceil_mode": 1, "strides": [3], "pads": [1, 1]}, {"pads": [1, 1]}),
        ({"kernel_shape": [3], "ceil_mode": 1, "strides": [2], "auto_pad": "VALID"}, {"pads": [0, 1]}),
        ({"kernel_shape": [3], "ceil_mode": 1, "auto_pad": "SAME_UPPER"}, {"kernel_shape": [1], "strides": [1], "dilations": [1], "pads": [0, 0]}),
        ({"kernel_shape": [2], "strides": [2], "dilations": [2], "auto_pad": "SAME_UPPER"}, {"kernel_shape": [5], "strides": [1], "dilations": [1], "pads": [0, 0]}),
        ({"kernel_shape": [3], "ceil_mode": 1, "strides": [2, 2]}, None),
    ],
)  # fmt: skip
def test_what_inference_sees(attributes: dict[str, Any], wanted: dict[str, Any] | None) -> None:
    model = pool("MaxPool", 7, 12, **attributes)
    assert floor_attributes(ir.from_proto(model).graph[0]) == wanted


def test_sizes_that_are_not_known_are_padded_by_nobody() -> None:
    model = pool("MaxPool", 7, 12, kernel_shape=[2], dilations=[2], auto_pad="SAME_UPPER")
    node = ir.from_proto(model).graph[0]
    node.inputs[0].shape = ir.Shape([1, 1, "n"])
    assert floor_attributes(node) is None
