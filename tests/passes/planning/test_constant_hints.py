"""Which inputs a report proposes to fix: those that alone decide what runs."""

from __future__ import annotations

import onnx.parser
import pytest

import samba_onnx
from samba_onnx.report import Report

HEADER = '<ir_version: 10, opset_import: ["" : 21]>\n'
BRANCHES = """<then_branch = t () => (float[a, b] o) { o = Exp(x) },
               else_branch = e () => (float[c, d] p) { p = Neg(x) }>"""
BODY = """<body = l (int64 i, bool k, float[a, b] s) => (bool go, float[a, b] n)
           { go = Identity(k) n = Exp(s) }>"""


def hints(inputs: str, body: str, **options: object) -> set[str]:
    """Return the hints of nodes on the CPU."""
    model = onnx.parser.parse_model(f"{HEADER}g ({inputs}) => (y) {{ {body} }}")
    manifest = samba_onnx.analyze(model, **options)  # type: ignore[arg-type]
    return {reason.hint for reason in Report.from_manifest(manifest).fallbacks}


PROPOSED = {
    "condition": ("float[2, 3] x, bool c", f"y = If (c) {BRANCHES}", "c=VALUE"),
    "comparison": (
        "float[2, 3] x, int64 rate",
        f"k = Constant <value_int = 16000> () c = Equal(rate, k) y = If (c) {BRANCHES}",
        "rate=16000",
    ),
    "two comparisons": (
        "float[2, 3] x, int64 rate",
        f"""k = Constant <value_int = 8> () l = Constant <value_int = 9> () b = Equal(rate, k)
            d = Equal(rate, l) c = Or(b, d) y = If (c) {BRANCHES}""",
        "rate=VALUE",
    ),
    "trip count": ("float[2, 3] x, int64 n", f"y = Loop (n, , x) {BODY}", "n=VALUE"),
    "shape": ("float[2, 3] x, int64[2] s", "r = Reshape(x, s) y = Relu(r)", "s=VALUE"),
    "bound": (
        "float[2, 3] x, int64[1] e",
        "z = Constant <value_ints = [0]> () r = Slice(x, z, e, z) q = Exp(r) y = Sin(q)",
        "e=VALUE",
    ),
}


@pytest.mark.parametrize(("inputs", "body", "option"), PROPOSED.values(), ids=PROPOSED.keys())
def test_an_input_that_alone_decides_is_proposed(inputs: str, body: str, option: str) -> None:
    found = hints(inputs, body)
    assert any(
        f"if this input never changes, fix it: --constant {option}" in hint for hint in found
    )
    # What is proposed is one that works.
    name = option.partition("=")[0]
    value = {"c": True, "rate": 16000, "n": 3, "s": [3, 2], "e": [1]}[name]
    assert not any("--constant" in hint for hint in hints(inputs, body, constants={name: value}))


def test_several_inputs_are_proposed_together() -> None:
    found = hints("float[2, 3] x, int64 a, int64 b", f"c = Less(a, b) y = If (c) {BRANCHES}")
    assert "if these inputs never change, fix them: --constant a=VALUE --constant b=VALUE" in found


NOT_PROPOSED = {
    "data decide": (
        "float[2, 300] x",
        f"z = ReduceMax <keepdims = 0> (x) k = Constant <value_float = 0.0> () c = Less(z, k) y = If (c) {BRANCHES}",
    ),
    "a size decides": (
        "float[n, 3] x, bool b",
        f"""s = Size(x) k = Constant <value_int = 5> () l = Less(s, k) c = And(b, l)
            y = If (c) {BRANCHES}""",
    ),
    "many numbers decide": (
        "float[2, 3] x, bool[64] b",
        f"""f = Cast <to = 7> (b) m = ReduceMax <keepdims = 0> (f) c = Cast <to = 9> (m)
            y = If (c) {BRANCHES}""",
    ),
    "an operator is missing": ("float[2, 3] x, int64 n", "y = Atan(x)"),
}


@pytest.mark.parametrize(("inputs", "body"), NOT_PROPOSED.values(), ids=NOT_PROPOSED.keys())
def test_nothing_is_proposed_where_something_else_decides(inputs: str, body: str) -> None:
    options = {"keep_dynamic": True} if "n, 3" in inputs else {}
    assert not any("--constant" in hint for hint in hints(inputs, body, **options))
