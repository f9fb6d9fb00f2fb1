"""Roundings behind each other: those that move numbers count nothing."""

from __future__ import annotations

import onnx_ir as ir
import pytest
from onnx import parser

from samba_onnx.comparing.rounding_depth import rounding_depth


@pytest.mark.parametrize(
    ("nodes", "depth"),
    [
        ("y = Transpose(x)", 0),
        ("a = Relu(x) b = Reshape(a, s) y = Identity(b)", 0),
        ("a = Exp(x) b = Transpose(a) y = Exp(b)", 2),
        ("k = Constant<value_float = 2.0>() y = Mul(x, k)", 1),
        ("a = Exp(x) b = Exp(a) k = Exp(b) d = Exp(x) y = Add(k, d)", 4),
        ("a = Exp(x) b = Exp(x) k = Exp(x) y = Max(a, b, k)", 1),
        (
            "a = Exp(x) y = If(c) <then_branch = t () => (float q) { b = Exp(a) q = Exp(b) }, "
            "else_branch = e () => (float r) { r = Identity(a) }>",
            3,
        ),
    ],
)
def test_the_longest_chain_counts(nodes: str, depth: int) -> None:
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> '
        f"g (float[2,2] x, bool c, int64[2] s) => (float[2,2] y) {{ {nodes} }}"
    )
    assert rounding_depth(ir.from_proto(parser.parse_model(text))) == depth
