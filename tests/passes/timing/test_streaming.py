"""Which nodes take rows as an exchange between RDUs brings them, and how long these take."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from samba_onnx.passes.targets import load_target
from samba_onnx.passes.timing.section_terms import section_terms
from samba_onnx.passes.timing.streaming import streamed_nodes, streamed_terms
from samba_onnx.pef.stage_records import Streaming

TARGET = load_target("sn40l").summary
HEADER = '<ir_version: 10, opset_import: ["" : 23, "ai.example" : 1]>\n'

STREAMING = {
    "residual": "(float[6,8] x, float[6,8] r) => (float[6,8] y) { y = Add(r, x) }",
    "cast": "(float[6,8] x) => (float16[6,8] y) { y = Cast<to=10>(x) }",
    "row sum": "(float[6,8] x) => (float[6,1] y) { a = Constant<value_ints=[-1]>() y = ReduceMean(x, a) }",
    "norm": "(float[6,8] x, float[8] w) => (float[6,8] y) { y = RMSNormalization<axis=1>(x, w) }",
    "softmax": "(float[6,8] x) => (float[6,8] y) { y = Softmax(x) }",
    "product": "(float[6,8] x, float[8,3] w) => (float[6,3] y) { y = MatMul(x, w) }",
    "gemm": "(float[6,8] x, float[3,8] w) => (float[6,3] y) { y = Gemm<transB=1>(x, w) }",
    "row sums": "(float[2,3,8] x) => (float[2,3,1] y) { a = Constant<value_ints=[-1]>() y = ReduceSum(x, a) }",
    "softmax of heads": "(float[2,3,8] x) => (float[2,3,8] y) { y = Softmax(x) }",
    "merged": "(float[2,3,8] x) => (float[6,8] y) { s = Constant<value_ints=[6,8]>() y = Reshape(x, s) }",
    "heads": "(float[2,3,8] x) => (float[6,2,4] y) { s = Constant<value_ints=[6,2,4]>() y = Reshape(x, s) }",
    "split": "(float[6,8] x) => (float[6,4] y, float[6,4] z) { y, z = Split<axis=1, num_outputs=2>(x) }",
}
WAITING = {
    "columns": "(float[6,8] x) => (float[1,8] y) { a = Constant<value_ints=[0]>() y = ReduceMean(x, a) }",
    "softmax": "(float[6,8] x) => (float[6,8] y) { y = Softmax<axis=0>(x) }",
    "norm": "(float[6,8] x, float[6,8] w) => (float[6,8] y) { y = RMSNormalization<axis=0>(x, w) }",
    "transposed": "(float[6,8] x) => (float[8,6] y) { y = Transpose<perm=[1,0]>(x) }",
    "keys": "(float[6,8] x, float[3,6] w) => (float[3,8] y) { y = MatMul(w, x) }",
    "scores": "(float[8,8] x) => (float[8,8] y) { y = MatMul(x, x) }",
    "gemm": "(float[6,8] x, float[6,3] w) => (float[8,3] y) { y = Gemm<transA=1>(x, w) }",
    "right": "(float[6,8] x, float[4,6] w) => (float[4,8] y) { y = Gemm(w, x) }",
    "square gemm": "(float[8,8] x, float[8,8] w) => (float[8,8] y) { y = Gemm<transA=1>(x, w) }",
    "gemm of itself": "(float[8,8] x) => (float[8,8] y) { y = Gemm(x, x) }",
    "bias": "(float[6,8] x, float[6,3] w, float[3,8] v) => (float[6,8] y) { y = Gemm(w, v, x) }",
    "sum of all": "(float[6,8] x) => (float[1,1] y) { a = Constant<value_ints=[0,1]>() y = ReduceSum(x, a) }",
    "longer rows": "(float[2,3,8] x) => (float[4,12] y) { s = Constant<value_ints=[4,12]>() y = Reshape(x, s) }",
    "vector": "(float[8] x) => (float[8] y) { y = Relu(x) }",
    "unknown rows": "(float[N,8] x) => (float[N,8] y) { y = Relu(x) }",
    "unknown operator": "(float[6,8] x) => (float[6,8] y) { y = ai.example.Relu(x) }",
    "branch": """(float[6,8] x, bool c) => (float[6,8] y) { y = If(c) <
        then_branch = t () => (float[6,8] a) { a = Relu(x) }, else_branch = e () => (float[6,8] b) { b = Neg(x) }> }""",
    "one row": "(float[6,8] x) => (float[1,48] y) { s = Constant<value_ints=[1,48]>() y = Reshape(x, s) }",
    "joined": "(float[6,8] x, float[1,8] w) => (float[7,8] y) { y = Concat<axis=0>(w, x) }",
}


def graph(text: str) -> ir.Model:
    model = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(HEADER + "g " + text))
    return ir.from_proto(model)


def nodes_of(model: ir.Model) -> list[ir.Node]:
    return [node for node in model.graph if node.op_type != "Constant"]


@pytest.mark.parametrize("name", STREAMING)
def test_rows_in_their_order(name: str) -> None:
    model = graph(STREAMING[name])
    assert streamed_nodes(nodes_of(model), model.graph.inputs[:1]) == nodes_of(model)


@pytest.mark.parametrize("name", STREAMING)
def test_what_streams_needs_no_later_rows(name: str) -> None:
    """Other numbers in the last rows change nothing in the first ones, as onnx computes them."""
    proto = onnx.parser.parse_model(HEADER + "g " + STREAMING[name])
    generator = np.random.default_rng(0)
    values = {
        one.name: generator.standard_normal([d.dim_value for d in one.type.tensor_type.shape.dim])
        for one in proto.graph.input
    }
    values = {key: value.astype(np.float32) for key, value in values.items()}
    evaluator = ReferenceEvaluator(proto)
    before = evaluator.run(None, values)
    values["x"] = values["x"].copy()
    half = values["x"].reshape(6, -1).shape[0] // 2
    values["x"].reshape(6, -1)[half:] += 1
    for old, new in zip(before, evaluator.run(None, values), strict=True):
        np.testing.assert_array_equal(old.reshape(6, -1)[:half], new.reshape(6, -1)[:half])


@pytest.mark.parametrize("name", WAITING)
def test_what_needs_all_rows_waits(name: str) -> None:
    model = graph(WAITING[name])
    assert streamed_nodes(nodes_of(model), model.graph.inputs[:1]) == []


def test_all_goes_on_where_nothing_arrives() -> None:
    model = graph(STREAMING["residual"])
    nodes, whole = nodes_of(model), section_terms(nodes_of(model), {}, TARGET)
    assert streamed_nodes(nodes, []) == nodes
    assert streamed_terms(nodes, [], {}, whole, TARGET) is None


def test_what_reads_a_result_that_waits_waits_too_and_all_else_goes_on() -> None:
    model = graph(
        """(float[6,8] x, float[6,8] r, float[8,6] w) => (float[6,8] y, float[6,8] z)
        { a = Add(x, r) t = Transpose(a) s = MatMul(a, t) y = MatMul(s, r) z = Relu(r) b = Neg(z) }"""
    )
    streamed = streamed_nodes(nodes_of(model), model.graph.inputs[:1])
    assert [node.op_type for node in streamed] == ["Add", "Relu", "Neg"]


def test_the_part_that_streams_takes_its_share_of_the_section() -> None:
    model = graph(
        """(float[96,64] x, float[64,64] w, float[64,64] v) => (float[64,64] y)
        { a = MatMul(x, w) t = Transpose(a) b = MatMul(t, x) y = MatMul(b, v) }"""
    )
    nodes, (x, w, v) = nodes_of(model), model.graph.inputs
    traffic = dict.fromkeys((x, w, v, model.graph.outputs[0]), ("hbm", 64 * 64 * 4))
    whole = section_terms(nodes, {"hbm": [size for _, size in traffic.values()]}, TARGET)
    part = streamed_terms(nodes, [x], traffic, whole, TARGET)
    assert part is not None
    assert part.terms.arithmetic == whole.arithmetic[:1]
    assert not part.terms.alone  # its product is as fast as it is in the section
    assert part.terms.traffic == {"hbm": (64 * 64 * 4,) * 2}
    streaming = part.streaming(whole, TARGET)
    assert streaming == Streaming(part.terms.time(TARGET).overlapped, 3)
    assert 0 < streaming.seconds < whole.time(TARGET).overlapped


def test_two_tiles_stream_and_one_does_not() -> None:
    model = graph("(float[33,64] x) => (float[33,64] y) { y = Relu(x) }")
    whole = section_terms(nodes_of(model), {}, TARGET)
    part = streamed_terms(nodes_of(model), model.graph.inputs, {}, whole, TARGET)
    assert part is not None
    assert part.tiles == 2
    model = graph("(float[32,64] x) => (float[32,64] y) { y = Relu(x) }")
    nodes, x = nodes_of(model), model.graph.inputs[0]
    whole = section_terms(nodes, {}, TARGET)
    assert streamed_terms(nodes, [x], {}, whole, TARGET) is None
    assert streamed_terms(nodes, [x], {}, whole, replace(TARGET, timing=None)) is None
