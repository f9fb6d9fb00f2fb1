"""Small convolutions as products: the graph before and after, the numbers, and what stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from samba_onnx.runtime.engine.lowerings.small_convolutions import multiply_small_convolutions

Array = np.ndarray
CHANNELS = 96
"""Squared and times nine, enough for a large weight."""


def model(
    data: tuple[int, ...],
    kernel: tuple[int, ...],
    result: tuple[int, ...],
    *,
    bias: bool = False,
    version: int = 20,
    **attributes: object,
) -> onnx.ModelProto:
    """Return one convolution, of as many output channels as the result has."""
    groups = attributes.get("group", 1)
    assert isinstance(groups, int)
    weight = (result[1], data[1] // groups, *kernel)
    inputs = {"x": data, "w": weight} | ({"b": (result[1],)} if bias else {})
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, result)
    node = helper.make_node("Conv", list(inputs), ["y"], **attributes)
    graph = helper.make_graph([node], "g", values, [output])
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", version)])


def operators(proto: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in proto.graph.node if node.op_type != "Constant"]


def run(proto: onnx.ModelProto, dtype: type) -> Array:
    """Return what onnxruntime computes with the same whole numbers each time."""
    generator = np.random.default_rng(0)
    feeds = {
        value.name: generator.integers(
            -3, 4, [size.dim_value for size in value.type.tensor_type.shape.dim]
        ).astype(dtype)
        for value in proto.graph.input
    }
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    result: Array = session.run(None, feeds)[0]
    return result


SMALL = {
    "3x3": ((8, CHANNELS, 2, 2), (3, 3), (8, CHANNELS, 2, 2), {"pads": [1, 1, 1, 1]}),
    "strides": (
        (4, CHANNELS, 4, 4),
        (3, 3),
        (4, 80, 2, 2),
        {"pads": [1, 1, 1, 1], "strides": [2, 2]},
    ),
    "uneven": (
        (5, CHANNELS, 3, 4),
        (3, 2),
        (5, 120, 2, 1),
        {"pads": [0, 1, 2, 0], "strides": [2, 3], "dilations": [1, 2]},
    ),
    "padded behind": ((4, CHANNELS, 2, 2), (3, 3), (4, CHANNELS, 1, 1), {"pads": [0, 0, 1, 1]}),
    "without padding": ((4, CHANNELS, 3, 3), (3, 3), (4, CHANNELS, 1, 1), {}),
    "1x1": ((4, 256, 2, 2), (1, 1), (4, 256, 2, 2), {}),
    "1-D": ((4, 160, 5), (3,), (4, 160, 3), {}),
    "3-D": ((4, 64, 2, 2, 2), (3, 3, 3), (4, 64, 1, 1, 1), {"pads": [0, 0, 1, 1, 1, 0]}),
}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", SMALL)
def test_a_product_is_the_convolution_exactly(name: str, bias: bool) -> None:
    data, kernel, result, attributes = SMALL[name]
    before = model(data, kernel, result, bias=bias, **attributes)
    after = onnx.ModelProto()
    after.CopyFrom(before)
    multiply_small_convolutions(after)
    assert "Conv" not in operators(after)
    assert operators(after).count("MatMul") == 1
    onnx.checker.check_model(after, full_check=True)
    # Sums of some thousand small whole numbers are exact in float32, in any order.
    np.testing.assert_array_equal(run(after, np.float32), run(before, np.float32))


KEPT = {
    "many positions": ((8, CHANNELS, 3, 3), (3, 3), (8, CHANNELS, 3, 3), {"pads": [1] * 4}),
    "few pictures": ((2, CHANNELS, 2, 2), (3, 3), (2, CHANNELS, 2, 2), {"pads": [1] * 4}),
    "small weight": ((8, 16, 2, 2), (3, 3), (8, 16, 2, 2), {"pads": [1] * 4}),
    "groups": ((8, 192, 2, 2), (3, 3), (8, 192, 2, 2), {"pads": [1] * 4, "group": 2}),
    "named padding": ((8, CHANNELS, 2, 2), (3, 3), (8, CHANNELS, 2, 2), {"auto_pad": "SAME_UPPER"}),
    "old": ((8, CHANNELS, 2, 2), (3, 3), (8, CHANNELS, 2, 2), {"pads": [1] * 4, "version": 9}),
}


@pytest.mark.parametrize("name", KEPT)
def test_other_convolutions_stay(name: str) -> None:
    data, kernel, result, attributes = KEPT[name]
    proto = model(data, kernel, result, **attributes)
    before = proto.SerializeToString(deterministic=True)
    multiply_small_convolutions(proto)
    assert proto.SerializeToString(deterministic=True) == before


def test_a_convolution_of_unknown_size_stays() -> None:
    proto = model((8, CHANNELS, 2, 2), (3, 3), (8, CHANNELS, 2, 2), pads=[1] * 4)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    multiply_small_convolutions(proto)
    assert operators(proto) == ["Conv"]


@pytest.mark.parametrize(
    "options", [{"version": 13}, {"auto_pad": "NOTSET"}, {"auto_pad": ""}], ids=str
)
def test_padding_that_is_said_to_be_explicit_is(options: dict[str, Any]) -> None:
    """And the oldest operator set whose operators a product is made of will do."""
    proto = model((4, CHANNELS, 2, 2), (3, 3), (4, CHANNELS, 2, 2), pads=[1] * 4, **options)
    multiply_small_convolutions(proto)
    assert "MatMul" in operators(proto)


@pytest.mark.parametrize(("operator", "domain"), [("ConvTranspose", ""), ("Conv", "other")])
def test_operators_beside_a_convolution_stay(operator: str, domain: str) -> None:
    proto = model((4, CHANNELS, 2, 2), (3, 3), (4, CHANNELS, 2, 2), pads=[1] * 4)
    other = proto.graph.node.add()
    other.CopyFrom(proto.graph.node[0])
    other.op_type, other.domain, other.output[0] = operator, domain, "z"
    proto.graph.output.add().CopyFrom(proto.graph.output[0])
    proto.graph.output[1].name = "z"
    multiply_small_convolutions(proto)
    assert (proto.graph.node[-1].op_type, proto.graph.node[-1].domain) == (operator, domain)
    assert operators(proto).count("MatMul") == 1
