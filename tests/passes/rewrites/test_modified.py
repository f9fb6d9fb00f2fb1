from __future__ import annotations

import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.drop_empty_operands import DropEmptyOperandsPass
from samba_onnx.passes.rewrites.expand_foreign import ExpandForeignPass
from samba_onnx.passes.rewrites.expand_quantization import ExpandQuantizationPass
from samba_onnx.passes.rewrites.lift_constants import LiftConstantsPass
from samba_onnx.passes.rewrites.simplify_concats import SimplifyConcatsPass
from samba_onnx.passes.rewrites.unroll_loops import UnrollLoopsPass
from tests.passes.rewrites.applying import Knows, parse

ARITHMETIC = ("Add", "Cast", "Clip", "Div", "Mul", "Neg", "Round", "Sigmoid", "Sub")
BODY = "(int64 i, bool go, float[2] s) => (bool on, float[2] t) { on = Identity(go)\n t = Neg(s) }"


@pytest.mark.parametrize(
    ("rewrite", "text"),
    [
        (
            DropEmptyOperandsPass(),
            """g (float[1,1,2,2] x) => (y, z) <float[4] s = {1.0,1.0,2.0,2.0}> {
                e = Constant<value = float[0] {}>()
                y = Resize(x, e, s)
                z = Resize(x, , s)
            }""",
        ),
        (
            ExpandForeignPass(Knows(*ARITHMETIC)),
            """g (float[2] x) => (y, z) {
                y = com.microsoft.QuickGelu<alpha=1.0>(x)
                z = com.microsoft.Gelu(x)
            }""",
        ),
        (
            ExpandQuantizationPass(Knows(*ARITHMETIC)),
            """g (float[2] x, float s, float[2] t) => (int8[2] y, int8[2] z) {
                y = QuantizeLinear<output_dtype=3>(x, s)
                z = QuantizeLinear<output_dtype=3, precision=10>(x, s)
            }""",
        ),
        (
            SimplifyConcatsPass(),
            """g (float[2] x, float[0] e) => (y, z) {
                y = Concat<axis=0>(x, e, x)
                z = Concat<axis=0>(x, x)
            }""",
        ),
        (
            UnrollLoopsPass(Knows(*ARITHMETIC)),
            f"""g (float[2] x, int64 m) => (float[2] y, float[2] z) <int64 n = {{2}}, bool yes = {{1}}> {{
                y = Loop (m, yes, x) <body = b {BODY}>
                z = Loop (n, yes, x) <body = c {BODY}>
            }}""",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, ir.passes.PassBase) else "",
)
@pytest.mark.parametrize("turned", [False, True])
def test_a_node_that_stays_does_not_hide_that_another_changed(
    rewrite: ir.passes.PassBase, text: str, turned: bool
) -> None:
    model = parse(text, imports=', "com.microsoft": 1')
    LiftConstantsPass()(model)
    if turned:
        last = model.graph[-1]
        model.graph.remove(last)
        model.graph.insert_before(model.graph[0], last)
    count = len(model.graph)
    assert rewrite(model).modified
    assert len(model.graph) >= count
    assert not rewrite(model).modified
