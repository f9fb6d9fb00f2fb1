from __future__ import annotations

import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.fold_transposes import FoldTransposesPass
from tests.passes.rewrites.applying import add_weights, check, numbers, operators, parse

TIED = """g (int64[{shape}] i, float[50,8] w) => (float[{output}] y) {{
 e = Gather(w, i)
 t = Transpose{perm}(w)
 y = MatMul(e, t) }}"""


@pytest.mark.parametrize(
    ("shape", "perm", "found"),
    [
        ("5", "", ["Gemm"]),
        ("2,3", "<perm=[1,0]>", ["Reshape", "Gemm", "Reshape"]),
        ("batch,3", "<perm=[1,0]>", ["Reshape", "Gemm", "Reshape"]),
        ("batch,seq", "<perm=[1,0]>", ["MatMul"]),
    ],
)
def test_a_tied_weight_stays_single(shape: str, perm: str, found: list[str]) -> None:
    import numpy as np

    from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass

    output = ",".join("?" * (shape.count(",") + 2))
    model = parse(TIED.format(shape=shape, perm=perm, output=output))
    add_weights(model, {"w": numbers(50, 8)})
    sizes = [int(dim) if dim.isdigit() else 2 + axis for axis, dim in enumerate(shape.split(","))]
    InferShapesPass()(model)
    check(
        model, FoldTransposesPass(),
        inputs=[np.random.default_rng(0).integers(0, 50, sizes)],
        rtol=1e-5, atol=1e-5, modified=found != ["MatMul"],
    )  # fmt: skip
    alive = [
        n.op_type for n in model.graph if any(o.uses() or o.is_graph_output() for o in n.outputs)
    ]
    assert alive[1:] == found if found != ["MatMul"] else alive[1:] == ["Transpose", "MatMul"]


@pytest.mark.parametrize(("kind", "folded"), [("bfloat16", True), ("int32", False)])
def test_numbers_with_a_fraction_fold(kind: str, folded: bool) -> None:
    model = parse(
        f"g ({kind}[2,8] x, {kind}[4,8] w) => ({kind}[2,4] y, {kind}[4,8] z) "
        "{ t = Transpose(w)\n y = MatMul(x, t)\n z = Neg(w) }"
    )
    add_weights(model, {"w": numbers(4, 8).astype(ir.DataType[kind.upper()].numpy())})
    assert FoldTransposesPass()(model).modified == folded
    assert ("Gemm" in operators(model)) == folded


def test_other_transposes_stay() -> None:
    single = parse(
        "g (float[2,8] x, float[4,8] w) => (float[2,4] y) { t = Transpose(w)\n y = MatMul(x, t) }"
    )
    add_weights(single, {"w": numbers(4, 8)})
    assert not FoldTransposesPass()(single).modified
    computed = parse(
        "g (float[2,8] x, float[4,8] w) => (float[2,4] y, float[4,8] z) { t = Transpose(w)\n y = MatMul(x, t)\n z = Neg(w) }"
    )
    assert not FoldTransposesPass()(computed).modified
    assert operators(computed) == ["Transpose", "MatMul", "Neg"]


def test_a_transpose_that_leaves_the_axes_is_none() -> None:
    model = parse(
        "g (float[2,8] x, float[8,8] w) => (float[2,8] y, float[8,8] z) "
        "{ t = Transpose<perm=[0,1]>(w)\n y = MatMul(x, t)\n z = Neg(w) }"
    )
    add_weights(model, {"w": numbers(8, 8)})
    check(model, FoldTransposesPass(), inputs=[numbers(2, 8)], modified=False)


@pytest.mark.parametrize(("rows", "folds"), [("1,3", True), ("0,3", False), ("0,n", False)])
def test_a_batch_that_may_be_empty_stays(rows: str, folds: bool) -> None:
    model = parse(
        f"g (float[{rows},8] x, float[4,8] w) => (float[{rows},4] y, float[4,8] z) "
        "{ t = Transpose(w)\n y = MatMul(x, t)\n z = Neg(w) }"
    )
    add_weights(model, {"w": numbers(4, 8)})
    sizes = [int(size) if size.isdigit() else 3 for size in rows.split(",")]
    check(
        model, FoldTransposesPass(), inputs=[numbers(*sizes, 8)],
        rtol=1e-5, atol=1e-5, modified=folds,
    )  # fmt: skip


def test_what_is_new_is_named_after_the_product_and_typed() -> None:
    model = parse(
        "g (float[2,3,8] x, float[4,8] w) => (float[2,3,4] y, float[4,8] z) "
        "{ t = Transpose(w)\n y = MatMul(x, t)\n z = Neg(w) }"
    )
    add_weights(model, {"w": numbers(4, 8)})
    FoldTransposesPass()(model)
    flat, gemm = (node for node in model.graph if node.op_type in ("Reshape", "Gemm") and node.outputs[0].name != "y")  # fmt: skip
    assert [value.name for value in (flat.outputs[0], gemm.outputs[0])] == ["y_left", "y_product"]
    assert {flat.outputs[0].dtype, gemm.outputs[0].dtype} == {ir.DataType.FLOAT}
    assert gemm.attributes["transB"].as_int() == 1
    assert {"y_rows", "y_back"} <= set(model.graph.initializers)
