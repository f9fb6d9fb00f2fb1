from __future__ import annotations

import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.inference_limits import unsafe_nodes
from samba_onnx.passes.rewrites.interface import dimensions
from samba_onnx.program.value_types import type_text
from tests.passes.rewrites.applying import parse


def test_types_and_shapes_of_graphs_and_branches() -> None:
    model = parse("""g (bool c, float[N,4] x) => (float[M,4] y, int64[K] s) {
 s = Shape(x)
 h = Cast<to=10>(x)
 q = SequenceConstruct(h, h)
 y = If (c) <then_branch = t () => (float[A,4] a) { r = Relu(x)
 a = Neg(r) }, else_branch = e () => (float[B,4] b) { b = Abs(x) }> }""")
    assert InferShapesPass()(model).modified
    types = {v.name: type_text(v) for n in model.graph.all_nodes() for v in n.outputs}
    assert types["h"] == "tensor(float16)"
    assert types["q"] == "seq(tensor(float16))"
    assert types["r"] == "tensor(float)"
    assert dimensions(model.graph[1].outputs[0].shape) == ("N", 4)
    assert not InferShapesPass()(model).modified


def test_known_dimensions_stay_and_unknown_ones_become_static() -> None:
    model = parse(
        "g (float[2,8] x) => (float[rows,?] y) <float[odd,z] h> { h = Relu(x)\n y = Relu(h) }"
    )
    InferShapesPass()(model)
    assert dimensions(model.graph.outputs[0].shape) == (2, 8)
    dynamic = parse("g (float[n,?] x) => (float[?,?] y) { y = Relu(x) }")
    InferShapesPass()(dynamic)
    assert dimensions(dynamic.graph.outputs[0].shape) == (None, None)


def test_names_need_not_be_unique() -> None:
    model = parse(
        "g (float[2,3] x) => (float[2,1] y) { h = Relu(x)\n k = ReduceSum(h)\n y = Sub(h, k) }"
    )
    model.graph[1].outputs[0].name = "h"
    InferShapesPass()(model)
    assert [dimensions(node.outputs[0].shape) for node in model.graph][:2] == [(2, 3), (1, 1)]


class Unreadable(ir.ExternalTensor):
    """A weight that must not be read."""

    def numpy(self) -> object:  # type: ignore[override]
        raise AssertionError("a weight was read")

    tobytes = numpy  # type: ignore[assignment]


def test_weights_are_not_read() -> None:
    model = parse("g (float[2,1024] x, float[1024,4096] w) => (float[?,?] y) { y = MatMul(x, w) }")
    weight = model.graph.inputs.pop()
    weight.const_value = Unreadable(
        "missing.bin", 0, 1 << 24, ir.DataType.FLOAT, shape=ir.Shape((1024, 4096)), name="w"
    )
    model.graph.register_initializer(weight)
    InferShapesPass()(model)
    assert dimensions(model.graph.outputs[0].shape) == (2, 4096)


@pytest.mark.parametrize(
    "body",
    [
        "y = Add(x, x)",
        "h = Cast<to=11>(x)\n y = Cast<to=1>(h)",
        "h = Relu(x)\n i = Squeeze(h)\n y = Mul(i, i)",
        "y = MeanVarianceNormalization<axes=[0]>(x)",
    ],
)
def test_long_vectors_are_not_materialised(body: str) -> None:
    # 2^33 messages of 150 bytes would end the process
    model = parse(f"g (float[8589934592] x) => (float[?] y) {{ {body} }}")
    InferShapesPass()(model)
    assert dimensions(model.graph.outputs[0].shape) == (1 << 33,)


def test_a_vector_whose_length_a_shape_states_is_not_materialised() -> None:
    model = parse("""g (float[131072,1] x, int64[1] zero) => (int64[?] y) {
 s = Shape(x)
 n = Gather(s, zero)
 m = Mul(n, n)
 t = ConstantOfShape(m)
 c = Cast<to=7>(t)
 y = Concat<axis=0>(c, c) }""")
    zero = model.graph.inputs.pop()
    zero.const_value = ir.tensor([0], dtype=ir.DataType.INT64)
    model.graph.register_initializer(zero)
    InferShapesPass()(model)
    assert dimensions(model.graph[3].outputs[0].shape) == (1 << 34,)
    InferShapesPass()(model)
    assert dimensions(model.graph.outputs[0].shape) == (1 << 35,)


def test_many_vectors_are_not_all_materialised() -> None:
    lines = "\n".join(f"h{n + 1} = Add(h{n}, h0)" for n in range(2000))
    model = parse(f"g (int64[1024] h0) => (int64[?] h2000) {{ {lines} }}")
    unsafe = unsafe_nodes(model)
    assert len(unsafe) > 1500
    InferShapesPass()(model)
    assert dimensions(model.graph.outputs[0].shape) == (1024,)


def test_the_pieces_of_a_shape_are_safe_although_nothing_is_inferred_yet() -> None:
    model = parse("""g (float[N,64] x, float[?,?] z, int64[1] i) => (float y) {
 s = Shape(x)
 a = Slice(s, i, i)
 b = Squeeze(a)
 c = Unsqueeze(b, i)
 d = Gather(s, i)
 e = Add(c, d)
 f = Cast<to=6>(e)
 g = Cast<to=7>(f)
 h = Concat<axis=0>(g, c)
 k = Expand(x, h)
 l = Cast<to=10>(k)
 y = Add(l, l) }""")
    assert [node.op_type for node in model.graph if node in unsafe_nodes(model)] == ["Cast", "Add"]


def test_names_of_dimensions_reach_through_floats_of_unknown_rank() -> None:
    model = parse("""g (float[N,64] x, int64[1] i) => (float[?,?] y) {
 s = Shape(x)
 k = Reshape(x, s)
 h = Cast<to=10>(k)
 y = Cast<to=1>(h) }""")
    InferShapesPass()(model)
    assert dimensions(model.graph[2].outputs[0].shape) == ("N", 64)


def test_failure_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError("boom\nmore")

    monkeypatch.setattr("onnx.shape_inference.infer_shapes", fail)
    rewrite = InferShapesPass()
    assert not rewrite(parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")).modified
    assert rewrite.notes == ["shapes could not be inferred: boom"]
