"""Branches and bodies that do not fit the static sizes, and are never executed: the model runs all the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import samba_onnx
from samba_onnx.comparing.verification import run_original, verify

HEADER = '<ir_version: 10, opset_import: ["" : 21]>\n'

# Each takes h of [rows, columns], which is [2, 6] at run time, and would fail on it. It fits other sizes.
MISFITS = {
    "product": "d = MatMul(h, w53)",
    "gemm": "d = Gemm(h, w53)",
    "reshape": "i77 = Constant <value_ints = [7, -1]> () r = Reshape(h, i77) d = ReduceSum(r)",
    "reshape to its own": """s = Shape(h) i = Constant <value_ints = [5]> () t = Concat <axis = 0> (s, i)
        d = Reshape(h, t)""",
    "sum": "d = Add(h, v5)",
    "concat": "d = Concat <axis = 0> (h, w53)",
    "squeeze": "a0 = Constant <value_ints = [0]> () d = Squeeze(h, a0)",
    "split": "p = Constant <value_ints = [4, 4]> () d, f = Split <axis = 1> (h, p)",
    "expand": "e = Constant <value_ints = [3, 3]> () d = Expand(h, e)",
    "gather": "k = Constant <value_ints = [9]> () d = Gather <axis = 1> (h, k)",
    "top": "k = Constant <value_ints = [9]> () d, f = TopK(h, k)",
    "einsum": 'd = Einsum <equation = "ab,bc->ac"> (h, w53)',
    "window": """a = Constant <value_ints = [0, 1]> () u = Unsqueeze(h, a) d = Conv(u, k9)""",
    "pool": "a = Constant <value_ints = [0]> () u = Unsqueeze(h, a) d = MaxPool <kernel_shape = [9]> (u)",
    "arithmetic outside": "d = ConstantOfShape(outside)",
    "arithmetic of sizes": """s = Shape(h) six = Constant <value_ints = [6]> () n = Sub(s, six)
        d = ConstantOfShape(n)""",
}
MAIN = """g (float[rows, columns] x, {decider}) => (float[] y)
<float[5, 3] w53 = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}}, float[5] v5 = {{1, 2, 3, 4, 5}},
 float[1, 1, 9, 9] k9 = {{{ones}}}>
{{ size = Shape(x) five = Constant <value_ints = [5]> () outside = Sub(size, five) {body} }}"""
ONES = ", ".join(["1"] * 81)
BRANCHES = "then_branch = t () => (float[] o) {{ {then} }}, else_branch = e () => (float[] o) {{ {other} }}"


def _branches(misfit: str, *, dead: bool) -> str:
    """Two branches, of which the one that is taken when the condition is ``dead`` does not fit."""
    wrong = f"{misfit} o = ReduceSum <keepdims = 0> (d)"
    live = "o = ReduceSum <keepdims = 0> (h)"
    return BRANCHES.format(then=wrong if dead else live, other=live if dead else wrong)


def _if(misfit: str, dead: bool) -> tuple[str, str, np.ndarray]:
    body = f"h = Relu(x) y = If (c) <{_branches(misfit, dead=dead)}>"
    return "bool c", body, np.array(not dead)


def _if_of_an_input(misfit: str, dead: bool) -> tuple[str, str, np.ndarray]:
    branches = (
        _branches(misfit, dead=dead).replace("(h", "(x").replace("Concat <axis = 0> (h", "(x")
    )
    return "bool[1] c", f"y = If (c) <{branches}>", np.array([not dead])


def _nested(misfit: str, dead: bool) -> tuple[str, str, np.ndarray]:
    inner = f"h = Neg(outer) chosen = If (c) <{_branches(misfit, dead=dead)}> o1 = Identity(chosen)"
    live = "o1 = ReduceMax <keepdims = 0> (outer)"
    branches = BRANCHES.format(then=inner if not dead else live, other=live if not dead else inner)
    branches = branches.replace("float[] o) { h", "float[] o1) { h").replace(
        "float[] o) { o1", "float[] o1) { o1"
    )
    return "bool c", f"outer = Relu(x) y = If (c) <{branches}>", np.array(not dead)


def _loop(misfit: str, dead: bool) -> tuple[str, str, np.ndarray]:
    step = f"go = Identity(keep) {misfit} b = ReduceSum <keepdims = 0> (d) later = Add(sofar, b)"
    body = f"""h = Relu(x) zero = ReduceMax <keepdims = 0> (h)
        y = Loop (m, , zero) <body = l (int64 turn, bool keep, float[] sofar) => (bool go, float[] later)
            {{ {step} }}>"""
    return "int64 m", body, np.array(0)


def _if_in_a_loop(misfit: str, dead: bool) -> tuple[str, str, np.ndarray]:
    branches = _branches(misfit, dead=dead)
    body = f"""h = Relu(x) zero = ReduceMax <keepdims = 0> (h) m = Constant <value_int = 3> ()
        y = Loop (m, , zero) <body = l (int64 turn, bool keep, float[] sofar) => (bool go, float[] later)
            {{ go = Identity(keep) chosen = If (c) <{branches}> later = Add(sofar, chosen) }}>"""
    return "bool c", body, np.array(not dead)


PLACES = {
    "if": _if,
    "if of an input": _if_of_an_input,
    "nested": _nested,
    "loop": _loop,
    "if in a loop": _if_in_a_loop,
}


@pytest.mark.parametrize("dead", [True, False], ids=["then", "else"])
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
@pytest.mark.parametrize("misfit", MISFITS.values(), ids=MISFITS.keys())
def test_what_is_not_executed_need_not_fit(
    misfit: str, place: object, dead: bool, tmp_path: Path
) -> None:
    decider, body, value = place(misfit, dead)  # type: ignore[operator]
    text = MAIN.format(decider=decider, body=body, ones=ONES)
    model = onnx.parser.parse_model(HEADER + text)
    name = decider.split()[-1]
    rng = np.random.default_rng(0)
    inputs = {"x": rng.standard_normal((2, 6)).astype(np.float32), name: value}
    run_original(model, inputs)  # the model itself is one that runs
    with samba_onnx.convert(
        model, tmp_path / "m.pef", dims={"rows": 2, "columns": 6}, sample=False
    ) as pef:
        assert verify(model, pef, inputs=inputs).passed
    constants = {name: value}
    with samba_onnx.convert(
        model,
        tmp_path / "f.pef",
        dims={"rows": 2, "columns": 6},
        constants=constants,
        sample=False,
    ) as pef:
        assert not pef.manifest.fallbacks
        assert verify(model, pef).passed
