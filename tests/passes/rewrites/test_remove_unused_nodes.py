from __future__ import annotations

import numpy as np
import pytest
from onnx_ir.passes import common

from samba_onnx.passes.rewrites.remove_unused_nodes import RemoveUnusedNodesPass
from tests.passes.rewrites.applying import check, numbers, operators, parse

CHAIN = """g (float[4] x) => (float[4] y) <float[4] w = {1, 2, 3, 4}> {
    a = Add (x, w) b = Tanh (a) c = Sin (b) kept = Relu (x) d = Mul (c, kept) y = Neg (kept) }"""
BODY = """g (float[4] x, bool c) => (float[4] y) {
    a = Tanh (x)
    y = If (c) <
        then_branch = t () => (float[4] p) { q = Sin (a) p = Relu (x) },
        else_branch = e () => (float[4] r) { r = Neg (x) }
    >
}"""
OPTIONAL = "g (float[4] x) => (float[4] y) { y, mask = Dropout (x) z, other = Dropout (y) }"


@pytest.mark.parametrize("text", [CHAIN, BODY, OPTIONAL])
def test_what_is_left_is_what_onnx_ir_leaves(text: str) -> None:
    ours, other = parse(text), parse(text)
    inputs = [numbers(4), np.array(True)][: len(ours.graph.inputs)]
    check(ours, RemoveUnusedNodesPass(), inputs=inputs)
    common.RemoveUnusedNodesPass()(other)
    for one, expected in zip(ours.graph.all_nodes(), other.graph.all_nodes(), strict=True):
        assert one.op_type == expected.op_type
        assert [str(value) for value in one.outputs] == [str(value) for value in expected.outputs]
    assert list(ours.graph.initializers) == list(other.graph.initializers)


def test_a_chain_goes_from_its_end() -> None:
    assert operators(check(parse(CHAIN), RemoveUnusedNodesPass(), inputs=[numbers(4)])) == [
        "Relu",
        "Neg",
    ]


def test_what_is_read_stays() -> None:
    text = "g (float[4] x) => (float[4] y, float[4] a) { a = Tanh (x) b = Sin (a) y = Neg (b) }"
    model = check(parse(text), RemoveUnusedNodesPass(), inputs=[numbers(4)], modified=False)
    assert operators(model) == ["Tanh", "Sin", "Neg"]
