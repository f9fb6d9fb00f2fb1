"""Gradients of weights as products: the graph before and after, the numbers, and what stays."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from onnx import parser

from samba_onnx.runtime.engine.lowerings.final_reshapes import shed_final_reshapes
from samba_onnx.runtime.engine.lowerings.weight_gradients import multiply_weight_gradients
from tests.runtime.engine.lowerings.layers import Gradients, Layer, operators

WEIGHT = (False, True)

PRODUCTS = {
    "few channels": Layer((2, 3, 9, 8), (5, 3, 3, 3), padding=(1, 1)),
    "few channels, uneven": Layer((2, 4, 13, 10), (6, 4, 3, 2), (3, 2), (0, 2), dilation=(2, 1)),
    "few positions": Layer((2, 32, 3, 2), (33, 32, 3, 3), padding=(1, 1)),
    "some positions": Layer((2, 9, 9, 8), (7, 9, 3, 3), (2, 2), (1, 1)),
    "many positions": Layer((3, 17, 14, 13), (9, 17, 3, 3), padding=(1, 1)),
    "large picture": Layer((1, 9, 48, 50), (3, 9, 3, 3), padding=(1, 1)),
    "large picture, 1x1": Layer((1, 9, 48, 50), (3, 9, 1, 1)),
    "picture smaller than the kernel": Layer((3, 12, 2, 2), (16, 12, 3, 3), padding=(1, 1)),
    "strided, the rest cut off": Layer((2, 9, 8, 6), (4, 9, 1, 1), (2, 2)),
    "dilated": Layer((2, 12, 13, 12), (11, 12, 3, 2), (2, 3), (2, 1), (2, 3)),
    "one axis": Layer((2, 9, 17), (4, 9, 4), [3], [2], [2], output_padding=[0]),
    "three axes": Layer(
        (2, 9, 5, 6, 4), (4, 9, 2, 3, 1), [1, 2, 1], [1, 1, 0], [1] * 3, output_padding=[0] * 3
    ),
    "transposed": Layer((2, 9, 5, 6), (9, 10, 3, 3), (2, 2), (1, 1), (1, 1), True, (1, 1)),
    "depthwise": Layer((2, 8, 9, 7), (8, 1, 3, 3), padding=(1, 1), groups=8),
    "depthwise, strided": Layer((2, 8, 9, 8), (8, 1, 5, 3), (2, 2), (2, 1), groups=8),
    "depthwise, transposed": Layer(
        (2, 6, 5, 4), (6, 1, 3, 3), (2, 2), (1, 1), (1, 1), True, (1, 1), 6
    ),
}


@pytest.mark.parametrize("layer", PRODUCTS.values(), ids=PRODUCTS.keys())
def test_the_plain_form_and_the_products_are_torchs_gradient(layer: Layer) -> None:
    gradients = Gradients(layer, WEIGHT)
    before = operators(gradients.plain)
    assert before.count("Conv") == 1
    assert not {*before} - {"Slice", "Transpose", "Reshape", "Conv"}
    after, reasons = gradients.lowered(multiply_weight_gradients)
    assert reasons == {}
    assert "Conv" not in operators(after)
    assert {"MatMul", "Mul"} & {*operators(after)}
    onnx.checker.check_model(after, full_check=True)
    assert torch.equal(gradients.run(gradients.plain)[0], gradients.expected[0])
    assert torch.equal(gradients.run(after)[0], gradients.expected[0])


@pytest.mark.parametrize("layer", PRODUCTS.values(), ids=PRODUCTS.keys())
def test_nothing_is_copied_to_give_a_gradient_its_last_shape(layer: Layer) -> None:
    gradients = Gradients(layer, WEIGHT)
    after, _ = gradients.lowered(multiply_weight_gradients)
    shed_final_reshapes(after, fixed_outputs=())
    makers = {name: node.op_type for node in after.graph.node for name in node.output}
    assert makers[after.graph.output[0].name] != "Reshape"
    (result,) = gradients.run(after)
    assert torch.equal(result.reshape(gradients.expected[0].shape), gradients.expected[0])


def test_nothing_is_left_of_what_laid_the_operands_out() -> None:
    gradients = Gradients(PRODUCTS["strided, the rest cut off"], WEIGHT)
    assert operators(gradients.plain) == ["Slice", "Transpose", "Transpose", "Conv", "Transpose"]
    after, _ = gradients.lowered(multiply_weight_gradients)
    # Channels-last data and channels-first gradient as rows, one product, and a weight of it.
    moves = ["Transpose"] * 3 + ["Reshape"] * 4
    assert sorted(operators(after)) == ["MatMul", *sorted([*moves, "Slice"])]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_are_summed_in_float32_and_rounded_once(dtype: torch.dtype) -> None:
    gradients = Gradients(PRODUCTS["many positions"], WEIGHT, dtype)
    exact = Gradients(PRODUCTS["many positions"], WEIGHT).expected[0]
    after, reasons = gradients.lowered(multiply_weight_gradients)
    assert reasons == {}
    assert "Conv" not in operators(after)
    assert torch.equal(gradients.run(after)[0], exact.to(dtype))


KEPT = {
    "groups of several channels": (
        Layer((2, 6, 9, 9), (9, 2, 3, 3), padding=(1, 1), groups=3),
        "it has groups of several channels",
    ),
    "depthwise, multiplied": (
        Layer((2, 4, 9, 8), (8, 1, 3, 3), padding=(1, 1), groups=4),
        "it has groups of several channels",
    ),
    "many offsets": (
        Layer((2, 3, 21, 20), (8, 3, 7, 7), (2, 2), (3, 3)),
        "it has many offsets of few channels, for which a convolution is faster",
    ),
}


@pytest.mark.parametrize(("layer", "reason"), KEPT.values(), ids=KEPT.keys())
def test_for_some_the_convolution_is_faster(layer: Layer, reason: str) -> None:
    gradients = Gradients(layer, WEIGHT)
    after, reasons = gradients.lowered(multiply_weight_gradients)
    assert [*reasons.values()] == [reason]
    assert after == gradients.plain
    assert torch.equal(gradients.run(after)[0], gradients.expected[0])


HEADER = '<ir_version: 10, opset_import: ["" : 21]>\n'
BODY = (
    " {{ p = Transpose<perm=[1,0,2]>(x) q = Transpose<perm=[1,0,2]>(w) "
    "c = Conv<{attributes}>({operands}) y = Transpose<perm=[1,0,2]>(c) }}"
)
INPUTS = "g ({dtype}[2,9,{size}] x, {dtype}[2,9,4] w, {dtype}[9] b) => ({dtype}[9,9,2] y)"
INNER = " <{dtype}[9,2,{size}] p, {dtype}[9,2,4] q, {dtype}[9,9,2] c>"


def model(
    attributes: str = "strides=[1]",
    operands: str = "p, q",
    *,
    dtype: str = "float",
    size: str = "5",
    inner: str = INNER,
) -> onnx.ModelProto:
    """Return a gradient over one axis."""
    text = INPUTS + inner + BODY
    names = {"attributes": attributes, "operands": operands, "dtype": dtype, "size": size}
    return parser.parse_model(HEADER + text.format(**names))


OTHERS = {
    "bias": (model(operands="p, q, b"), "it has a bias"),
    "double": (model(dtype="double"), "its type is none of float32, float16 and bfloat16"),
    "named padding": (model('auto_pad="VALID"'), "its padding is named"),
    "dynamic": (model(size="N"), "a shape is not declared"),
    "undeclared": (model(inner=""), "a shape is not declared"),
}


@pytest.mark.parametrize(("proto", "reason"), OTHERS.values(), ids=OTHERS.keys())
def test_what_is_not_known_for_sure_stays(proto: onnx.ModelProto, reason: str) -> None:
    before = proto.SerializeToString(deterministic=True)
    assert multiply_weight_gradients(proto) == {"c": reason}
    assert proto.SerializeToString(deterministic=True) == before


def test_a_result_that_is_read_elsewhere_stays() -> None:
    proto = model()
    proto.graph.output.add().CopyFrom(proto.graph.value_info[-1])
    reason = "nothing exchanges batch and channels of its result"
    assert multiply_weight_gradients(proto) == {"c": reason}


def test_a_convolution_of_the_model_stays() -> None:
    proto = parser.parse_model(
        HEADER + "g (float[9,2,5] x, float[9,2,4] w) => (float[9,9,2] y) <float[9,9,2] c> "
        "{ c = Conv(x, w) y = Transpose<perm=[1,0,2]>(c) }"
    )
    assert multiply_weight_gradients(proto) == {"c": "its operands are not exchanged"}


def cut(first: int, last: int, pads: str) -> onnx.ModelProto:
    """Return a gradient over one axis of which a part is cut out."""
    size = last - first
    return parser.parse_model(
        HEADER + "g (float[2,9,7] x, float[2,9,4] w) => (float[9,9,2] y) "
        f"<float[2,9,{size}] s, float[9,2,{size}] p, float[9,2,4] q, float[9,9,2] c, "
        f"int64[1] first = {{{first}}}, int64[1] last = {{{last}}}, int64[1] axis = {{2}}> "
        "{ s = Slice(x, first, last, axis) p = Transpose<perm=[1,0,2]>(s) "
        f"q = Transpose<perm=[1,0,2]>(w) c = Conv<pads={pads}>(p, q) "
        "y = Transpose<perm=[1,0,2]>(c) }"
    )


@pytest.mark.parametrize(
    ("first", "last", "pads", "kept"),
    [
        (0, 5, "[0,0]", False),
        (2, 7, "[0,0]", True),
        # What is cut off would stand where zeros belong.
        (0, 4, "[0,1]", True),
        (0, 4, "[1,0]", False),
    ],
)
def test_a_slice_is_left_out_where_no_window_reaches(
    first: int, last: int, pads: str, kept: bool
) -> None:
    before = cut(first, last, pads)
    after = cut(first, last, pads)
    assert multiply_weight_gradients(after) == {}
    assert any("s" in node.output for node in after.graph.node) == kept
    generator = np.random.default_rng(0)
    feed = {
        name: generator.integers(-3, 4, shape).astype(np.float32)
        for name, shape in (("x", (2, 9, 7)), ("w", (2, 9, 4)))
    }
    results = [
        ort.InferenceSession(proto.SerializeToString()).run(None, feed)[0]
        for proto in (before, after)
    ]
    np.testing.assert_array_equal(*results)


def test_a_slice_that_skips_elements_stays() -> None:
    """It begins at the first one, but what lies under the window is not what lies side by side."""
    before, after = (
        parser.parse_model(
            HEADER + "g (float[2,9,9] x, float[2,9,4] w) => (float[9,9,2] y) "
            "<float[2,9,5] s, float[9,2,5] p, float[9,2,4] q, float[9,9,2] c, int64[1] first = {0}, "
            "int64[1] last = {9}, int64[1] axis = {2}, int64[1] step = {2}> "
            "{ s = Slice(x, first, last, axis, step) p = Transpose<perm=[1,0,2]>(s) "
            "q = Transpose<perm=[1,0,2]>(w) c = Conv(p, q) y = Transpose<perm=[1,0,2]>(c) }"
        )
        for _ in range(2)
    )
    assert multiply_weight_gradients(after) == {}
    assert any("s" in node.output for node in after.graph.node)
    generator = np.random.default_rng(0)
    feed = {
        name: generator.integers(-3, 4, shape).astype(np.float32)
        for name, shape in (("x", (2, 9, 9)), ("w", (2, 9, 4)))
    }
    results = [
        ort.InferenceSession(proto.SerializeToString()).run(None, feed)[0]
        for proto in (before, after)
    ]
    np.testing.assert_array_equal(*results)
