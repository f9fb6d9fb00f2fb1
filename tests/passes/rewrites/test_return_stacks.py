"""Sequences that a loop fills, as tensors of all steps."""

from __future__ import annotations

import pytest

from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.lift_constants import LiftConstantsPass
from samba_onnx.passes.rewrites.remove_unused_nodes import RemoveUnusedNodesPass
from samba_onnx.passes.rewrites.return_stacks import ReturnStacksPass
from samba_onnx.passes.rewrites.unroll_loops import UnrollLoopsPass
from tests.passes.rewrites.applying import KnowsAll, check, numbers, operators, parse

SEQUENCES = """g (float[2, 3] x) => (float[a, b, c] y{more}) <int64 n = {{4}}, bool true = {{1}}> {{
  empty = SequenceEmpty () last, all = Loop (n, true, x, empty) <body = b
    (int64 i, bool k, float[2, 3] s, seq(float[2, 3]) q) => (bool go, float[2, 3] t, seq(float[2, 3]) r) {{
      go = Identity(k) t = Tanh(s) {insert} }}>
  {read}
}}"""
APPEND = "r = SequenceInsert(q, t)"
STACKED = {
    "first": ("y = ConcatFromSequence <axis = 0, new_axis = 1> (all)", ["Identity"]),
    "middle": ("y = ConcatFromSequence <axis = 1, new_axis = 1> (all)", ["Transpose"]),
    "last": ("y = ConcatFromSequence <axis = -1, new_axis = 1> (all)", ["Transpose"]),
    "one of them": (
        """p = Constant <value_int = 2> () one = SequenceAt(all, p) z = Constant <value_ints = [0]> ()
        y = Unsqueeze(one, z)""",
        ["Gather", "Unsqueeze"],
    ),
    "both": (
        """p = Constant <value_int = 1> () one = SequenceAt(all, p)
        whole = ConcatFromSequence <axis = 0, new_axis = 1> (all) y = Add(whole, one)""",
        ["Gather", "Identity", "Add"],
    ),
}


@pytest.mark.parametrize(("read", "found"), STACKED.values(), ids=STACKED.keys())
def test_a_sequence_of_all_steps_is_one_tensor(read: str, found: list[str]) -> None:
    model = parse(SEQUENCES.format(insert=APPEND, read=read, more=""))
    LiftConstantsPass()(model)
    InferShapesPass()(model)
    check(model, ReturnStacksPass(), inputs=[numbers(2, 3)])
    assert operators(model)[2:] == found
    (loop,) = [node for node in model.graph if node.op_type == "Loop"]
    assert "SequenceInsert" not in [
        node.op_type for node in loop.attributes["body"].as_graph() if node.outputs[0].uses()
    ]
    check(model, UnrollLoopsPass(KnowsAll()), inputs=[numbers(2, 3)])


KEPT_SEQUENCES = {
    "a place": (
        "z = Constant <value_int = 0> () r = SequenceInsert(q, t, z)",
        "y = ConcatFromSequence <axis = 0, new_axis = 1> (all)",
        "says where it inserts",
    ),
    "an output": (
        APPEND,
        "y = ConcatFromSequence <axis = 0, new_axis = 1> (all) seen = SequenceLength(all)",
        "read by more than",
    ),
    "the last one": (
        APPEND,
        """p = Constant <value_int = -1> () one = SequenceAt(all, p) z = Constant <value_ints = [0]> ()
        y = Unsqueeze(one, z)""",
        "read by more than",
    ),
    "an axis that there is": (
        APPEND,
        """w = ConcatFromSequence <axis = 0> (all) z = Constant <value_ints = [0]> () y = Unsqueeze(w, z)""",
        "read by more than",
    ),
}


@pytest.mark.parametrize(
    ("insert", "read", "reason"), KEPT_SEQUENCES.values(), ids=KEPT_SEQUENCES.keys()
)
def test_sequences_that_are_more_than_a_stack_stay(insert: str, read: str, reason: str) -> None:
    model = parse(SEQUENCES.format(insert=insert, read=read, more=""))
    LiftConstantsPass()(model)
    InferShapesPass()(model)
    rewrite = ReturnStacksPass()
    check(model, rewrite, inputs=[numbers(2, 3)], modified=False)
    assert reason in "; ".join(rewrite.refusals.lines())


def test_several_sequences_are_returned_by_one_loop() -> None:
    text = """g (float[2] x) => (float[a, b] y, float[c, d] z) <int64 n = {3}, bool true = {1}> {
      e = SequenceEmpty () f = SequenceEmpty () last, p, q = Loop (n, true, x, e, f) <body = b
        (int64 i, bool k, float[2] s, seq(float[2]) u, seq(float[2]) v)
        => (bool go, float[2] t, seq(float[2]) uu, seq(float[2]) vv) {
          go = Identity(k) t = Tanh(s) w = Neg(s) uu = SequenceInsert(u, t) vv = SequenceInsert(v, w) }>
      y = ConcatFromSequence <axis = 0, new_axis = 1> (p)
      z = ConcatFromSequence <axis = 1, new_axis = 1> (q) }"""
    model = parse(text)
    InferShapesPass()(model)
    check(model, ReturnStacksPass(), inputs=[numbers(2)])
    check(model, UnrollLoopsPass(KnowsAll()), inputs=[numbers(2)])
    check(model, RemoveUnusedNodesPass(), inputs=[numbers(2)])
    assert not any("Sequence" in operator for operator in operators(model))
