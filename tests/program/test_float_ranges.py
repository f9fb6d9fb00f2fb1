"""Logarithms, roots and the like say which numbers an input can hold."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser

import samba_onnx
from samba_onnx.program.float_ranges import float_ranges
from samba_onnx.program.intervals import Interval

HEADER = '<ir_version: 10, opset_import: ["" : 21]>'
WEIGHTS = "<float one = {1}, float[1] half = {0.5}, float two = {2}, int64[2] flat = {-1, 1}>"
FREE = Interval()


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("y = Sqrt(x)", Interval(0)),
        ("y = Acosh(x)", Interval(1)),
        ("y = Atanh(x)", Interval(-1, 1)),
        ("a = Transpose(x) b = Reshape(a, flat) c = Log(b) y = Neg(c)", Interval(0)),
        ("a = Log(x) b = Sub(one, x) c = Log(b) y = Add(a, c)", Interval(0, 1)),
        ("a = Add(x, half) y = Sqrt(a)", Interval(-0.5)),
        ("y = Pow(x, half)", Interval(0)),
        ("y = Pow(x, two)", FREE),
        ("a = Mul(x, x) y = Sqrt(a)", FREE),  # defined for all of them
        ("a = Exp(x) y = Log(a)", FREE),
        ("a = Log(x) b = Neg(x) c = Log(b) y = Add(a, c)", Interval(0)),
        ("y = Exp(x)", FREE),
    ],
)
def test_what_a_graph_is_defined_for(nodes: str, expected: Interval) -> None:
    text = f"{HEADER} g (float[3,4] x) => (float[?,?] y) {WEIGHTS} {{ {nodes} }}"
    graph = ir.from_proto(parser.parse_model(text)).graph
    assert float_ranges(graph) == ({} if expected == FREE else {"x": expected})


def test_a_verification_of_logarithms_compares_numbers(tmp_path: Path) -> None:
    """Of a normally distributed input half of them would be none, and one was as good as another."""
    text = "g (float[64] p, float[64] t) => (float[64] y) <float one = {1}> {"
    text += " a = Log(p) b = Sub(one, p) c = Log(b) d = Mul(t, a) y = Add(d, c) }"
    model = parser.parse_model(f"{HEADER} {text}")
    with samba_onnx.convert(model, tmp_path / "m.pef") as pef:
        assert samba_onnx.verify(model, pef).passed
        for run in range(3):
            assert np.isfinite(pef.reference_outputs(run)["y"]).all()
            numbers = pef.reference_inputs(run)
            assert 0 < numbers["p"].min() < 0.2 < 0.8 < numbers["p"].max() < 1
            assert math.isclose(float(numbers["t"].std()), 1, abs_tol=0.4)
