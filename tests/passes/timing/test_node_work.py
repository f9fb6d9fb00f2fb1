from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import onnx.helper
import onnx.shape_inference
import onnx_ir as ir
import pytest

from samba_onnx.facts.operators import FACTS, Facts
from samba_onnx.passes.timing.node_work import node_flops, value_bytes
from tests.passes.planning.plan_samples import parse


def inferred(text: str) -> list[ir.Node]:
    proto = onnx.shape_inference.infer_shapes(ir.to_proto(parse(text)), strict_mode=True)
    return list(ir.from_proto(proto).graph)


def flops(text: str) -> int:
    return sum(map(node_flops, inferred(text)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # 2 x batch x rows x columns x depth
        (
            "g (float[7,4,8] a, float[8,3] b) => (float[7,4,3] y) { y = MatMul (a, b) }",
            7 * 4 * 3 * 16,
        ),
        ("g (float[8] a, float[8] b) => (float y) { y = MatMul (a, b) }", 16),
        ("g (float[4,8] a, float[8,3] b) => (float[4,3] y) { y = Gemm (a, b) }", 4 * 3 * 16),
        (
            "g (float[8,4] a, float[3,8] b, float[3] c) => (float[4,3] y)"
            "{ y = Gemm <transA = 1, transB = 1> (a, b, c) }",
            4 * 3 * 17,
        ),
        # outputs x (2 x channels of a group x kernel + bias)
        (
            "g (float[2,6,8,8] x, float[4,3,3,3] w, float[4] b) => (float[2,4,8,8] y)"
            "{ y = Conv <group = 2, pads = [1,1,1,1]> (x, w, b) }",
            2 * 4 * 64 * (2 * 27 + 1),
        ),
        # every input element meets each output channel's kernel once
        (
            "g (float[2,6,8,8] x, float[6,4,2,2] w) => (float[2,4,16,16] y)"
            "{ y = ConvTranspose <strides = [2,2]> (x, w) }",
            2 * (2 * 6 * 64) * 16,
        ),
        (
            "g (float[1,2,8,8] x) => (float[1,2,4,4] y)"
            "{ y = MaxPool <kernel_shape = [2,2], strides = [2,2]> (x) }",
            2 * 16 * 4,
        ),
        (
            "g (float[2,3] x) => (float[2] y) <int64[1] a = {1}>"
            "{ y = ReduceSum <keepdims = 0> (x, a) }",
            6,
        ),
        ("g (float[2,3] x) => (float[2,3] y) { y = Softmax (x) }", 30),
        ("g (float[2,1] x, float[1,3] z) => (float[2,3] y) { y = Add (x, z) }", 6),
        ("g (float[2,3] x) => (float[3,2] y) { y = Transpose (x) }", 0),
        ("g (float[n,3] x) => (float[n,3] y) { y = Exp (x) }", 0),
        ("g (float x) => (float y) { y = Exp (x) }", 1),
        # i x j x k multiply-adds
        (
            'g (float[2,3] a, float[3,5] b) => (float[2,5] y) { y = Einsum <equation="ij,jk->ik">'
            "(a, b) }",
            2 * 2 * 3 * 5,
        ),
        (
            "g (float[4,6,2,3] a, float[1,6,3,5] b) => (float[4,6,2,5] y)"
            '{ y = Einsum <equation="...ij, ...jk -> ...ik"> (a, b) }',
            2 * 24 * 2 * 3 * 5,
        ),
        # per step and direction: four gates of 2 x hidden x (input + hidden), 24 for the state
        (
            "g (float[5,2,3] x, float[2,16,3] w, float[2,16,4] r) => (float[5,2,2,4] y)"
            '{ y = LSTM <hidden_size = 4, direction = "bidirectional"> (x, w, r) }',
            5 * 2 * 2 * 4 * (2 * 4 * 7 + 24),
        ),
    ],
)
def test_formulas(text: str, expected: int) -> None:
    assert flops(text) == expected


ATTENTION_23 = """<ir_version: 10, opset_import: ["" : 23]>
g (float[2,4,6,8] q, float[2,4,5,8] k, float[2,4,5,8] v) => (float[2,4,6,8] y) {
    y = Attention (q, k, v)
}"""


def test_attention_counts_scores_softmax_and_weighted_sum() -> None:
    (node,) = ir.from_proto(onnx.parser.parse_model(ATTENTION_23)).graph
    scores = 2 * 4 * 6 * 5
    assert node_flops(node) == scores * (2 * 8 + 5 + 2 * 8)


def test_attention_with_heads_in_the_last_dimension() -> None:
    text = ATTENTION_23.replace("2,4,6,8", "2,6,32").replace("2,4,5,8", "2,5,16")
    text = text.replace("Attention", "Attention <q_num_heads = 4, kv_num_heads = 2>")
    (node,) = ir.from_proto(onnx.parser.parse_model(text)).graph
    assert node_flops(node) == 2 * 4 * 6 * 5 * (2 * 8 + 5 + 2 * 8)


def convolution(
    name: str, channels: tuple[int, int], kernel: int, sizes: tuple[int, int]
) -> ir.Node:
    """Return a Conv as inference leaves it: channels and sizes are (input, output)."""

    def value(label: str, shape: Sequence[int]) -> ir.Value:
        kind = ir.TensorType(ir.DataType.FLOAT)
        return ir.Value(name=f"{name}.{label}", shape=ir.Shape(shape), type=kind)

    operands = [
        value("x", [1, channels[0], sizes[0], sizes[0]]),
        value("w", [channels[1], channels[0], kernel, kernel]),
    ]
    return ir.Node("", "Conv", operands, outputs=[value("y", [1, channels[1], sizes[1], sizes[1]])])


def test_resnet50_has_the_published_number_of_operations() -> None:
    # The table of "Deep Residual Learning" and torchvision's stride in the 3x3 convolution, for
    # one image of 224 x 224; torchvision states 4.09 G multiply-adds for convolutions and fc.
    nodes = [convolution("conv1", (3, 64), 7, (224, 112))]
    channels, side = 64, 56
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for block in range(blocks):
            name = f"{stage}.{block}"
            after = side // 2 if stage and not block else side
            nodes.append(convolution(f"{name}.1", (channels, width), 1, (side, side)))
            nodes.append(convolution(f"{name}.2", (width, width), 3, (side, after)))
            nodes.append(convolution(f"{name}.3", (width, 4 * width), 1, (after, after)))
            if not block:
                nodes.append(convolution(f"{name}.0", (channels, 4 * width), 1, (side, after)))
            channels, side = 4 * width, after
    head = inferred(
        "g (float[1,2048] x, float[2048,1000] w) => (float[1,1000] y) { y = MatMul (x, w) }"
    )
    assert len(nodes) == 53
    assert sum(map(node_flops, [*nodes, *head])) / 2 == pytest.approx(4.09e9, rel=0.002)


@pytest.mark.parametrize("row", FACTS.values(), ids=FACTS.keys())
def test_missing_operands_count_as_nothing(row: Facts) -> None:
    assert node_flops(ir.Node(row.domain, row.op_type, [], num_outputs=1)) == 0
    assert node_flops(ir.Node(row.domain, row.op_type, [None] * 3, num_outputs=1)) == 0


def test_an_operator_without_facts_counts_as_nothing() -> None:
    known = "g (float[2,3] x) => (float[2,3] y) { y = Exp (x) }"
    named_alike = known.replace("Exp", "com.example.Exp")
    assert (flops(known), flops(named_alike)) == (6, 0)


FLOAT = ir.TensorType(ir.DataType.FLOAT)


def value(kind: ir.TypeProtocol | None, shape: list[int | str | None] | None) -> ir.Value:
    return ir.Value(name="v", type=kind, shape=None if shape is None else ir.Shape(shape))


@pytest.mark.parametrize(
    ("kind", "shape", "expected"),
    [
        (FLOAT, [2, 3], 24),
        (FLOAT, [], 4),
        (FLOAT, [0, 3], 0),
        (FLOAT, [2, "n"], None),
        (FLOAT, [2, None], None),
        (FLOAT, None, None),
        (None, [2], None),
        (ir.TensorType(ir.DataType.UNDEFINED), [2], None),
        (ir.TensorType(ir.DataType.STRING), [2], None),
        (ir.TensorType(ir.DataType.BOOL), [3], 3),
        (ir.TensorType(ir.DataType.BFLOAT16), [3], 6),
        (ir.TensorType(ir.DataType.INT4), [3], 2),
        (ir.TensorType(ir.DataType.UINT4), [2, 2], 2),
        (ir.TensorType(ir.DataType.INT2), [5], 2),
        (ir.TensorType(ir.DataType.COMPLEX128), [2], 32),
        (ir.SequenceType(FLOAT), [2], None),
        (ir.OptionalType(FLOAT), [2], None),
        (ir.SparseTensorType(ir.DataType.FLOAT), [2], None),
    ],
)
def test_value_bytes(
    kind: ir.TypeProtocol | None, shape: list[int | str | None] | None, expected: int | None
) -> None:
    assert value_bytes(value(kind, shape)) == expected


def test_an_initializers_content_tells_type_and_shape_and_is_not_read() -> None:
    def refuse() -> ir.TensorProtocol:
        raise AssertionError("the content was read")

    lazy = ir.LazyTensor(refuse, dtype=ir.DataType.INT4, shape=ir.Shape([5]))
    assert value_bytes(ir.Value(name="w", const_value=lazy)) == 3
    packed = ir.tensor(np.zeros(5, ml_dtypes.int4))
    assert value_bytes(ir.Value(name="w", const_value=packed)) == packed.nbytes
