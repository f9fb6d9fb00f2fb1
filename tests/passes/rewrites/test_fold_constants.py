from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from samba_onnx.passes.pipeline import run_pipeline
from samba_onnx.passes.rewrites import fold_constants
from samba_onnx.passes.rewrites.evaluation import LARGEST_RESULT
from samba_onnx.passes.rewrites.fold_constants import FoldConstantsPass
from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.lift_constants import LiftConstantsPass
from samba_onnx.passes.rewrites.rewriting import WEIGHT
from tests.passes.rewrites.applying import (
    KnowsAll,
    add_weights,
    check,
    numbers,
    operators,
    parse,
    run,
)


def folded(graph: str, **weights: np.ndarray) -> ir.Model:
    """Infer, fold, and hold the result against onnxruntime with zeros for the inputs."""
    model = add_weights(parse(graph), weights)
    LiftConstantsPass()(model)
    InferShapesPass()(model)
    FoldConstantsPass()(model)
    return model


def test_chains_of_constants_become_one_initializer() -> None:
    model = parse("""g (float[2,6] x) => (float[3,4] y)
<int64[2] a = {1, 2}, int64[2] b = {2, 2}, float[1] f = {2.7}> {
 c = Add(a, b)
 i = Cast<to=7>(f)
 d = Max(c, i)
 y = Reshape(x, d) }""")
    check(model, InferShapesPass(), FoldConstantsPass(), inputs=[numbers(2, 6)])
    assert operators(model) == ["Reshape"]
    assert list(model.graph.initializers) == ["d"]


@pytest.mark.parametrize(
    "body",
    [
        "<int64[2] a = {-9223372036854775808, 2}, int64[2] b = {-1, 1}> { y = Div(a, b) }",
        "<float[2] a = {1e30, 2.0}> { y = Cast<to=7>(a) }",
        "<int64[2] a = {1, 2}, int64[3] b = {1, 2, 3}> { y = Add(a, b) }",
    ],
)
def test_what_traps_or_fails_stays(body: str) -> None:
    model = folded(f"g () => (int64[?] y) {body}")
    assert operators(model)[0] in body


INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("operator", ["Div", "Mod"])
@pytest.mark.parametrize("divisors", [[0, 0], [2, 0], [0], [3, 2]])
def test_a_division_of_integers_by_zero_is_never_computed(
    kind: str, operator: str, divisors: list[int]
) -> None:
    """It traps on the device, and numpy makes up a number: the node stays and says so there."""
    model = folded(
        f"g ({kind}[2] a, {kind}[{len(divisors)}] b) => ({kind}[2] y) {{ y = {operator}(a, b) }}",
        a=np.asarray([7, 5], kind),
        b=np.asarray(divisors, kind),
    )
    folds = 0 not in divisors
    assert operators(model) == (["Identity"] if folds else [operator])
    if folds:
        result = next(iter(model.graph.initializers.values())).const_value.numpy()  # type: ignore[union-attr]
        assert result.tolist() == ([2, 2] if operator == "Div" else [1, 1])


@pytest.mark.parametrize("kind", [*INTEGERS, "float", "double", "float16"])
@pytest.mark.parametrize("operator", ["Max", "Min"])
def test_a_result_has_the_type_and_every_bit_of_its_operands(kind: str, operator: str) -> None:
    """An int64 beyond 2**31 stays one: indices and sizes of large tensors are such numbers."""
    dtype = np.dtype({"float": "float32", "double": "float64"}.get(kind, kind))
    ends = np.iinfo(dtype) if dtype.kind in "iu" else np.finfo(dtype)
    operands = np.asarray([ends.max, ends.min], dtype), np.asarray([1, 1], dtype)
    model = folded(
        f"g ({kind}[2] a, {kind}[2] b) => ({kind}[2] y) {{ y = {operator}(a, b) }}",
        a=operands[0],
        b=operands[1],
    )
    (value,) = model.graph.initializers.values()
    assert value.const_value is not None
    result = value.const_value.numpy()
    assert (result.dtype, value.dtype) == (dtype, ir.DataType.from_numpy(dtype))
    reduce = np.maximum if operator == "Max" else np.minimum
    np.testing.assert_array_equal(result, reduce(*operands))


def test_what_evaluates_to_another_type_than_stated_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the evaluator of an operator answered in int32."""
    from onnx.reference import ops

    class Narrow:
        @staticmethod
        def eval(*operands: np.ndarray, **_: object) -> np.ndarray:
            return operands[0].astype(np.int32)

    monkeypatch.setattr(ops, "load_op", lambda *_: Narrow)
    model = folded("g () => (int64[2] y) <int64[2] a = {1, 2}> { y = Neg(a) }")
    assert operators(model) == ["Neg"]


def test_random_and_custom_nodes_stay() -> None:
    model = add_weights(
        parse(
            """g (float[3] w) => (float[3] y, float[3] z, float[3] r) {
 y = RandomUniformLike(w)
 z = my.Op(w)
 r = Dropout(w) }""",
            imports=', "my": 1',
        ),
        {"w": numbers(3)},
    )
    InferShapesPass()(model)
    assert not FoldConstantsPass()(model).modified


@pytest.mark.parametrize(
    "body",
    [
        "<int64[2] s = {1048576, 1048576}> { y = ConstantOfShape(s) }",
        "<float[1] a = {1.0}, int64[1] s = {1099511627776}> { y = Expand(a, s) }",
        "<float[1] a = {1.0}, int64[1] s = {1099511627776}> { y = Tile(a, s) }",
        "<float a = {0.0}, float b = {1e12}, float c = {1.0}> { y = Range(a, b, c) }",
        "<float a = {0.0}, float b = {1.0}, float c = {0.0}> { y = Range(a, b, c) }",
    ],
)
def test_nothing_large_is_made(body: str) -> None:
    model = folded(f"g () => (float[?] y) {body}".replace("[?]", "[?,?]", "s = {1048576" in body))
    assert len(model.graph) == 1


def test_small_growth_is_folded() -> None:
    model = folded(
        """g (float[4] x) => (float[4] y)
<float a = {0.0}, float b = {4.0}, float c = {1.0}> { r = Range(a, b, c)
 y = Add(x, r) }"""
    )
    assert operators(model) == ["Add"]
    np.testing.assert_array_equal(model.graph.initializers["r"].const_value.numpy(), [0, 1, 2, 3])


def test_a_folded_number_has_no_axis() -> None:
    model = parse("g (float x) => (float y) <float a = {2.0}> { n = Neg(a)\n y = Add(x, n) }")
    check(model, FoldConstantsPass(), inputs=[np.array(1, np.float32)])
    assert model.graph.initializers["n"].const_value.shape == ir.Shape(())  # type: ignore[union-attr]


def test_outputs_keep_their_names() -> None:
    model = parse("""g () => (int64[2] y, float[2] b, float[1] c)
<float[3] a = {1.0, 2.0, 3.0}, int64[2] n = {2, 1}> {
 y = Neg(n)
 b, c = Split<axis=0>(a, n) }""")
    check(model, InferShapesPass(), FoldConstantsPass(), inputs=[])
    assert set(operators(model)) == {"Identity"}


def test_constants_in_branches_are_folded() -> None:
    model = parse("""g (bool c, float[2] x) => (float[2] y) <float[2] w = {1.0, 2.0}> {
 y = If (c) <then_branch = t () => (float[2] a) { n = Neg(w)
 a = Add(x, n) }, else_branch = e () => (float[2] b) { b = Exp(w) }> }""")
    check(
        model, InferShapesPass(), FoldConstantsPass(), inputs=[np.array(False), numbers(2)],
        rtol=1e-6,
    )  # fmt: skip
    assert [n.op_type for n in model.graph.all_nodes()].count("Neg") == 0


def test_large_weights_are_rearranged_when_read_and_not_before() -> None:
    rows = LARGEST_RESULT // 4 // 512 * 2
    w = numbers(rows, 512)
    reads = []

    class Counted(ir.Tensor):
        def numpy(self) -> np.ndarray:
            reads.append(self.name)
            return super().numpy()

    model = parse(f"g (float[2,512] x, float[{rows},512] w) => (float[2,{rows}] y) {{ t = Transpose(w)\n y = MatMul(x, t) }}")  # fmt: skip
    add_weights(model, {"w": w})
    model.graph.initializers["w"].const_value = Counted(w, name="w")
    model.graph.initializers["w"].meta[WEIGHT] = True
    x = numbers(2, 512)
    expected = run(model, [x])[0]
    reads.clear()
    InferShapesPass()(model)
    FoldConstantsPass()(model)
    assert operators(model) == ["MatMul"]
    assert not reads
    assert model.graph.initializers["t"].meta[WEIGHT]
    np.testing.assert_allclose(run(model, [x])[0], expected, rtol=1e-4, atol=1e-4)
    assert reads == ["w"]


@pytest.mark.parametrize(("extra", "left"), [(0, ["Sum"]), (1, ["Neg", "Sum"])])
def test_weights_of_at_most_the_largest_result_are_computed_with(
    extra: int, left: list[str]
) -> None:
    """Larger ones are still rearranged, also where a node behind the rearrangement stays."""
    length = LARGEST_RESULT // 8 + extra
    model = parse(f"g (double[1] x, double[{length}] w, double[{length}] v) => (y) <int64[1] n = {{-1}}> {{ r = Reshape(v, n)\n m = Neg(w)\n y = Sum(x, r, m) }}")  # fmt: skip
    add_weights(model, {name: numbers(length).astype(float) for name in "wv"})
    InferShapesPass()(model)
    check(model, FoldConstantsPass(), inputs=[np.ones(1)])
    assert operators(model) == left


def test_slices_that_divide_a_weight_are_folded_and_copies_are_not() -> None:
    w = numbers(64, 64)
    slices = """g (float[64,64] w, float[64,64] x) => (float[64,64] y)
<int64[1] a = {0}, int64[1] b = {16}, int64[1] c = {64}> {
 p = Slice(w, a, b)
 q = Slice(w, b, c)
 r = Concat<axis=0>(q, p)
 y = MatMul(r, x) }"""
    model = add_weights(parse(slices), {"w": w})
    model.graph.initializers["w"].meta[WEIGHT] = True
    check(model, InferShapesPass(), FoldConstantsPass(), inputs=[numbers(64, 64, seed=1)])
    assert operators(model) == ["MatMul"]
    tied = """g (float[64,64] w, float[2,64] x) => (float[2,64] y, float[2,64] z) {
 t = Transpose(w)
 y = MatMul(x, t)
 z = MatMul(x, w) }"""
    model = add_weights(parse(tied), {"w": w})
    model.graph.initializers["w"].meta[WEIGHT] = True
    InferShapesPass()(model)
    assert not FoldConstantsPass()(model).modified


def test_inputs_with_defaults_are_not_constants() -> None:
    model = parse("g (float[2] x, float[2] d) => (float[2] y) <float[2] d = {1.0, 2.0}> { n = Neg(d)\n y = Add(x, n) }")  # fmt: skip
    result = run_pipeline(model, KnowsAll())
    assert operators(result.model) == ["Neg", "Add"]
    assert "d" in result.model.graph.initializers
    assert [value.name for value in result.model.graph.inputs] == ["x", "d"]
    assert "1 inputs have defaults (d)" in result.notes[0]
    x = numbers(2)
    np.testing.assert_allclose(run(result.model, [x])[0], x - np.array([1, 2]), rtol=1e-6)


ROWS = """<int64[1] zero = {0}, int64[1] some = {16}, int64[1] more = {17}, int64[1] all = {64},
int64 one = {1}, int64[1] flat = {4096}>"""


@pytest.mark.parametrize(
    ("body", "left"),
    [
        # few elements are worth a copy, also of a weight that others read
        ("p = Slice(w, zero, some)\n q = Neg(x)", ["MatMul"]),
        ("p = Gather(w, one)\n q = Neg(x)", ["MatMul"]),
        ("p = Slice(w, zero, more)\n q = Neg(x)", ["Slice", "MatMul"]),
        ("p = Reshape(w, flat)\n q = Neg(x)", ["Reshape", "MatMul"]),
        ("p = Concat<axis=0>(w, v)\n q = Neg(x)", ["Concat", "MatMul"]),
        ("p = Concat<axis=0>(v, w)\n q = Neg(x)", ["Concat", "MatMul"]),
    ],
)
def test_of_a_weight_that_others_read_little_is_copied(body: str, left: list[str]) -> None:
    reader = "y = MatMul(w, x)"
    model = parse(f"g (float[64,64] x, float[64,64] w, float[64,64] v) => (float[64,64] y, p, q) {ROWS} {{ {body}\n {reader} }}")  # fmt: skip
    weights = {"w": numbers(64, 64), "v": numbers(64, 64, seed=1)}
    add_weights(model, weights)
    for name in weights:
        model.graph.initializers[name].meta[WEIGHT] = True
    InferShapesPass()(model)
    check(model, FoldConstantsPass(), inputs=[numbers(64, 64, seed=2)], modified=None)
    assert [name for name in operators(model) if name not in ("Neg", "Identity")] == left


@pytest.mark.parametrize(("length", "copied"), [(1024, True), (1025, False)])
def test_up_to_4096_bytes_a_weight_is_stored_twice(length: int, copied: bool) -> None:
    model = parse(f"g (float[{length}] x, float[{length}] w) => (y) <int64[2] n = {{1, -1}}> {{ r = Reshape(w, n)\n s = Mul(x, w)\n y = Add(r, s) }}")  # fmt: skip
    add_weights(model, {"w": numbers(length)})
    model.graph.initializers["w"].meta[WEIGHT] = True
    InferShapesPass()(model)
    check(model, FoldConstantsPass(), inputs=[numbers(length, seed=1)], modified=copied)


def folds_slices(first: str, second: str) -> bool:
    """Return whether two slices of one weight are folded."""
    model = parse(
        f"g (float[64,64] w, int64[1] n) => (p, q) {ROWS} {{ p = {first}\n q = {second} }}"
    )
    add_weights(model, {"w": numbers(64, 64)})
    model.graph.initializers["w"].meta[WEIGHT] = True
    InferShapesPass()(model)
    check(model, FoldConstantsPass(), inputs=[np.array([60])], modified=None)
    return "Slice" not in operators(model)


def test_slices_are_folded_when_together_they_take_no_more_than_there_is() -> None:
    assert folds_slices("Slice(w, zero, more)", "Slice(w, more, all)")
    assert not folds_slices("Slice(w, zero, more)", "Slice(w, some, all)")
    assert not folds_slices("Slice(w, zero, more)", "Slice(w, zero, n)")
    assert not folds_slices("Slice(w, zero, more)", "Abs(w)")


def test_a_weight_that_is_an_output_too_is_not_sliced() -> None:
    model = parse(
        f"g (float[64,64] w) => (float[64,64] w, p) {ROWS} {{ p = Slice(w, zero, more) }}"
    )
    add_weights(model, {"w": numbers(64, 64)})
    model.graph.initializers["w"].meta[WEIGHT] = True
    InferShapesPass()(model)
    assert not FoldConstantsPass()(model).modified


def test_a_scalar_of_a_shared_weight_is_copied() -> None:
    model = parse("g (float[8] w) => (float[8] y, float p) <int64 one = {1}> { p = Gather(w, one)\n y = Exp(w) }")  # fmt: skip
    add_weights(model, {"w": numbers(8)})
    model.graph.initializers["w"].meta[WEIGHT] = True
    model.graph.append(ir.node("Relu", [model.graph.initializers["w"]]))
    FoldConstantsPass()(model)
    assert "Gather" not in operators(model)


def test_what_is_made_of_a_weight_is_one() -> None:
    text = "g (float[2] x, float[2] w) => (float[2] y) <float[2] a = {1.0, 2.0}> {\n v = Add(w, a)\n b = Neg(a)\n u = Mul(x, v)\n y = Add(u, b) }"  # fmt: skip
    model = add_weights(parse(text), {"w": numbers(2)})
    model.graph.initializers["w"].meta[WEIGHT] = True
    check(model, FoldConstantsPass(), inputs=[numbers(2)])
    weights = {name: WEIGHT in value.meta for name, value in model.graph.initializers.items()}
    assert weights == {"v": True, "b": False}


def test_an_operator_is_computed_as_its_version_says() -> None:
    model = parse("g (float[1,2] x) => (float[1,2] y) <float[2] a = {1.0, 2.0}> { u = Unsqueeze<axes=[0]>(a)\n y = Add(x, u) }", opset=11, ir_version=8)  # fmt: skip
    check(model, FoldConstantsPass(), inputs=[numbers(1, 2)])
    assert operators(model) == ["Add"]


def test_strings_are_not_computed() -> None:
    model = parse('g () => (string[1] y) { a = Constant<value_strings: strings = ["a"]>()\n y = Concat<axis=0>(a, a) }')  # fmt: skip
    LiftConstantsPass()(model)
    InferShapesPass()(model)
    rewrite = FoldConstantsPass()
    assert not rewrite(model).modified
    assert rewrite.refusals.lines() == ("Concat 'y': it computes with strings",)


def test_one_run_computes_no_more_than_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """What costs more than is left of it is for the next run; cheaper nodes behind it are not."""
    monkeypatch.setattr(fold_constants, "BUDGET", 10)
    text = """g (float[4] x, float[4] w, float[2] v) => (float[4] y, float[2] z) {
 a = Neg(w)
 b = Abs(a)
 c = Exp(b)
 d = Neg(v)
 y = Add(x, c)
 z = Abs(d) }"""
    model = add_weights(parse(text), {"w": numbers(4), "v": numbers(2)})
    rewrite = FoldConstantsPass()
    rewrite(model)
    assert operators(model) == ["Exp", "Add", "Abs"]
    assert rewrite.refusals.lines() == (
        "Exp 'c': this run of the pass has computed enough",
        "Abs 'z': this run of the pass has computed enough",
    )
    FoldConstantsPass()(model)
    assert operators(model) == ["Add", "Identity"]


def test_results_that_nobody_reads_are_not_kept() -> None:
    model = parse("g (float[2] x) => (float[2] y) <float[4] a = {1.0, 2.0, 3.0, 4.0}> { b, c = Split<num_outputs=2>(a)\n y = Add(x, c) }")  # fmt: skip
    check(model, FoldConstantsPass(), inputs=[numbers(2)])
    assert list(model.graph.initializers) == ["c"]


def test_operands_that_others_read_stay() -> None:
    model = parse("g (float[2] x) => (float[2] y, float[2] a) <float[2] a = {1.0, 2.0}, float[2] k = {3.0, 4.0}> { b = Add(a, k)\n t = Add(x, b)\n y = Mul(t, k) }")  # fmt: skip
    check(model, FoldConstantsPass(), inputs=[numbers(2)])
    assert set(model.graph.initializers) == {"a", "b", "k"}
