from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.bodies import MOST_NODES
from samba_onnx.passes.rewrites.lift_constants import LiftConstantsPass
from samba_onnx.passes.rewrites.unpack_sequences import UnpackSequencesPass
from samba_onnx.passes.rewrites.unroll_loops import OLDEST, UnrollLoopsPass
from tests.passes.rewrites.applying import Knows, KnowsAll, check, numbers, operators, parse

X = numbers(2, 4)
BODY = """b (int64 i, bool go, float[2,4] s) => (bool on, float[2,4] t, float[2,4] r) {
    on = Identity(go)
    f = CastLike(i, s)
    m = Mul(s, x)
    t = Add(m, f)
    r = Tanh(t)
}"""
KNOWN = Knows("Add", "CastLike", "Mul", "Tanh")


def looped(
    operands: str = "n, yes, x",
    body: str = BODY,
    *,
    target: Any = KNOWN,
    inputs: Sequence[Any] = (X,),
    arguments: str = "float[2,4] x",
    modified: bool = True,
) -> list[str]:
    """Unroll a Loop over x; return the operators that are left."""
    text = f"""g ({arguments}) => (float[2,4] last, float[k,2,4] all)
<int64 n = {{3}}, int64 none = {{0}}, bool yes = {{1}}, bool no = {{0}}> {{
  last, all = Loop ({operands}) <body = {body}>
}}"""
    model = parse(text)
    LiftConstantsPass()(model)
    check(model, UnrollLoopsPass(target), inputs=inputs, modified=modified)
    return operators(model)


def test_steps_of_a_known_number_stand_one_behind_the_other() -> None:
    left = looped()
    assert left.count("Mul") == left.count("Tanh") == 3
    assert left.count("Concat") == 1
    assert "Loop" not in left


def test_a_loop_without_a_condition_is_unrolled() -> None:
    assert "Loop" not in looped('n, "", x')


def test_a_condition_that_the_body_sets_to_true_is_no_condition() -> None:
    body = BODY.replace("on = Identity(go)", "on = Identity(yes)")
    assert "Loop" not in looped(body=body)


@pytest.mark.parametrize(
    ("operands", "body"),
    [
        ("count, yes, x", BODY),
        ("n, test, x", BODY),
        ('"", yes, x', BODY.replace("on = Identity(go)", "on = Identity(no)")),
        ("n, yes, x", BODY.replace("on = Identity(go)", "h = Identity(test)\n on = Not(h)")),
        ("n, no, x", BODY),
        ("none, yes, x", BODY),
    ],
)
def test_loops_whose_steps_are_only_known_at_run_time_or_none_stay(
    operands: str, body: str
) -> None:
    left = looped(
        operands,
        body,
        arguments="float[2,4] x, int64 count, bool test",
        inputs=(X, np.array(2), np.array(True)),
        modified=False,
    )
    assert left == ["Loop"]


def test_a_body_that_the_target_does_not_know_stays_whole() -> None:
    assert looped(target=Knows("Add", "CastLike", "Mul"), modified=False) == ["Loop"]


def test_a_loop_of_very_many_steps_stays() -> None:
    assert MOST_NODES == 4096
    # 5 nodes of the body and one that puts its result together.
    for steps, modified in ((682, True), (683, False)):
        text = f"n = {{{steps}}}"
        model = parse(
            f"""g (float[2,4] x) => (float[2,4] last, float[k,2,4] all)
<int64 {text}, bool yes = {{1}}> {{ last, all = Loop (n, yes, x) <body = {BODY}> }}"""
        )
        LiftConstantsPass()(model)
        assert UnrollLoopsPass(KNOWN)(model).modified == modified


def test_an_inner_loop_is_unrolled_before_the_outer_one() -> None:
    inner = """c (int64 j, bool go2, float[2,4] u) => (bool on2, float[2,4] v) {
        on2 = Identity(go2)
        v = Add(u, x)
    }"""
    body = f"""b (int64 i, bool go, float[2,4] s) => (bool on, float[2,4] t, float[2,4] r) {{
        on = Identity(go)
        t = Loop (n, yes, s) <body = {inner}>
        r = Tanh(t)
    }}"""
    left = looped(body=body)
    assert left.count("Add") == 9
    assert left.count("Tanh") == 3


def test_tensors_that_steps_put_into_a_sequence_come_out_of_it() -> None:
    body = """b (int64 i, bool go, float[2,4] s, seq(float[2,4]) q)
        => (bool on, float[2,4] t, seq(float[2,4]) p) {
        on = Identity(go)
        t = Mul(s, x)
        p = SequenceInsert(q, t)
    }"""
    model = parse(f"""g (float[2,4] x) => (float[2,4] last, float[2,12] all)
<int64 n = {{3}}, bool yes = {{1}}> {{
  q0 = SequenceEmpty<dtype = 1>()
  last, rows = Loop (n, yes, x, q0) <body = {body}>
  all = ConcatFromSequence<axis = 1>(rows)
}}""")
    LiftConstantsPass()(model)
    check(model, UnrollLoopsPass(KNOWN), UnpackSequencesPass(), inputs=[X])
    ir.passes.common.RemoveUnusedNodesPass()(model)
    assert [name for name in operators(model) if name != "Identity"] == ["Mul"] * 3 + ["Concat"]


@pytest.mark.parametrize("place", ["first", "back", "end"])
def test_a_tensor_is_inserted_at_its_place(place: str) -> None:
    model = parse(f"""g (float[2,4] x) => (float[2,12] y)
<int64 first = {{0}}, int64 back = {{-1}}, int64 end = {{2}}> {{
  a = Neg(x)
  b = Abs(x)
  s = SequenceConstruct(x, a)
  t = SequenceInsert(s, b, {place})
  y = ConcatFromSequence<axis = 1>(t)
}}""")
    check(model, UnpackSequencesPass(), inputs=[X])
    ir.passes.common.RemoveUnusedNodesPass()(model)
    assert operators(model) == ["Neg", "Abs", "Concat"]


SCAN = """b (float[4] s, float[4] e) => (float[4] t, float[4] r) {
    m = Mul(s, e)
    t = Add(m, e)
    r = Tanh(t)
}"""


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ("", "2,4"),
        ("scan_input_directions = [1], scan_output_directions = [1], ", "2,4"),
        ("scan_input_axes = [-2], scan_output_axes = [-1], ", "4,2"),
        ("scan_output_axes = [1], scan_output_directions = [1], ", "4,2"),
    ],
)
def test_a_scan_is_unrolled_in_its_direction_and_along_its_axes(options: str, shape: str) -> None:
    model = parse(f"""g (float[4] s, float[2,4] x) => (float[4] last, float[{shape}] all) {{
  last, all = Scan <num_scan_inputs = 1, {options} body = {SCAN}> (s, x)
}}""")
    check(model, UnrollLoopsPass(KnowsAll()), inputs=[numbers(4, seed=1), X])
    assert operators(model).count("Tanh") == 2
    assert "Scan" not in operators(model)


def test_a_scan_over_an_unknown_length_stays() -> None:
    model = parse(f"""g (float[4] s, float[n,4] x) => (float[4] last, float[n,4] all) {{
  last, all = Scan <num_scan_inputs = 1, body = {SCAN}> (s, x)
}}""")
    check(model, UnrollLoopsPass(KnowsAll()), inputs=[numbers(4, seed=1), X], modified=False)


def test_a_body_with_a_branch_waits() -> None:
    body = """b (int64 i, bool go, float[2,4] s) => (bool on, float[2,4] t, float[2,4] r) {
        on = Identity(go)
        t = If (go) <then_branch = p () => (float[2,4] a) { a = Neg(s) },
                     else_branch = q () => (float[2,4] e) { e = Abs(s) }>
        r = Tanh(t)
    }"""
    assert looped(body=body, target=KnowsAll(), modified=False) == ["Loop"]


def test_the_oldest_version_is_unrolled_and_one_before_it_is_not() -> None:
    text = f"""g (float[2,4] x) => (float[2,4] last, float[k,2,4] all)
    <int64 n = {{3}}, bool yes = {{1}}> {{ last, all = Loop (n, yes, x) <body = {BODY}> }}"""
    for opset in (OLDEST - 1, OLDEST):
        model = parse(text, opset=opset)
        LiftConstantsPass()(model)
        assert UnrollLoopsPass(KnowsAll())(model).modified == (opset == OLDEST)
