from __future__ import annotations

import onnx_ir as ir
import pytest

from samba_onnx.passes.infer_shapes import InferShapesPass
from samba_onnx.passes.interface import describe_type, dimensions
from tests.passes.rewrites import parse


def test_types_and_shapes_of_graphs_and_branches() -> None:
    model = parse("""g (bool c, float[N,4] x) => (float[M,4] y, int64[K] s) {
 s = Shape(x)
 h = Cast<to=10>(x)
 q = SequenceConstruct(h, h)
 y = If (c) <then_branch = t () => (float[A,4] a) { r = Relu(x)
 a = Neg(r) }, else_branch = e () => (float[B,4] b) { b = Abs(x) }> }""")
    assert InferShapesPass()(model).modified
    types = {v.name: describe_type(v) for n in model.graph.all_nodes() for v in n.outputs}
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


def test_failure_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError("boom\nmore")

    monkeypatch.setattr("onnx.shape_inference.infer_shapes", fail)
    rewrite = InferShapesPass()
    assert not rewrite(parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")).modified
    assert rewrite.notes == ["shapes could not be inferred: boom"]
