"""Values that no memory holds are refused by the node that computes them."""

from __future__ import annotations

import onnx_ir as ir
import pytest

import samba_onnx
from samba_onnx.errors import InvalidModelError, ModelLimitError
from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.refuse_giants import RefuseGiantsPass
from samba_onnx.safety.limits import DEFAULT_LIMITS
from tests.passes.rewrites.applying import parse

GIANTS = {
    "Resize by scales": "(float[1,1,4,4] x) => (float[a,b,c,d] y) <float[4] s = {1.0,1.0,1000000000.0,1000000000.0}> { y = Resize(x, , s) }",
    "Resize by sizes": "(float[1,1,4,4] x) => (float[a,b,c,d] y) <int64[4] s = {1,1,1000000000,1000000000}> { y = Resize(x, , , s) }",
    "Pad": "(float[1] x) => (float[a] y) <int64[2] p = {0, 4611686018427387904}> { y = Pad(x, p) }",
    "inner": "(float[1,1,4,4] x) => (float y) <float[4] s = {1.0,1.0,1e9,1e9}> { z = Resize(x, , s)\n y = ReduceMax<keepdims=0>(z) }",
    "packed": "(float[4194304,1] x) => (bool[a,b] y) <int64[2] s = {4194304,1048576}> { z = Expand(x, s)\n y = IsNaN(z) }",
    "of two constants": "(float[65536,1] x, float[1,65536] w) => (float[a,b,c] y) <int64[1] a = {0}, int64[3] s = {4096,65536,65536}> { z = MatMul(x, w)\n e = Unsqueeze(z, a)\n y = Expand(e, s) }",
}  # fmt: skip


@pytest.mark.parametrize("text", GIANTS.values(), ids=GIANTS)
def test_giants_are_refused_by_their_node(text: str) -> None:
    model = parse(f"g {text.replace('1e9', '1000000000.0')}")
    InferShapesPass()(model)
    with pytest.raises(
        ModelLimitError, match=r"computes \[.*\], which takes .* are safe"
    ) as caught:
        RefuseGiantsPass()(model)
    assert caught.value.operator in ("Resize", "Pad", "Expand")


def test_the_largest_that_is_safe_is_not() -> None:
    size = DEFAULT_LIMITS.tensor_bytes // 4
    text = "g (float[{0}] x) => (float[{0}] y) {{ y = Relu(x) }}"
    RefuseGiantsPass()(parse(text.format(size)))
    with pytest.raises(ModelLimitError, match=r"^input 'x' is \["):
        RefuseGiantsPass()(parse(text.format(size + 1)))


def test_sizes_of_options_are_looked_at() -> None:
    import onnx

    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (float[n] y) { y = Relu(x) }'
    )
    samba_onnx.analyze(model, dims={"n": 1 << 20})
    with pytest.raises(ModelLimitError, match=r"takes 1.15e\+18 bytes"):
        samba_onnx.analyze(model, dims={"n": 1 << 58})


@pytest.mark.parametrize("operator", ["Expand(x, n)", "Tile(x, n)", "ConstantOfShape(n)"])
def test_sizes_below_zero_that_constants_make_are_refused(operator: str) -> None:
    text = f"g (float[1] x) => (float[a] y) <int64[1] m = {{65}}> {{ n = Neg(m)\n y = {operator} }}"
    with pytest.raises(InvalidModelError, match=r"a size cannot be negative"):
        samba_onnx.analyze(ir.to_proto(parse(text)))
