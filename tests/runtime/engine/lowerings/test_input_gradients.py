"""Gradients of inputs as products: the graph before and after, the numbers, and what stays."""

from __future__ import annotations

import math

import onnx
import pytest
import torch
from onnx import parser

from samba_onnx.runtime.engine.lowerings.input_gradients import multiply_input_gradients
from tests.runtime.engine.lowerings.layers import Gradients, Layer, operators

INPUT = (True, False)

PRODUCTS = {
    "more positions than channels": Layer((3, 32, 6, 7), (33, 32, 3, 3), padding=(1, 1)),
    "fewer positions than channels": Layer((2, 32, 3, 3), (40, 32, 3, 3), padding=(1, 1)),
    "1x1": Layer((2, 32, 5, 4), (33, 32, 1, 1)),
    "1x1, strided": Layer((2, 32, 6, 5), (33, 32, 1, 1), (2, 2)),
    "strided": Layer((2, 32, 9, 8), (33, 32, 3, 3), (2, 2), (1, 1)),
    "dilated": Layer((3, 32, 13, 12), (34, 32, 3, 2), (2, 3), (2, 1), (2, 3)),
    "padded beyond the kernel": Layer((2, 32, 3, 3), (32, 32, 1, 2), padding=(2, 3)),
    "one axis": Layer((2, 32, 17), (33, 32, 4), [3], [2], [2], output_padding=[0]),
}


@pytest.mark.parametrize("layer", PRODUCTS.values(), ids=PRODUCTS.keys())
def test_the_plain_form_and_the_product_are_torchs_gradient(layer: Layer) -> None:
    gradients = Gradients(layer, INPUT)
    assert operators(gradients.plain).count("ConvTranspose") == 1
    assert not {*operators(gradients.plain)} - {"Reshape", "ConvTranspose"}
    after, reasons = gradients.lowered(multiply_input_gradients)
    assert reasons == {}
    assert "ConvTranspose" not in operators(after)
    assert operators(after).count("MatMul") == 1
    # Nothing is widened that has float32 already, and one product is no sum.
    assert "Cast" not in operators(after)
    assert operators(after).count("Sum") == (math.prod(layer.weight[2:]) > 1)
    onnx.checker.check_model(after, full_check=True)
    assert torch.equal(gradients.run(gradients.plain)[0], gradients.expected[0])
    assert torch.equal(gradients.run(after)[0], gradients.expected[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_are_summed_in_float32_and_rounded_once(dtype: torch.dtype) -> None:
    layer = PRODUCTS["strided"]
    exact = Gradients(layer, INPUT).expected[0]
    gradients = Gradients(layer, INPUT, dtype)
    after, reasons = gradients.lowered(multiply_input_gradients)
    assert reasons == {}
    assert "ConvTranspose" not in operators(after)
    assert operators(after).count("Cast") == 3
    assert torch.equal(gradients.run(after)[0], exact.to(dtype))


KEPT = {
    "large pictures": (Layer((2, 32, 9, 9), (32, 32, 1, 1)), "its pictures are large"),
    "few channels": (Layer((2, 31, 6, 6), (32, 31, 3, 3)), "it has few channels"),
    "groups": (Layer((2, 64, 6, 6), (64, 32, 3, 3), groups=2), "it has groups"),
}


@pytest.mark.parametrize(("layer", "reason"), KEPT.values(), ids=KEPT.keys())
def test_for_some_the_convolution_is_faster(layer: Layer, reason: str) -> None:
    gradients = Gradients(layer, INPUT)
    after, reasons = gradients.lowered(multiply_input_gradients)
    assert [*reasons.values()] == [reason]
    assert after == gradients.plain
    assert torch.equal(gradients.run(after)[0], gradients.expected[0])


def model(
    attributes: str = "strides=[1]",
    operands: str = "x, w",
    *,
    dtype: str = "float",
    size: str = "5",
    version: int = 21,
) -> onnx.ModelProto:
    """Return a transposed convolution over one axis."""
    return parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : {version}]>\n'
        f"g ({dtype}[2,32,{size}] x, {dtype}[32,32,4] w, {dtype}[32] b) => ({dtype}[2,32,8] y) "
        f"{{ y = ConvTranspose<{attributes}>({operands}) }}"
    )


OTHERS = {
    "bias": (model(operands="x, w, b"), "it has a bias"),
    "double": (model(dtype="double"), "its type is none of float32, float16 and bfloat16"),
    "named padding": (model('auto_pad="VALID"'), "its padding is named"),
    "output shape": (model("output_shape=[8]"), "its padding follows from an output shape"),
    "dynamic": (model(size="N"), "a shape is not declared"),
    "old": (model(version=13), "an old operator set"),
}


@pytest.mark.parametrize(("proto", "reason"), OTHERS.values(), ids=OTHERS.keys())
def test_what_is_not_known_for_sure_stays(proto: onnx.ModelProto, reason: str) -> None:
    before = proto.SerializeToString(deterministic=True)
    assert multiply_input_gradients(proto) == {"y": reason}
    assert proto.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize("version", [18, 21])
def test_an_operand_that_is_left_out_is_no_bias(version: int) -> None:
    proto = model(version=version)
    proto.graph.node[0].input.append("")
    assert multiply_input_gradients(proto) == {}
    assert "MatMul" in operators(proto)
