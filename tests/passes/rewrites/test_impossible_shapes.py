"""Nodes that no values could make work are refused, and those that onnxruntime runs are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

import samba_onnx
from samba_onnx.errors import InvalidModelError
from samba_onnx.passes.rewrites.impossible_shapes import (
    RULES,
    OperandShapes,
    Sizes,
    contradiction,
)
from tests.versions import needs

HEADER = '<ir_version: 8, opset_import: ["": 17]>\n'

IMPOSSIBLE = {
    "Conv: kernel over the input": "(float[1,2,1,1] x, float[3,2,3,3] w) { y = Conv(x, w) }",
    "Conv: strides hide nothing": (
        "(float[1,2,2,2] x, float[3,2,3,3] w) { y = Conv<strides=[3,3]>(x, w) }"
    ),
    "Conv: dilated": "(float[1,2,4,4] x, float[3,2,3,3] w) { y = Conv<dilations=[2,2]>(x, w) }",
    "Conv: padded too little": (
        "(float[1,2,1,1] x, float[3,2,5,5] w) { y = Conv<pads=[1,1,1,1]>(x, w) }"
    ),
    "Conv: valid": '(float[1,2,2,2] x, float[3,2,3,3] w) { y = Conv<auto_pad="VALID">(x, w) }',
    "Conv: channels": "(float[1,2,5,5] x, float[3,4,3,3] w) { y = Conv(x, w) }",
    "Conv: channels of groups": "(float[1,4,5,5] x, float[4,4,3,3] w) { y = Conv<group=2>(x, w) }",
    "Conv: filters of groups": "(float[1,4,5,5] x, float[3,2,3,3] w) { y = Conv<group=2>(x, w) }",
    "Conv: kernel_shape": "(float[1,2,5,5] x, float[3,2,3,3] w) { y = Conv<kernel_shape=[1,1]>(x, w) }",
    "Conv: rank": "(float[1,2,5] x, float[3,2,3,3] w) { y = Conv(x, w) }",
    "Conv: bias": "(float[1,2,5,5] x, float[3,2,3,3] w, float[2] b) { y = Conv(x, w, b) }",
    "ConvTranspose: channels": "(float[1,2,5,5] x, float[3,4,3,3] w) { y = ConvTranspose(x, w) }",
    "ConvTranspose: bias": (
        "(float[1,2,5,5] x, float[2,4,3,3] w, float[3] b) { y = ConvTranspose(x, w, b) }"
    ),
    "ConvInteger: channels": "(uint8[1,2,5,5] x, uint8[3,4,3,3] w) { y = ConvInteger(x, w) }",
    "MaxPool: window": "(float[1,2,1,1] x) { y = MaxPool<kernel_shape=[3,3]>(x) }",
    "AveragePool: window": "(float[1,2,1,1] x) { y = AveragePool<kernel_shape=[3,3]>(x) }",
    "LpPool: window": "(float[1,2,1,1] x) { y = LpPool<kernel_shape=[3,3]>(x) }",
    "Resize: scale": "(float[1,1,2,2] x) <float[4] s={1,1,-2,1}> { y = Resize(x, , s) }",
    "Gemm: inner": "(float[1,2] x, float[3,4] w) { y = Gemm(x, w) }",
    "Gemm: inner, turned": "(float[2,1] x, float[4,3] w) { y = Gemm<transA=1,transB=1>(x, w) }",
    "Gemm: bias": "(float[2,2] x, float[2,4] w, float[3] c) { y = Gemm(x, w, c) }",
    "Gemm: bias with rows": "(float[1,2] x, float[2,4] w, float[2,4] c) { y = Gemm(x, w, c) }",
    "MatMul: inner": "(float[1,2] x, float[3,4] w) { y = MatMul(x, w) }",
    "MatMul: batch": "(float[2,3,4] x, float[3,4,5] w) { y = MatMul(x, w) }",
    "Reshape: elements": "(float[2,3] x) <int64[2] s={2,4}> { y = Reshape(x, s) }",
    "Reshape: rest": "(float[2,3] x) <int64[2] s={4,-1}> { y = Reshape(x, s) }",
    "Reshape: copied size": "(float[2,3] x) <int64[2] s={0,4}> { y = Reshape(x, s) }",
    "BatchNormalization: scale": (
        "(float[2,3,4] x, float[2] s, float[3] b) { y = BatchNormalization(x, s, b, b, b) }"
    ),
    "InstanceNormalization: scale": (
        "(float[2,3,4] x, float[2] s, float[3] b) { y = InstanceNormalization(x, s, b) }"
    ),
    "LayerNormalization: scale": "(float[2,3,4] x, float[3] s) { y = LayerNormalization(x, s) }",
    "Add: broadcast": "(float[2,3] x, float[2] s) { y = Add(x, s) }",
    "Where: broadcast": "(float[2,3] x, float[2] s) <bool c={1}> { y = Where(c, x, s) }",
    "Sum: broadcast": "(float[2,3] x, float[2] s) { y = Sum(x, s) }",
    "PRelu: slope": "(float[2,3] x, float[2] s) { y = PRelu(x, s) }",
    "Concat: sizes": "(float[2,3] x, float[3,3] s) { y = Concat<axis=1>(x, s) }",
    "Concat: ranks": "(float[2,3] x, float[3] s) { y = Concat<axis=0>(x, s) }",
    "Split: sum": "(float[2,3] x) <int64[2] s={1,3}> { y, z = Split<axis=1>(x, s) }",
    "Squeeze: size": "(float[2,3] x) <int64[1] s={1}> { y = Squeeze(x, s) }",
    "Expand: broadcast": "(float[2,3] x) <int64[2] s={2,2}> { y = Expand(x, s) }",
    "Transpose: order": "(float[2,3] x) { y = Transpose<perm=[0,1,2]>(x) }",
    "Gather: index": "(float[2,3] x) <int64[1] s={5}> { y = Gather(x, s) }",
    "Gather: index below": "(float[2,3] x) <int64[1] s={-4}> { y = Gather<axis=1>(x, s) }",
    "DepthToSpace: channels": "(float[1,3,2,2] x) { y = DepthToSpace<blocksize=2>(x) }",
    "SpaceToDepth: height": "(float[1,3,3,2] x) { y = SpaceToDepth<blocksize=2>(x) }",
    "Tile: repeats": "(float[2,3] x) <int64[1] s={2}> { y = Tile(x, s) }",
    "Pad: pads": "(float[2,3] x) <int64[2] s={2,2}> { y = Pad(x, s) }",
    "LSTM: W": "(float[5,1,3] x, float[1,8,4] w, float[1,8,2] r) { y = LSTM<hidden_size=2>(x, w, r) }",
    "GRU: R": "(float[5,1,3] x, float[1,6,3] w, float[1,6,3] r) { y = GRU<hidden_size=2>(x, w, r) }",
    "RNN: B": (
        "(float[5,1,3] x, float[1,2,3] w, float[1,2,2] r, float[1,3] b) "
        "{ y = RNN<hidden_size=2>(x, w, r, b) }"
    ),
    "Einsum: letters": '(float[2,3] x, float[4,5] w) { y = Einsum<equation="ij,jk->ik">(x, w) }',
    "Flatten: axis": "(float[2,3] x) { y = Flatten<axis=3>(x) }",
    "Softmax: axis": "(float[2,3] x) { y = Softmax<axis=3>(x) }",
    "TopK: k": "(float[2,3] x) <int64[1] k={5}> { y, z = TopK(x, k) }",
    "ScatterND: coordinates": (
        "(float[2,3] x, float[4] u) <int64[1,3] i={0,0,0}> { y = ScatterND(x, i, u) }"
    ),
    "Unsqueeze: twice": "(float[2,3] x) <int64[2] s={1,1}> { y = Unsqueeze(x, s) }",
}
"""Operator, what is wrong, and a graph with inputs and nodes."""

POSSIBLE = {
    "kernel as large as the input": "(float[1,2,3,3] x, float[3,2,3,3] w) { y = Conv(x, w) }",
    "padding makes room": "(float[1,2,1,1] x, float[3,2,3,3] w) { y = Conv<pads=[1,1,1,1]>(x, w) }",
    "padding is found": '(float[1,2,1,1] x, float[3,2,3,3] w) { y = Conv<auto_pad="SAME_UPPER">(x, w) }',
    "groups": "(float[1,4,5,5] x, float[6,2,3,3] w, float[6] b) { y = Conv<group=2>(x, w, b) }",
    "strides hide a large window": "(float[1,2,1,1] x) { y = MaxPool<kernel_shape=[3,3],strides=[3,3]>(x) }",
    "groups, transposed": (
        "(float[1,4,5,5] x, float[4,3,3,3] w, float[6] b) { y = ConvTranspose<group=2>(x, w, b) }"
    ),
    "turned": "(float[3,2] x, float[4,3] w) { y = Gemm<transA=1,transB=1>(x, w) }",
    "column bias": "(float[2,3] x, float[3,4] w, float[2,1] c) { y = Gemm(x, w, c) }",
    "scalar bias": "(float[2,3] x, float[3,4] w, float c) { y = Gemm(x, w, c) }",
    "rest": "(float[2,3] x) <int64[2] s={3,-1}> { y = Reshape(x, s) }",
    "copied size": "(float[2,3] x) <int64[2] s={0,3}> { y = Reshape(x, s) }",
    "nothing": "(float[0,3] x) <int64[2] s={3,0}> { y = Reshape<allowzero=1>(x, s) }",
    "scale of two axes": "(float[2,3,4] x, float[3,4] s) { y = LayerNormalization<axis=1>(x, s) }",
    "slope of channels": "(float[2,3,4] x, float[3,1] s) { y = PRelu(x, s) }",
    "last element": "(float[2,3] x) <int64[2] s={2,-3}> { y = Gather<axis=1>(x, s) }",
    "both directions": (
        "(float[5,1,3] x, float[2,8,3] w, float[2,8,2] r, float[2,16] b) "
        '{ y = LSTM<hidden_size=2,direction="bidirectional">(x, w, r, b) }'
    ),
    "letters of size 1": '(float[2,3] x, float[3,5] w) { y = Einsum<equation="ij,jk->ik">(x, w) }',
    "blocks": "(float[1,8,2,2] x) { y = DepthToSpace<blocksize=2>(x) }",
}
"""What is close to impossible, and runs."""


def model(text: str) -> onnx.ModelProto:
    """Return a model whose last node is named ``culprit``; outputs are typed, without shapes."""
    head, _, body = text.partition("{")
    declared, _, initializers = head.partition(")")
    outputs = "y, z" if "y, z" in body else "y"
    made: onnx.ModelProto = onnx.parser.parse_model(
        f"{HEADER}g {declared}) => ({outputs}) {initializers} {{{body}"
    )
    node = made.graph.node[-1]
    node.name = "culprit"
    for value in made.graph.output:
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
        if node.op_type == "ConvInteger":
            value.type.tensor_type.elem_type = onnx.TensorProto.INT32
        if (node.op_type, value.name) == ("TopK", "z"):
            value.type.tensor_type.elem_type = onnx.TensorProto.INT64
    return made


def run(given: onnx.ModelProto) -> None:
    """Run a model on ones."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(given.SerializeToString(), options)
    feed: dict[str, Any] = {
        value.name: np.ones(value.shape, np.uint8 if "uint8" in value.type else np.float32)
        for value in session.get_inputs()
    }
    session.run(None, feed)


OLDER_ONNX_ACCEPTS = ("Conv: rank", "Conv: bias", "ConvTranspose: bias", "LSTM: W")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(text, id=name, marks=[needs("onnx", "1.23")] * (name in OLDER_ONNX_ACCEPTS))
        for name, text in IMPOSSIBLE.items()
    ],
)
def test_the_impossible_is_refused_by_its_name(text: str) -> None:
    given = model(text)
    with pytest.raises(Exception, match=r"ONNXRuntimeError"):
        run(given)
    with pytest.raises(InvalidModelError, match=r"'culprit'.*cannot be computed: ") as caught:
        samba_onnx.analyze(given)
    assert caught.value.node == "culprit"
    assert caught.value.operator == given.graph.node[-1].op_type
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", POSSIBLE.values(), ids=POSSIBLE)
def test_what_onnxruntime_runs_is_not_refused(text: str) -> None:
    given = model(text)
    run(given)
    samba_onnx.analyze(given)


def test_every_rule_has_an_example() -> None:
    shown = {name.partition(":")[0] for name in IMPOSSIBLE}
    # The operands of the one are those of Conv with scales between, the others are of other operator sets than
    # these examples, and have tests of their own.
    assert set(RULES) - shown == {"GroupNormalization", "QLinearConv", "Upsample"}


@pytest.mark.parametrize(
    ("opset", "text", "reason"),
    [
        (18, "(float[2,6,4] x, float[4] s, float[3] b) { y = GroupNormalization<num_groups=3>(x, s, b) }", "operand 1 has 4 elements for 3 groups"),
        (21, "(float[2,6,4] x, float[6] s, float[3] b) { y = GroupNormalization<num_groups=3>(x, s, b) }", "operand 2 has 3 elements for 6 channels"),
        (18, "(float[2,7,4] x, float[3] s, float[3] b) { y = GroupNormalization<num_groups=3>(x, s, b) }", "7 channels, which 3 groups cannot share"),
        (9, "(float[1,1,2,2] x) <float[4] s={1,1,-2,1}> { y = Upsample(x, s) }", "its scales have -2.0"),
        (7, "(float[1,1,2,2] x) { y = Upsample<scales=[1.0,1.0,0.0,1.0]>(x) }", "its scales have 0.0"),
    ],
)  # fmt: skip
def test_the_impossible_of_other_operator_sets(opset: int, text: str, reason: str) -> None:
    given = model(text)
    given.opset_import[0].version = opset
    with pytest.raises(Exception, match=r"ONNXRuntimeError"):
        run(given)
    with pytest.raises(InvalidModelError, match=f"'culprit'.*cannot be computed: .*{reason}"):
        samba_onnx.analyze(given)


IMAGE, KERNEL = (1, 2, 5, 5), (3, 2, 3, 3)
SMALL = "its kernel reaches over 3 elements of an input of 2, padding included"

REASONS: list[tuple[str, dict[str, Any], list[Sizes | None], str | None]] = [
    ("Conv", {}, [IMAGE, (3, 4, 3, 3)], "its input has 2 channels, its weight is for 4 (4 in each of 1 groups)"),
    ("Conv", {"group": 2}, [IMAGE, (4, 4, 3, 3)], "its input has 2 channels, its weight is for 8 (4 in each of 2 groups)"),
    ("Conv", {"group": 2}, [(1, 4, 5, 5), KERNEL], "its weight has 3 filters, which 2 groups cannot share"),
    ("Conv", {"group": 2}, [(1, 4, 5, 5), (4, 2, 3, 3)], None),
    ("Conv", {"group": 0}, [(1, 0, 5, 5), KERNEL], None),
    ("Conv", {}, [(1, None, 5, 5), (3, 4, 3, 3)], None),
    ("Conv", {}, [IMAGE, (3, None, 3, 3)], None),
    ("Conv", {"group": 2}, [(1, None, 5, 5), (None, 2, 3, 3)], None),
    ("Conv", {}, [None, KERNEL], None),
    ("Conv", {}, [IMAGE, None], None),
    ("Conv", {}, [IMAGE, (9, 9)], None),
    ("Conv", {}, [(1, 2, 2), (3, 2, 3)], SMALL),
    ("Conv", {}, [IMAGE, KERNEL, (2,)], "its bias has 2 elements for 3 filters"),
    ("Conv", {}, [IMAGE, KERNEL, (None,)], None),
    ("Conv", {}, [IMAGE, (None, 2, 3, 3), (2,)], None),
    ("Conv", {}, [IMAGE, KERNEL, (1, 2)], None),
    ("ConvInteger", {}, [IMAGE, KERNEL, (2,)], None),
    ("QLinearConv", {}, [IMAGE, (), (), KERNEL, (), (), (), (), (2,)], "its bias has 2 elements for 3 filters"),
    ("QLinearConv", {}, [IMAGE, (), (), (3, 4, 3, 3)], "its input has 2 channels, its weight is for 4 (4 in each of 1 groups)"),
    ("Conv", {"kernel_shape": [1, 3]}, [IMAGE, KERNEL], "its kernel_shape is [1, 3], its weight's is [3, 3]"),
    ("Conv", {"kernel_shape": [3, 1]}, [IMAGE, (3, 2, None, 3)], "its kernel_shape is [3, 1], its weight's is [?, 3]"),
    ("Conv", {"kernel_shape": [2, 3]}, [IMAGE, (3, 2, None, 3)], None),
    ("Conv", {}, [(1, 2, 2, 5), KERNEL], SMALL),
    ("Conv", {}, [(1, 2, 5, 2), KERNEL], SMALL),
    ("Conv", {"pads": [0, 1, 0, 0]}, [(1, 2, 3, 1), KERNEL], SMALL),
    ("Conv", {"pads": [0, 0, 0, 1]}, [(1, 2, 3, 1), KERNEL], SMALL),
    ("Conv", {"pads": [1, 0, 0, 0]}, [(1, 2, 3, 2), KERNEL], SMALL),
    ("Conv", {"pads": [0, 1, 0, 1]}, [(1, 2, 3, 1), KERNEL], None),
    ("Conv", {"pads": [1, 1]}, [(1, 2, 2, 2), KERNEL], None),
    ("Conv", {"strides": [1]}, [(1, 2, 2, 2), KERNEL], None),
    ("Conv", {"dilations": [1]}, [(1, 2, 2, 2), KERNEL], None),
    ("Conv", {"strides": [0, 1]}, [(1, 2, 2, 5), KERNEL], None),
    ("Conv", {"strides": [1, 0]}, [(1, 2, 2, 5), KERNEL], SMALL),
    ("Conv", {"dilations": [2, 1]}, [IMAGE, KERNEL], None),
    ("Conv", {"dilations": [1, 3]}, [IMAGE, KERNEL], "its kernel reaches over 7 elements of an input of 5, padding included"),
    ("Conv", {"auto_pad": "NOTSET", "pads": [0, 0, 0, 0]}, [(1, 2, 2, 2), KERNEL], SMALL),
    ("Conv", {"auto_pad": "NOTSET", "pads": [1, 1, 1, 1]}, [(1, 2, 2, 2), KERNEL], None),
    ("Conv", {"auto_pad": "VALID", "pads": [1, 1, 1, 1]}, [(1, 2, 2, 2), KERNEL], SMALL),
    ("Conv", {"auto_pad": "SAME_LOWER"}, [(1, 2, 2, 2), KERNEL], None),
    ("Conv", {}, [(1, 2, None, 2), KERNEL], SMALL),
    ("Conv", {}, [(1, 2, None, 5), KERNEL], None),
    ("Conv", {}, [(1, 2, 2, 5), (3, 2, None, 3)], None),
    ("Conv", {}, [(0, 2, 2, 2), KERNEL], None),
    ("Conv", {}, [(1, 2, 2), KERNEL], None),
    ("ConvTranspose", {}, [IMAGE, (3, 4, 3, 3)], "its input has 2 channels, its weight is for 3"),
    ("ConvTranspose", {}, [(1, None, 5, 5), (3, 4, 3, 3)], None),
    ("ConvTranspose", {}, [IMAGE, (None, 4, 3, 3)], None),
    ("ConvTranspose", {"group": 2}, [IMAGE, (2, 4, 3, 3), (4,)], "its bias has 4 elements for 8 filters"),
    ("ConvTranspose", {}, [IMAGE, (2, 4, 3, 3), (4,)], None),
    ("ConvTranspose", {}, [IMAGE, (2, None, 3, 3), (4,)], None),
    ("ConvTranspose", {}, [IMAGE, (2, 4)], None),
    ("ConvTranspose", {}, [(1, 3, 2), (2, 4, 3)], "its input has 3 channels, its weight is for 2"),
    ("ConvTranspose", {"kernel_shape": [1, 3]}, [IMAGE, (2, 4, 3, 3)], "its kernel_shape is [1, 3], its weight's is [3, 3]"),
    ("MaxPool", {"kernel_shape": [3, 3]}, [(1, 2, 1, 1)], "its window reaches over 3 elements of an input of 1, padding included"),
    ("MaxPool", {"kernel_shape": [3, 3]}, [(1, 2, 2, 2)], None),
    ("MaxPool", {"kernel_shape": [5], "strides": [2]}, [(1, 2, 1)], "its window reaches over 5 elements of an input of 1, padding included"),
    ("MaxPool", {"kernel_shape": [5], "strides": [2]}, [(1, 2, 2)], None),
    ("Gemm", {}, [(1, 2), (3, 4)], "it multiplies [1, 2] by [3, 4]"),
    ("Gemm", {"transA": 1}, [(2, 1), (3, 4)], "it multiplies [1, 2] by [3, 4]"),
    ("Gemm", {"transB": 1}, [(1, 2), (4, 3)], "it multiplies [1, 2] by [3, 4]"),
    ("Gemm", {}, [(1, None), (3, 4)], None),
    ("Gemm", {}, [(1, 2), (None, 4)], None),
    ("Gemm", {}, [(1, 2), (3, 4, 1)], None),
    ("Gemm", {}, [None, (3, 4)], None),
    ("Gemm", {}, [(1, 2), None], None),
    ("Gemm", {}, [(1, 2), (2, 4), (3,)], "its third operand, [3], does not spread over [1, 4]"),
    ("Gemm", {}, [(1, 2), (2, 4), (1, 1, 4)], None),
    ("Gemm", {}, [(1, 2), (2, 4), (2, 1, 4)], "its third operand, [2, 1, 4], does not spread over [1, 4]"),
    ("Gemm", {}, [(1, 2), (2, 4), (None, 1, 4)], None),
    ("Gemm", {}, [(1, 2), (2, None), (7,)], None),
    ("Gemm", {}, [(1, 2), (2, 4), (None,)], None),
    ("BatchNormalization", {}, [(2, 3, 4), (3,), (3,), (3,), (2,)], "its operand 4 has 2 elements for 3 channels"),
    ("BatchNormalization", {}, [(2, 3, 4), (3,), (3,), (2,), (3,)], "its operand 3 has 2 elements for 3 channels"),
    ("BatchNormalization", {}, [(2, 3, 4), (3,), (2,), (3,), (3,)], "its operand 2 has 2 elements for 3 channels"),
    ("BatchNormalization", {}, [(2,), (3,), (2,), (3,), (3,)], None),
    ("InstanceNormalization", {}, [(2, 3, 4), (3,), (2,)], "its operand 2 has 2 elements for 3 channels"),
    ("LayerNormalization", {}, [(2, 3, 4), (3,)], "operand 1, [3], does not spread over [2, 3, 4]"),
    ("LayerNormalization", {}, [(2, 3, 4), (4,), (3,)], "operand 2, [3], does not spread over [2, 3, 4]"),
    ("LayerNormalization", {}, [None, (4,), (3,)], None),
    ("PRelu", {}, [(2, 3), (2,)], "its slope, [2], does not spread over [2, 3]"),
    ("PRelu", {}, [None, (2,)], None),
    ("PRelu", {}, [(2, 3), None], None),
    ("LSTM", {"hidden_size": 2}, [(5, 1, 3), (1, 8, 4)], "its operand W is [1, 8, 4], expected [?, 8, 3]"),
    ("GRU", {"hidden_size": 2}, [(5, 1, 3), (1, 8, 3)], "its operand W is [1, 8, 3], expected [?, 6, 3]"),
    ("RNN", {}, [(5, 1, 3), (1, 2, 3), (1, 3, 3)], "its operand W is [1, 2, 3], expected [?, 3, 3]"),
    ("RNN", {"hidden_size": 2}, [(5, 1, 3), (1, 2, 3), (1, 2, 3)], "its operand R is [1, 2, 3], expected [?, 2, 2]"),
    ("RNN", {"hidden_size": 2}, [(5, 1, 3), (1, 2, 3), (1, 2, 2), (1, 3)], "its operand B is [1, 3], expected [?, 4]"),
    ("LSTM", {"hidden_size": 2}, [(5, 1, 3), (1, 8, 3), (1, 8, 2), (1, 16)], None),
    ("LSTM", {"hidden_size": 2}, [(5, 1, None), (1, None, 7), None], None),
    ("LSTM", {"hidden_size": 2}, [(5, 1, 3), (8, 3)], "its operand W is [8, 3], expected [?, 8, 3]"),
    ("RNN", {}, [(5, 1, 3), (1, 2, 4), None], None),
    ("DepthToSpace", {"blocksize": 2}, [(1, 6, 4, 4)], "6 of [1, 6, 4, 4] is no multiple of 4"),
    ("DepthToSpace", {"blocksize": 2}, [(1, 8, 3, 3)], None),
    ("DepthToSpace", {"blocksize": 2}, [(1, None, 3, 3)], None),
    ("DepthToSpace", {"blocksize": 2}, [(6, 4, 4)], None),
    ("DepthToSpace", {"blocksize": 0}, [(1, 6, 4, 4)], None),
    ("DepthToSpace", {"blocksize": 2}, [None], None),
    ("SpaceToDepth", {"blocksize": 2}, [(1, 3, 4, 5)], "5 of [1, 3, 4, 5] is no multiple of 2"),
    ("SpaceToDepth", {"blocksize": 3}, [(1, 3, 4, None)], "4 of [1, 3, 4, ?] is no multiple of 3"),
    ("Transpose", {"perm": [0, 0]}, [(2, 3)], "[0, 0] is no order of the 2 axes of its input"),
    ("Transpose", {"perm": [1, 0]}, [(2, 3)], None),
    ("Transpose", {}, [(2, 3)], None),
    ("Transpose", {"perm": [0, 0]}, [None], None),
    ("ScatterND", {}, [(2, 3), (1, 3)], "its indices have 3 coordinates for 2 axes"),
    ("ScatterND", {}, [(2, 3), (1, 2)], None),
    ("ScatterND", {}, [(2, 3), (5, None)], None),
    ("ScatterND", {}, [(2, 3), ()], None),
    ("ScatterND", {}, [None, (1, 3)], None),
    ("Einsum", {"equation": "ij, jk -> ik"}, [(2, 3), (4, 5)], "'j' of ij,jk->ik is 3 and 4"),
    ("Einsum", {"equation": "ij,ij"}, [(1, 3), (2, 4)], "'j' of ij,ij is 3 and 4"),
    ("Einsum", {"equation": "ij,jk->ik"}, [(2, None), (4, 5)], None),
    ("Einsum", {"equation": "ij,jk->ik"}, [(2, 1), (4, 5)], None),
    ("Einsum", {"equation": "ij,jk,kl"}, [(2, 3), (3,), (4, 5)], None),
    ("Einsum", {"equation": "ij,jk,jl"}, [(2, 3), None, (4, 5)], "'j' of ij,jk,jl is 3 and 4"),
    ("Einsum", {"equation": "...j,jk"}, [(2, 3), (4, 5)], None),
    ("Einsum", {}, [(2, 3), (4, 5)], None),
    ("Einsum", {"equation": "...j,jk"}, [(2, 3, 4, 5), (4, 5)], None),
    ("Einsum", {}, [(2, 3, 4, 5)], None),
    ("Conv", {"kernel_shape": [3]}, [IMAGE, KERNEL], None),
    ("DepthToSpace", {}, [(1, 6, 4, 4)], None),
    ("ScatterND", {}, [(2, 3), (1, 7, 3)], "its indices have 3 coordinates for 2 axes"),
    ("Relu", {}, [(2, 3)], None),
]  # fmt: skip
"""Operator, attributes, shapes of its operands and what is said of them."""


@pytest.mark.parametrize(("op_type", "attributes", "shapes", "reason"), REASONS)
def test_reasons(
    op_type: str, attributes: dict[str, Any], shapes: list[Sizes | None], reason: str | None
) -> None:
    node = ir.node(op_type, [ir.Value(name=f"x{i}") for i in range(len(shapes))], attributes)
    assert contradiction(OperandShapes(node, tuple(shapes), None)) == reason


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ((2, 3), (2, 4), "[2, 3] has 6 elements, [2, 4] has 8"),
        ((2, None), (2, 4), None),
        ((2, 3), (None, 4), None),
        ((2, 3), None, None),
        (None, (2, 4), None),
        ((), (1,), None),
    ],
)
def test_a_reshape_keeps_its_elements(
    before: Sizes | None, after: Sizes | None, reason: str | None
) -> None:
    node = ir.node("Reshape", [ir.Value(), ir.Value()])
    assert contradiction(OperandShapes(node, (before, None), after)) == reason


@pytest.mark.parametrize(
    ("axis", "indices", "reason"),
    [
        (0, [1, 2], "index 2 is outside of an axis of 2"),
        (-2, [1, 2], "index 2 is outside of an axis of 2"),
        (None, [1, 2], "index 2 is outside of an axis of 2"),
        (1, [2, -4], "index -4 is outside of an axis of 3"),
        (-1, [-3, 2], None),
        (2, [9], None),
        (-3, [9], None),
        (0, [], None),
    ],
)
def test_indices_outside_of_their_axis(
    axis: int | None, indices: list[int], reason: str | None
) -> None:
    constant = ir.Value(name="i", const_value=ir.tensor(np.array(indices, np.int64)))
    attributes = None if axis is None else {"axis": axis}
    node = ir.node("Gather", [ir.Value(name="x"), constant], attributes)
    assert contradiction(OperandShapes(node, ((2, 3), None), None)) == reason


@pytest.mark.parametrize("shapes", [(), ((2, 3, 4),)])
def test_operands_that_are_not_there_are_no_contradiction(shapes: tuple[Sizes, ...]) -> None:
    for op_type in RULES:
        node = ir.node(op_type, [ir.Value(name="x") for _ in shapes])
        assert contradiction(OperandShapes(node, shapes, None)) is None
