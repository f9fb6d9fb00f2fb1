from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.merge_linears import MergeLinearsPass
from samba_onnx.passes.rewrites.rewriting import WEIGHT
from tests.passes.rewrites.applying import TRACE, add_weights, check, numbers, operators, parse

HEAD = """g (float[n,5,8] x, float[8,4] q, float[8,4] k, float[8,6] v, float[4] a, float[6] c)
=> (float[n,5,4] y1, float[n,5,4] y2, float[n,5,6] y3)"""
WEIGHTS = {
    "q": numbers(8, 4, seed=1),
    "k": numbers(8, 4, seed=2),
    "v": numbers(8, 6, seed=3),
    "a": numbers(4, seed=4),
    "c": numbers(6, seed=5),
}
X = numbers(2, 5, 8, seed=6)
# The numbers are sums of the same products, which a kernel may add in another order.
TOLERANCE = 1e-6


def merged(body: str, *, modified: bool = True, x: np.ndarray = X, head: str = HEAD) -> ir.Model:
    model = add_weights(parse(f"{head} {{ {body} }}"), WEIGHTS)
    for name in WEIGHTS:
        model.graph.initializers[name].meta[WEIGHT] = True
    InferShapesPass()(model)
    return check(
        model, MergeLinearsPass(), inputs=[x], rtol=TOLERANCE, atol=TOLERANCE, modified=modified
    )


def test_queries_keys_and_values_become_one_product() -> None:
    model = merged("""m1 = MatMul(x, q)
 y1 = Add(m1, a)
 y2 = MatMul(x, k)
 m3 = MatMul(x, v)
 y3 = Add(c, m3)""")
    assert operators(model) == ["MatMul", "Add", "Split"]
    weight, bias = (node.inputs[1] for node in list(model.graph)[:2])
    assert weight is not None
    assert bias is not None
    assert (list(weight.shape or ()), list(bias.shape or ())) == ([8, 14], [14])
    assert weight.meta[WEIGHT]
    assert bias.meta[WEIGHT]
    assert bias.const_value is not None
    expected = np.concatenate([WEIGHTS["a"], np.zeros(4, np.float32), WEIGHTS["c"]])
    np.testing.assert_array_equal(bias.const_value.numpy(), expected)
    product, addition, split = model.graph
    assert [node.outputs[0].name for node in (product, addition)] == ["y1_matmul", "y1_add"]
    assert [node.outputs[0].dtype for node in (product, addition)] == 2 * [ir.DataType.FLOAT]
    assert [value.name for value in (weight, bias, split.inputs[1]) if value is not None] == [
        "q_merged", "y1_bias", "y1_widths",
    ]  # fmt: skip
    assert {node.metadata_props[TRACE].partition(",")[2] for node in model.graph} == {
        " line 1, in forward"
    }


def test_two_layers_with_biases_become_one() -> None:
    model = merged("""m1 = MatMul(x, q)
 y1 = Add(m1, a)
 m3 = MatMul(x, v)
 y3 = Add(m3, c)
 y2 = Neg(y1)""")
    assert operators(model) == ["MatMul", "Add", "Split", "Neg"]


def test_the_product_stands_before_all_that_reads_it() -> None:
    model = merged(
        "y1 = MatMul(x, q)\n t = Tanh(y1)\n z = MatMul(x, k)\n y2 = Add(z, t)\n y3 = MatMul(x, v)"
    )
    assert operators(model) == ["MatMul", "Split", "Tanh", "Add"]


@pytest.mark.parametrize(
    "body",
    [
        "y1 = Mul(m1, a)\n y3 = Mul(m3, c)\n y2 = Neg(y1)",  # no additions
        "y1 = Add(m1, one)\n y3 = Add(m3, one)\n y2 = Neg(y1)",  # not a number for every column
        "y1 = Add(m1, b)\n y3 = Add(m3, d)\n y2 = Neg(y1)",  # not constant
    ],
)
def test_what_follows_is_a_bias_only_if_it_adds_a_constant_vector(body: str) -> None:
    model = parse(f"""{HEAD} <float one = {{1}}, int64[2] axes = {{0, 1}}, int64[1] zero = {{0}},
    int64[1] four = {{4}}, int64[1] six = {{6}}> {{
        s = ReduceSum <keepdims = 0> (x, axes)
        b = Slice (s, zero, four)
        d = Slice (s, zero, six)
        m1 = MatMul(x, q)
        m3 = MatMul(x, v)
        {body}
    }}""")
    add_weights(model, WEIGHTS)
    InferShapesPass()(model)
    check(model, MergeLinearsPass(), inputs=[X], modified=False)


def test_layers_that_stay_are_named_with_the_reason() -> None:
    rewrite = MergeLinearsPass()
    model = parse("""g (float[2,8] x, float[8,4] q, float[8,4] k, float[8,6] v, float[8,4] r, float[8,4] s)
    => (float[2,4] a, float[2,4] b, float[2,6] c, float[2,4] d, float[2,4] e) {
        a = MatMul(x, q)
        b = MatMul(x, k)
        c = MatMul(x, v)
        z = Neg(x)
        d = MatMul(z, r)
        e = MatMul(z, s)
    }""")  # fmt: skip
    weights = {name: numbers(8, 6 if name == "v" else 4) for name in "qkvrs"}
    check(add_weights(model, weights), rewrite, inputs=[X[0, :2]], rtol=TOLERANCE, atol=TOLERANCE)
    assert operators(model) == ["MatMul", "Split", "Neg", "MatMul", "MatMul"]
    assert rewrite.refusals.lines() == (
        "MatMul 'd': one product and a Split would be as many nodes",
    )


def test_a_layer_by_itself_is_not_tried() -> None:
    rewrite = MergeLinearsPass()
    model = parse("g (float[2,8] x, float[8,4] q) => (float[2,4] a) { a = MatMul(x, q) }")
    check(add_weights(model, {"q": WEIGHTS["q"]}), rewrite, inputs=[X[0, :2]], modified=False)
    assert rewrite.refusals.lines() == ()


def test_products_of_constants_are_left_to_folding() -> None:
    model = parse(f"{HEAD} {{ y1 = MatMul(e, q)\n y2 = MatMul(e, k)\n y3 = MatMul(e, v) }}")
    value = ir.Value(name="e", const_value=ir.tensor(X, name="e"))
    value.shape, value.dtype = ir.Shape(X.shape), ir.DataType.FLOAT
    model.graph.register_initializer(value)
    for node in model.graph:
        node.replace_input_with(0, value)
    assert not MergeLinearsPass()(add_weights(model, WEIGHTS)).modified


def test_layers_without_a_bias_get_none() -> None:
    model = merged("y1 = MatMul(x, q)\n y2 = MatMul(x, k)\n y3 = MatMul(x, v)")
    assert operators(model) == ["MatMul", "Split"]


@pytest.mark.parametrize("transposed", [0, 1])
def test_gemms_are_merged_with_their_biases(transposed: int) -> None:
    body = "\n".join(
        f"{y} = Gemm<transB={transposed}>(x, {w}{b})"
        for y, w, b in (("y1", "q", ", a"), ("y2", "k", ""), ("y3", "v", ", c"))
    )
    shapes = {"q": (4, 8), "k": (4, 8), "v": (6, 8)} if transposed else {}
    head = HEAD.replace("n,5,", "n,")
    for name, shape in shapes.items():
        head = head.replace(f"float[{shape[1]},{shape[0]}] {name}", f"float[{shape[0]},8] {name}")
    model = add_weights(
        parse(f"{head} {{ {body} }}"),
        {name: np.ascontiguousarray(w.T) if name in shapes else w for name, w in WEIGHTS.items()},
    )
    InferShapesPass()(model)
    check(model, MergeLinearsPass(), inputs=[X[0]], rtol=TOLERANCE, atol=TOLERANCE)
    assert operators(model) == ["Gemm", "Split"]


@pytest.mark.parametrize(
    "body",
    [
        # as many nodes as before
        "y1 = MatMul(x, q)\n y2 = MatMul(x, k)\n z = Neg(v)\n y3 = MatMul(x, z)",
        "m = MatMul(x, q)\n y1 = Add(m, a)\n y2 = MatMul(x, k)\n z = Neg(v)\n y3 = MatMul(x, z)",
        # weights that others read
        "y1 = MatMul(x, q)\n y2 = MatMul(x, q)\n y3 = MatMul(x, v)",
        # operands that differ
        "y1 = MatMul(x, q)\n z = Neg(x)\n y2 = MatMul(z, k)\n y3 = MatMul(x, v)",
    ],
)
def test_what_would_not_get_less_stays(body: str) -> None:
    assert "Split" not in operators(merged(body, modified=False))


def test_a_product_that_others_read_keeps_its_addition() -> None:
    model = merged("""m1 = MatMul(x, q)
 y1 = Add(m1, a)
 y2 = Tanh(m1)
 m3 = MatMul(x, v)
 y3 = Add(c, m3)""", modified=False)  # fmt: skip
    assert operators(model).count("MatMul") == 2


def test_types_and_attributes_keep_layers_apart() -> None:
    head = HEAD.replace("n,5,", "n,")
    body = "y1 = Gemm(x, q, a)\n y2 = Gemm<alpha=2.0>(x, k)\n y3 = Gemm(x, v, c)"
    assert operators(merged(body, modified=False, x=X[0], head=head)) == ["Gemm"] * 3


def test_weights_are_joined_when_they_are_read_and_not_before() -> None:
    reads: list[str] = []

    class Counted(ir.Tensor):
        def numpy(self) -> np.ndarray:
            reads.append(self.name or "")
            return super().numpy()

    model = parse(f"{HEAD} {{ y1 = MatMul(x, q)\n y2 = MatMul(x, k)\n y3 = MatMul(x, v) }}")
    add_weights(model, WEIGHTS)
    for name in "qkv":
        model.graph.initializers[name].const_value = Counted(WEIGHTS[name], name=name)
    MergeLinearsPass()(model)
    assert not reads
    (weight,) = (v for v in model.graph.initializers.values() if v.name == "q_merged")
    assert weight.const_value is not None
    joined = np.concatenate([WEIGHTS[name] for name in "qkv"], axis=1)
    np.testing.assert_array_equal(weight.const_value.numpy(), joined)
    assert reads == ["q", "k", "v"]


def test_layers_that_are_to_stay_are_no_change() -> None:
    model = add_weights(
        parse(f"{HEAD} {{ y1 = MatMul(x, q)\n y2 = MatMul(x, k)\n y3 = MatMul(x, v) }}"), WEIGHTS
    )
    assert not MergeLinearsPass(keep=True)(model).modified
    assert operators(model) == ["MatMul"] * 3
