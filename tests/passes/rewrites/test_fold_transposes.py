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
