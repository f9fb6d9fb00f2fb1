"""Gradients of weights as products: the graph before and after, the numbers, and what stays."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx
import onnx.compose
import onnxruntime as ort
import pytest
import torch
from onnx import parser

from samba_onnx.facts.domains import BLOCKED_DOMAIN
from samba_onnx.runtime.engine.lowerings.final_reshapes import shed_final_reshapes
from samba_onnx.runtime.engine.lowerings.weight_gradients import multiply_weight_gradients
from samba_onnx.runtime.engine.onnxruntime.channel_blocks import channel_block
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
    "large pictures": Layer((2, 9, 47, 51), (3, 9, 2, 1)),
    "two offsets": Layer((3, 17, 14, 13), (9, 17, 2, 1)),
    "padded to the size of the plane": Layer((2, 9, 9, 8), (7, 9, 2, 2), padding=(1, 1)),
    "picture smaller than the kernel": Layer((3, 12, 2, 2), (16, 12, 3, 3), padding=(1, 1)),
    "strided, the rest cut off": Layer((2, 9, 8, 6), (4, 9, 1, 1), (2, 2)),
    "dilated": Layer((2, 12, 13, 12), (11, 12, 3, 2), (2, 3), (2, 1), (2, 3)),
    "one axis": Layer((2, 9, 17), (4, 9, 4), [3], [2], [2], output_padding=[0]),
    "three axes": Layer(
        (2, 9, 5, 6, 4), (4, 9, 2, 3, 1), [1, 2, 1], [1, 1, 0], [1] * 3, output_padding=[0] * 3
    ),
    "transposed": Layer((2, 9, 5, 6), (9, 10, 3, 3), (2, 2), (1, 1), (1, 1), True, (1, 1)),
    "depthwise": Layer((2, 8, 9, 7), (8, 1, 3, 3), padding=(1, 1), groups=8),
    "depthwise, two channels": Layer((2, 2, 9, 7), (2, 1, 4, 3), padding=(1, 1), groups=2),
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


BLOCK = channel_block()
IN_BLOCKS = {
    "3x3": Layer((2, BLOCK, 9, 7), (BLOCK, 1, 3, 3), padding=(1, 1), groups=BLOCK),
    "uneven": Layer(
        (3, 2 * BLOCK, 13, 9),
        (2 * BLOCK, 1, 4, 3),
        (3, 2),
        (1, 2),
        dilation=(2, 1),
        groups=2 * BLOCK,
    ),
    "smaller than the window": Layer(
        (2, BLOCK, 3, 2), (BLOCK, 1, 7, 7), padding=(3, 3), groups=BLOCK
    ),
    "one axis": Layer(
        (3, BLOCK, 19), (BLOCK, 1, 4), [3], [2], [2], output_padding=[0], groups=BLOCK
    ),
    "transposed": Layer(
        (2, BLOCK, 5, 4), (BLOCK, 1, 3, 3), (2, 2), (1, 1), (1, 1), True, (1, 1), BLOCK
    ),
}


@pytest.mark.skipif(not BLOCK, reason="onnxruntime has no kernels for blocks here")
@pytest.mark.parametrize("layer", IN_BLOCKS.values(), ids=IN_BLOCKS.keys())
def test_a_depthwise_gradient_is_one_convolution_in_blocks(layer: Layer) -> None:
    gradients = Gradients(layer, WEIGHT)
    after, reasons = gradients.lowered(partial(multiply_weight_gradients, block=BLOCK))
    assert reasons == {}
    (convolution,) = (node for node in after.graph.node if node.op_type == "Conv")
    assert convolution.domain == BLOCKED_DOMAIN
    assert operators(after).count("ReduceSum") == 1
    assert "Mul" not in operators(after)
    assert torch.equal(gradients.run(after)[0], gradients.expected[0])


@pytest.mark.skipif(not BLOCK, reason="onnxruntime has no kernels for blocks here")
@pytest.mark.parametrize(
    "layer",
    [
        Layer((1, BLOCK, 65, 64), (BLOCK, 1, 1, 1), groups=BLOCK),
        Layer((1, BLOCK + 1, 9, 7), (BLOCK + 1, 1, 3, 3), groups=BLOCK + 1),
        Layer(
            (1, BLOCK, 3, 4, 3),
            (BLOCK, 1, 3, 3, 3),
            [1] * 3,
            [1] * 3,
            [1] * 3,
            output_padding=[0] * 3,
            groups=BLOCK,
        ),
    ],
    ids=["long sums", "no whole block", "three axes"],
)
def test_other_depthwise_gradients_are_sums_of_products(layer: Layer) -> None:
    gradients = Gradients(layer, WEIGHT)
    after, _ = gradients.lowered(partial(multiply_weight_gradients, block=BLOCK))
    assert "Conv" not in operators(after)
    assert torch.equal(gradients.run(after)[0], gradients.expected[0])


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
    version: int = 21,
    body: str = BODY,
) -> onnx.ModelProto:
    """Return a gradient over one axis."""
    text = INPUTS + inner + body
    names = {"attributes": attributes, "operands": operands, "dtype": dtype, "size": size}
    return parser.parse_model(HEADER.replace("21", str(version)) + text.format(**names))


OTHERS = {
    "bias": (model(operands="p, q, b"), "it has a bias"),
    "double": (model(dtype="double"), "its type is none of float32, float16 and bfloat16"),
    "named padding": (model('auto_pad="VALID"'), "its padding is named"),
    "dynamic": (model(size="N"), "a shape is not declared"),
    "undeclared": (model(inner=""), "a shape is not declared"),
    "undeclared under the window": (
        model(body=BODY.replace("p = ", "n = Neg(x) p = ").replace("(x) q", "(n) q")),
        "a shape is not declared",
    ),
    "old": (model(version=12), "an old operator set"),
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


@pytest.mark.parametrize("version", [13, 21])
def test_an_operand_that_is_left_out_is_no_bias(version: int) -> None:
    proto = model(version=version)
    proto.graph.node[2].input.append("")
    assert multiply_weight_gradients(proto) == {}
    assert "MatMul" in operators(proto)


def test_a_slice_from_a_place_that_is_computed_stays() -> None:
    proto = cut(0, 5, "[0,0]")
    tensor = next(tensor for tensor in proto.graph.initializer if tensor.name == "first")
    proto.graph.initializer.remove(tensor)
    place = onnx.helper.make_tensor_value_info("first", onnx.TensorProto.INT64, [1])
    proto.graph.input.append(place)
    assert multiply_weight_gradients(proto) == {}
    assert any("s" in node.output for node in proto.graph.node)


def test_nothing_of_several_gradients_is_copied_at_the_end() -> None:
    proto = model()
    second = onnx.compose.add_prefix(model(), "second ")
    merged = onnx.compose.merge_graphs(proto.graph, second.graph, io_map=[])
    proto.graph.CopyFrom(merged)
    assert multiply_weight_gradients(proto) == {}
    shed_final_reshapes(proto, fixed_outputs=())
    makers = {name: node.op_type for node in proto.graph.node for name in node.output}
    assert "Reshape" not in [makers[value.name] for value in proto.graph.output]


def test_a_graph_of_nothing_but_a_convolution_says_why_it_stays() -> None:
    proto = parser.parse_model(
        HEADER + "g (float[9,2,5] x, float[9,2,4] w) => (float[9,9,2] c) { c = Conv(x, w) }"
    )
    reason = "nothing exchanges batch and channels of its result"
    assert multiply_weight_gradients(proto) == {"c": reason}


@pytest.mark.parametrize("size", [5, 2100])
@pytest.mark.parametrize("dtype", ["float", "float16"])
def test_operands_may_lie_in_any_order(size: int, dtype: str) -> None:
    """Channels last, and batch last: of few positions, and of so many that each picture is multiplied."""
    text = HEADER + (
        f"g ({dtype}[2,{size},9] x, {dtype}[9,{size},2] w) => ({dtype}[9,9,3] y) "
        f"<{dtype}[9,2,{size}] p, {dtype}[9,2,{size}] q, {dtype}[9,9,3] c> "
        "{ p = Transpose<perm=[2,0,1]>(x) q = Transpose<perm=[0,2,1]>(w) "
        "c = Conv<pads=[1,1]>(p, q) y = Transpose<perm=[1,0,2]>(c) }"
    )
    after = parser.parse_model(text)
    assert multiply_weight_gradients(after) == {}
    assert "Conv" not in operators(after)
    generator = np.random.default_rng(0)
    x, w = (generator.integers(-1, 2, shape) for shape in ((2, size, 9), (9, size, 2)))
    feed = {"x": x, "w": w}
    (result,) = ort.InferenceSession(after.SerializeToString()).run(
        None, {n: a.astype({"float": "float32"}.get(dtype, dtype)) for n, a in feed.items()}
    )
    padded = np.pad(x, ((0, 0), (1, 1), (0, 0)))
    wanted = [np.einsum("nla,bln->ba", padded[:, k : k + size], w) for k in range(3)]
    np.testing.assert_array_equal(result, np.stack(wanted, 2))
