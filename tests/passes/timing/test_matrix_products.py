"""Sizes of products by hand, and held against the operations that the table of operators counts."""

from __future__ import annotations

import dataclasses
import math

import onnx_ir as ir
import pytest
from onnx import parser, shape_inference

from samba_onnx.passes.timing.matrix_products import (
    ProductSize,
    looked_up,
    node_dtype,
    product_size,
    renames,
    stationary,
    units_of,
)
from samba_onnx.passes.timing.node_work import node_flops
from tests.passes.planning.plan_samples import figures, parse
from tests.passes.timing.test_section_terms import TIMING


def node(text: str) -> ir.Node:
    (one,) = parse(f"g {text}").graph
    return one


QUANTIZED = "float s, uint8 z"
PRODUCTS = {
    "(float[2,4,5] a, float[2,5,6] b) => (float[2,4,6] y) { y = MatMul (a, b) }": (2, 4, 5, 6),
    "(float[2,6,9] x, float[6,1,2] w) => (float[2,6,8] y) { y = Conv<group=6> (x, w) }": (
        6,
        16,
        2,
        1,
    ),
    "(float[2,3,9] x, float[1,3,2] w) => (float[2,1,8] y) { y = Conv (x, w) }": (1, 16, 6, 1),
    "(float[2,3,4,5] a, float[2,3,5,6] b) => (float[2,3,4,6] y) { y = MatMul (a, b) }": (
        6,
        4,
        5,
        6,
    ),
    "(float[2,3,4,5] a, float[5,6] b) => (float[2,3,4,6] y) { y = MatMul (a, b) }": (1, 24, 5, 6),
    "(float[2,4,5] a, float[1,5,6] b) => (float[2,4,6] y) { y = MatMul (a, b) }": (1, 8, 5, 6),
    "(float[4,5] a, float[5,6] b) => (float[4,6] y) { y = Gemm (a, b) }": (1, 4, 5, 6),
    "(float[5,4] a, float[5,6] b) => (float[4,6] y) { y = Gemm<transA=1> (a, b) }": (1, 4, 5, 6),
    "(float[4,5] a, float[6,5] b) => (float[4,6] y) { y = Gemm<transB=1> (a, b) }": (1, 4, 5, 6),
    f"(uint8[4,5] a, uint8[5,6] b, {QUANTIZED}) => (uint8[4,6] y)"
    " { y = QLinearMatMul (a, s, z, b, s, z, s, z) }": (1, 4, 5, 6),
    "(float[2,3,9,9] x, float[5,3,2,4] w) => (float[2,5,8,6] y) { y = Conv (x, w) }": (
        1,
        96,
        24,
        5,
    ),
    "(float[2,6,9] x, float[8,3,2] w) => (float[2,8,8] y) { y = Conv<group=2> (x, w) }": (
        2,
        16,
        6,
        4,
    ),
    f"(uint8[2,3,9] x, uint8[5,3,2] w, {QUANTIZED}) => (uint8[2,5,8] y)"
    " { y = QLinearConv (x, s, z, w, s, z, s, z) }": (1, 16, 6, 5),
}


@pytest.mark.parametrize(("text", "expected"), PRODUCTS.items())
def test_a_product_does_the_operations_of_its_operator(
    text: str, expected: tuple[int, int, int, int]
) -> None:
    product = node(text)
    assert product_size(product) == ProductSize(*expected)
    scaled = expected[0] * expected[1] * expected[3] if product.op_type == "QLinearMatMul" else 0
    assert node_flops(product) == 2 * math.prod(expected) + scaled


@pytest.mark.parametrize(
    "text",
    [
        "(float[4,5] a, float[4,5] b) => (float[4,5] y) { y = Add (a, b) }",
        "(float[n,5] a, float[5,6] b) => (float[n,6] y) { y = MatMul (a, b) }",
        "(float[4,5] a, float[5] b) => (float[4] y) { y = MatMul (a, b) }",
        "(float[0,4,5] a, float[0,5,6] b) => (float[0,4,6] y) { y = MatMul (a, b) }",
        "(float[4] a, float[4,5] b) => (float[5] y) { y = MatMul (a, b) }",
        "(float[1,3,9] x, float[3,5,2] w) => (float[1,5,10] y) { y = ConvTranspose (x, w) }",
        "(float[1,3,9] x, float[k,3,2] w) => (float[1,5,8] y) { y = Conv (x, w) }",
    ],
)
def test_of_others_the_size_is_not_known(text: str) -> None:
    assert product_size(node(text)) is None


def test_granules_are_rounded_up_along_every_axis() -> None:
    assert ProductSize(3, 33, 64, 1).granules(32) == 3 * 2 * 2 * 1


def test_the_smallest_of_operands_and_result_stays_on_the_chip() -> None:
    forward = node("(float[64,8] x, float[8,4] w) => (float[64,4] y) { y = MatMul (x, w) }")
    assert stationary(forward, 64) == (forward.inputs[1], 8 * 4 * 4)
    biased = "(float[64,8] x, float[8,4] w, float[4] b) => (float[64,4] y) { y = Gemm (x, w, b) }"
    linear = node(biased)
    assert stationary(linear, 64) == (linear.inputs[1], 8 * 4 * 4)
    gradient = node("(float[8,64] x, float[64,4] g) => (float[8,4] y) { y = MatMul (x, g) }")
    assert stationary(gradient, 64) == (gradient.outputs[0], 8 * 4 * 4)
    several = node("(float[3,8,9] x, float[3,9,5] g) => (float[3,8,5] y) { y = MatMul (x, g) }")
    assert stationary(several, 64) == (several.outputs[0], 8 * 5 * 4)
    assert stationary(node("(float[4] x) => (float[4] y) { y = Relu (x) }"), 64) is None
    assert stationary(node("(float[n,8] x, float[8,4] w) => (y) { y = MatMul (x, w) }"), 64) is None


def test_a_product_needs_the_units_beside_which_its_weight_lies_twice() -> None:
    product = node("(float[64,8] x, float[8,4] w) => (float[64,4] y) { y = MatMul (x, w) }")
    timing = dataclasses.replace(TIMING, compute_units=4, product_units=2, operator_units=1)

    def needed(one: ir.Node, sram: int) -> int:
        return units_of(one, dataclasses.replace(figures(sram=sram), timing=timing))

    assert [needed(product, sram) for sram in (1024, 512, 340, 3)] == [2, 2, 4, 256]
    assert needed(node("(float[4] x) => (float[4] y) { y = Relu (x) }"), 512) == 1
    assert needed(node("(float[4] x) => (float[4] y) { y = Identity (x) }"), 512) == 0
    assert units_of(product, figures()) == 0


def test_only_lookups_read_a_few_rows() -> None:
    gather = node("(float[9,2] x, int64[3] i) => (float[3,2] y) { y = Gather (x, i) }")
    assert looked_up(gather) is gather.inputs[0]
    other = node("(float[9,2] x) => (float[2,9] y) { y = Transpose (x) }")
    assert looked_up(other) is None
    assert renames(other)
    assert not renames(gather)
    assert not renames(ir.node("Transpose", other.inputs, domain="elsewhere"))


def product(text: str) -> ir.Node:
    """Return the product of a graph, all of whose sizes are known."""
    header = '<ir_version: 10, opset_import: ["" : 20, "com.example" : 1]>'
    known = shape_inference.infer_shapes(parser.parse_model(f"{header} g {text}"))
    return next(one for one in ir.from_proto(known).graph if one.op_type in ("Gemm", "MatMul"))


ROWS_TAKEN = [
    "a = MatMul (x, w) y = Softmax (a)",
    "a = MatMul (x, w) b = Abs (a) y = LogSoftmax (b)",
    "a = MatMul (x, w) s = ReduceSum <keepdims = 1> (a, last) y = Sub (a, s)",
    "a = MatMul (x, w) y = ReduceSum <keepdims = 0> (a, last)",
    "a = MatMul (x, w) p = Reshape (a, pairs) y = ReduceSum (p, last)",
    "a = MatMul (x, w) c = Neg (a) b = Abs (a) y = Softmax (c)",
    "a = Gemm (x, w) y = Softmax <axis = 1> (a)",
]
COLUMNS = [
    "y = MatMul (x, w)",
    "a = MatMul (x, w) y = Abs (a)",
    "a = MatMul (x, w) y = Softmax <axis = 0> (a)",
    "a = MatMul (x, w) y = ReduceSum <keepdims = 1> (a, first)",
    "a = MatMul (x, w) b = Gather (a, first) y = Softmax (b)",
    # One column, and rows and a vector that have no others beside them.
    "a = MatMul (x, w) y = Slice (a, first, last, last)",
    "a = MatMul (x, w) p = Reshape (a, ones) y = ReduceSum (p, last)",
    "a = MatMul (x, w) p = Reshape (a, flat) y = ReduceSum (p, first)",
    # What operators of others do is not known.
    "a = MatMul (x, w) y = com.example.Softmax (a)",
    "a = MatMul (x, w) b = com.example.Abs (a) y = Softmax (b)",
]


def head(body: str) -> ir.Node:
    """Return a product of 64 rows and 128 columns whose first operand, of 2 KiB, is the smallest."""
    text = (
        "(float[64,8] x, float[8,128] w) => (y) <int64[1] first = {0}, int64[1] last = {1}, "
        "int64[2] pairs = {-1, 2}, int64[2] ones = {-1, 1}, int64[1] flat = {-1}>"
    )
    return product(f"{text} {{ {body} }}")


@pytest.mark.parametrize("body", ROWS_TAKEN)
def test_rows_stream_past_the_second_operand_to_what_takes_them_whole(body: str) -> None:
    one = head(body)
    assert stationary(one, 4096) == (one.inputs[1], 8 * 128 * 4)
    # All of the result is on the chip at once.
    assert stationary(one, 64 * 128 * 4) == (one.inputs[0], 64 * 8 * 4)


@pytest.mark.parametrize("body", COLUMNS)
def test_columns_stream_past_the_first_operand_otherwise(body: str) -> None:
    one = head(body)
    assert stationary(one, 4096) == (one.inputs[0], 64 * 8 * 4)


@pytest.mark.parametrize(
    "body",
    ["y = Softmax (a)", "y = LogSoftmax <axis = 2> (a)", "y = ReduceMax <keepdims = 0> (a, last)",
     "y = ReduceMax <keepdims = 1> (a, last)", "y = LayerNormalization (a, s)"],
)  # fmt: skip
def test_the_last_of_three_axes_is_that_of_rows(body: str) -> None:
    text = "(float[64,1,8] x, float[8,128] w, float[128] s) => (y) <int64[1] last = {2}>"
    one = product(f"{text} {{ a = MatMul (x, w) {body} }}")
    assert stationary(one, 4096) == (one.inputs[1], 8 * 128 * 4)


def test_a_transposed_first_operand_has_no_rows_to_stream() -> None:
    one = product(
        "(float[8,64] x, float[8,128] w) => (y) { a = Gemm <transA = 1> (x, w) y = Softmax (a) }"
    )
    assert stationary(one, 4096) == (one.inputs[0], 64 * 8 * 4)


def test_what_nobody_computes_from_anything_is_made_in_no_rows() -> None:
    one = product(
        "(float[128,8] t) => (y) { d = RandomUniform <shape = [64, 128]> () y = MatMul (d, t) }"
    )
    assert stationary(one, 4096) == (one.outputs[0], 64 * 8 * 4)


def test_rows_stream_from_what_makes_them_whole() -> None:
    """The gradient of a head: rows minus their sums, times the transposed weight."""
    text = "(float[64,128] g, float[128,8] t) => (float[64,8] y) <int64[1] last = {1}>"
    whole = product(f"{text} {{ s = ReduceSum (g, last) d = Sub (g, s) y = MatMul (d, t) }}")
    assert stationary(whole, 4096) == (whole.inputs[1], 128 * 8 * 4)
    apart = product(f"{text} {{ d = Abs (g) y = MatMul (d, t) }}")
    assert stationary(apart, 4096) == (apart.outputs[0], 64 * 8 * 4)


def test_a_head_that_fills_the_chip_needs_all_units() -> None:
    """Twice the weight of 4 KiB, in memory units of 1 KiB, in the place of twice 2 KiB."""
    timing = dataclasses.replace(TIMING, compute_units=64, product_units=1, tile_bytes=4096)
    target = dataclasses.replace(figures(sram=64 * 1024), timing=timing)
    assert units_of(head(ROWS_TAKEN[0]), target) == 8
    assert units_of(head(COLUMNS[0]), target) == 4


def test_nodes_compute_in_their_first_floating_point_type() -> None:
    gather, cast, odd, logic = parse("""
        g (bfloat16[4] t, int64[2] i, int32[2] j) => (float[2] y, int32[2] z, bool[2] b) {
            g = Gather (t, i)
            y = Cast <to = 1> (j)
            z = Add (j, j)
            b = Not (q)
        }""").graph
    assert [node_dtype(n) for n in (gather, cast, odd, logic)] == [
        "bfloat16",
        "float32",
        "int32",
        "bool",
    ]


def test_a_node_of_unknown_types_computes_in_none() -> None:
    assert node_dtype(ir.node("Neg", [ir.Value(name="x")])) == ""


def test_a_product_of_widened_bfloat16_counts_as_bfloat16() -> None:
    def value(dtype: ir.DataType) -> ir.Value:
        return ir.Value(name="v", type=ir.TensorType(dtype), shape=ir.Shape((4, 4)))

    def widened(operand: ir.Value) -> ir.Value:
        cast = ir.node("Cast", [operand], {"to": 1})
        cast.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
        return cast.outputs[0]

    narrow, wide = value(ir.DataType.BFLOAT16), value(ir.DataType.FLOAT)
    operands = [(narrow, narrow), (narrow, wide), (value(ir.DataType.FLOAT16), narrow)]
    products = [ir.node("MatMul", [widened(one), widened(other)]) for one, other in operands]
    assert [node_dtype(node) for node in products] == ["bfloat16", "float32", "float32"]
    assert node_dtype(ir.node("Add", [widened(narrow), widened(narrow)])) == "float32"
