"""Convolutions in blocks: the graph before and after, the numbers, and what stays."""

from __future__ import annotations

import functools

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from samba_onnx.facts.domains import BLOCKED_DOMAIN
from samba_onnx.runtime.engine.lowerings.blocked_convolutions import block_convolutions
from samba_onnx.runtime.engine.onnxruntime.channel_blocks import channel_block
from tests.runtime.engine.lowerings.layers import Gradients, Layer, operators

BLOCK = channel_block()
CHANNELS = 2 * BLOCK

pytestmark = pytest.mark.skipif(not BLOCK, reason="onnxruntime has no kernels for blocks here")


def forward(
    layer: Layer, *, bias: bool = False, dtype: int = TensorProto.FLOAT, version: int = 20
) -> onnx.ModelProto:
    """Return the layer itself."""
    inputs = {"x": layer.data, "w": layer.weight} | ({"b": layer.weight[:1]} if bias else {})
    sizes = zip(
        layer.data[2:], layer.weight[2:], layer.stride, layer.padding, layer.dilation, strict=True
    )
    found = [(n + 2 * p - (k - 1) * d - 1) // s + 1 for n, k, s, p, d in sizes]
    node = helper.make_node(
        "Conv",
        list(inputs),
        ["y"],
        group=layer.groups,
        strides=layer.stride,
        pads=[*layer.padding] * 2,
        dilations=layer.dilation,
    )
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(name, dtype, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info("y", dtype, [layer.data[0], layer.weight[0], *found])],
    )
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", version)])


def run(proto: onnx.ModelProto) -> np.ndarray:
    generator = np.random.default_rng(0)
    feed = {
        value.name: generator.integers(
            -3, 4, [size.dim_value for size in value.type.tensor_type.shape.dim]
        ).astype(np.float32)
        for value in proto.graph.input
    }
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    result: np.ndarray = session.run(None, feed)[0]
    return result


lowered = functools.partial(block_convolutions, block=BLOCK)

LAYERS = {
    "3x3": Layer((2, CHANNELS, 9, 7), (CHANNELS, 1, 3, 3), padding=(1, 1), groups=CHANNELS),
    "uneven": Layer(
        (3, CHANNELS, 9, 8), (CHANNELS, 1, 4, 3), padding=(1, 2), dilation=(2, 1), groups=CHANNELS
    ),
    "smaller than the window": Layer(
        (2, BLOCK, 3, 2), (BLOCK, 1, 7, 7), padding=(3, 3), groups=BLOCK
    ),
    "without padding": Layer((1, BLOCK, 6, 5), (BLOCK, 1, 2, 3), groups=BLOCK),
}
STRIDED = {
    "strided": Layer((2, CHANNELS, 9, 8), (CHANNELS, 1, 5, 3), (2, 3), (2, 1), groups=CHANNELS),
    "strided along one axis": Layer((2, BLOCK, 9, 8), (BLOCK, 1, 3, 3), (1, 2), groups=BLOCK),
}
DENSE = {
    "dense": Layer((2, BLOCK, 17, 16), (CHANNELS, BLOCK, 3, 3), padding=(1, 1)),
    "dense, uneven": Layer(
        (1, CHANNELS, 20, 19), (BLOCK, CHANNELS, 2, 5), padding=(1, 0), dilation=(1, 1)
    ),
}
FLAT = {
    "one axis": Layer(
        (2, CHANNELS, 19), (CHANNELS, 1, 4), [3], [2], [2], output_padding=[0], groups=CHANNELS
    ),
    "one axis, dense": Layer(
        (1, BLOCK, 300), (CHANNELS, BLOCK, 9), [1], [0], [4], output_padding=[0]
    ),
}
ALL = LAYERS | STRIDED | DENSE | FLAT


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("layer", ALL.values(), ids=ALL.keys())
def test_a_convolution_in_blocks_is_the_convolution_exactly(layer: Layer, bias: bool) -> None:
    before = forward(layer, bias=bias)
    after = onnx.ModelProto()
    after.CopyFrom(before)
    assert lowered(after) == {}
    expected = ["ReorderInput", "Reshape", "Transpose", "Reshape", "Conv", "ReorderOutput"]
    if len(layer.data) == 3:
        expected = ["Reshape", *expected, "Reshape"]
    assert operators(after) == expected
    assert [node.domain for node in after.graph.node if node.op_type == "Conv"] == [BLOCKED_DOMAIN]
    # Sums of some small whole numbers are exact in float32, in any order.
    np.testing.assert_array_equal(run(after), run(before))


@pytest.mark.parametrize("layer", ALL.values(), ids=ALL.keys())
def test_the_gradient_of_an_input_is_torchs_exactly(layer: Layer) -> None:
    gradients = Gradients(layer, (True, False))
    assert operators(gradients.plain).count("ConvTranspose") == 1
    after, reasons = gradients.lowered(lowered)
    assert reasons == {}
    assert "ConvTranspose" not in operators(after)
    assert "Slice" in operators(after)  # which turns the window round
    assert ("Pad" in operators(after)) == (max(layer.stride) > 1)
    assert torch.equal(gradients.run(after)[0], gradients.expected[0])


def test_a_gradient_that_is_larger_than_windows_reach_is_torchs_exactly() -> None:
    """Padding of the output alone decides how far behind it begins."""
    gradients = Gradients(LAYERS["3x3"], (True, False))
    (node,) = (node for node in gradients.plain.graph.node if node.op_type == "ConvTranspose")
    pads = next(attribute for attribute in node.attribute if attribute.name == "pads")
    assert list(pads.ints) == [1, 1, 1, 1]
    after, _ = gradients.lowered(lowered)
    (convolution,) = (node for node in after.graph.node if node.op_type == "Conv")
    stated = {attribute.name: list(attribute.ints) for attribute in convolution.attribute}
    assert stated["pads"] == [1, 1, 1, 1]


KEPT = {
    "several channels of a group": (
        Layer((2, CHANNELS, 9, 7), (CHANNELS, 2, 3, 3), groups=BLOCK),
        "its groups are neither one nor as many as channels",
    ),
    "several results of a channel": (
        Layer((2, BLOCK, 9, 7), (CHANNELS, 1, 3, 3), groups=BLOCK),
        "its groups are neither one nor as many as channels",
    ),
    "no whole block": (
        Layer((2, BLOCK + 1, 9, 7), (BLOCK + 1, 1, 3, 3), groups=BLOCK + 1),
        "its channels are no whole blocks",
    ),
    "no whole block of results": (
        Layer((1, BLOCK, 18, 18), (BLOCK + 1, BLOCK, 3, 3)),
        "its channels are no whole blocks",
    ),
    "small pictures": (
        Layer((9, BLOCK, 17, 17), (BLOCK, BLOCK, 3, 3)),
        "it is quicker as a product",
    ),
    "few elements": (Layer((1, BLOCK, 20, 20), (BLOCK, BLOCK, 2, 4)), "it is quicker as a product"),
    "dense, strided": (
        Layer((1, BLOCK, 34, 34), (BLOCK, BLOCK, 3, 3), (2, 2)),
        "it is quicker as a product",
    ),
    "many channels": (
        Layer((1, BLOCK, 18, 18), (160, BLOCK, 3, 3)),
        "it is quicker as a product",
    ),
    "three axes": (
        Layer((2, BLOCK, 3, 3, 3), (BLOCK, 1, 2, 2, 2), [1] * 3, [0] * 3, [1] * 3, groups=BLOCK),
        "its shapes are not declared, or not those of pictures or sequences",
    ),
}


@pytest.mark.parametrize(("layer", "reason"), KEPT.values(), ids=KEPT.keys())
def test_other_convolutions_stay(layer: Layer, reason: str) -> None:
    proto = forward(layer)
    before = proto.SerializeToString(deterministic=True)
    assert lowered(proto) == {"y": reason}
    assert proto.SerializeToString(deterministic=True) == before


def test_a_constant_weight_is_left_to_the_optimizer() -> None:
    layer = LAYERS["3x3"]
    proto = forward(layer)
    weight = proto.graph.input.pop()
    proto.graph.initializer.append(
        numpy_helper.from_array(np.ones(layer.weight, np.float32), weight.name)
    )
    assert lowered(proto) == {"y": "its weight is constant"}


def test_other_types_stay() -> None:
    proto = forward(LAYERS["3x3"], dtype=TensorProto.DOUBLE)
    assert lowered(proto) == {"y": "its type is not float32"}


def test_named_padding_stays() -> None:
    proto = forward(Layer((2, BLOCK, 9, 7), (BLOCK, 1, 1, 1), groups=BLOCK))
    proto.graph.node[0].attribute.append(helper.make_attribute("auto_pad", "SAME_UPPER"))
    assert lowered(proto) == {"y": "its padding is named"}


@pytest.mark.parametrize("options", [{"block": 0}, {"version": 9}], ids=str)
def test_nothing_changes_without_kernels_or_operators_for_it(options: dict[str, int]) -> None:
    proto = forward(LAYERS["3x3"], version=options.get("version", 20))
    before = proto.SerializeToString(deterministic=True)
    assert block_convolutions(proto, options.get("block", BLOCK)) == {}
    assert proto.SerializeToString(deterministic=True) == before


def test_padding_beyond_the_window_stays() -> None:
    layer = Layer((2, BLOCK, 3, 3), (BLOCK, 1, 1, 2), padding=(2, 3), groups=BLOCK)
    after, reasons = Gradients(layer, (True, False)).lowered(lowered)
    assert [*reasons.values()] == ["its padding is larger than its window"]
    assert "ConvTranspose" in operators(after)
