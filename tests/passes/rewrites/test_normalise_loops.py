"""Loops as Keras and its like write them: counted steps, and states that never change."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.fold_constants import FoldConstantsPass
from samba_onnx.passes.rewrites.lift_constants import LiftConstantsPass
from samba_onnx.passes.rewrites.loop_counts import MOST_STEPS
from samba_onnx.passes.rewrites.normalise_loops import NormaliseLoopsPass
from samba_onnx.passes.rewrites.remove_unused_nodes import RemoveUnusedNodesPass
from samba_onnx.passes.rewrites.unroll_loops import UnrollLoopsPass
from tests.passes.rewrites.applying import KnowsAll, check, numbers, operators, parse

# The number of steps is counted by what onnxruntime returns: a row for each.
COUNTING = """g (float[2] x{extra}) => (float[2] last, float[n, 2] rows)
<int64 zero = {{0}}, int64 one = {{1}}, int64 limit = {{{limit}}}, int64 big = {{9223372036854775807}},
 bool true = {{1}}, int32 zero32 = {{0}}, int32 three32 = {{3}}, int64 five = {{5}}, bool false = {{0}}> {{
  {before} end, last, rows = Loop ({trips}, {first}, {start}, x) <body = b
    (int64 i, bool k, {kind} c, float[2] s) => (bool go, {kind} next, float[2] t, float[2] row) {{
      t = Relu(s) row = Neg(s) {step} }}>
}}"""


def counting(step: str, **parts: Any) -> ir.Model:
    defaults = {
        "extra": "",
        "limit": 4,
        "before": "",
        "trips": "",
        "first": "true",
        "start": "zero",
        "kind": "int64",
    }
    model = parse(COUNTING.format(**{**defaults, **parts}, step=step))
    LiftConstantsPass()(model)
    FoldConstantsPass()(model)
    return model


COUNTED = {
    "counter below a limit": ("next = Add(c, one) go = Less(next, limit)", {}, 4),
    "the old counter": ("next = Add(c, one) go = Less(c, limit)", {}, 5),
    "two limits as keras has them": (
        "next = Add(c, one) a = Less(next, limit) d = Less(next, big) go = And(a, d)",
        {},
        4,
    ),
    "and the condition before": (
        "next = Add(c, one) a = Less(next, limit) go = And(k, a)",
        {"trips": "big"},
        4,
    ),
    "the trip count ends it": ("next = Add(c, one) go = Less(next, big)", {"trips": "five"}, 5),
    "the condition ends it": ("next = Add(c, one) go = Less(next, limit)", {"trips": "five"}, 4),
    "not at least": ("next = Add(c, one) a = GreaterOrEqual(next, limit) go = Not(a)", {}, 4),
    "the number of the step": ("next = Identity(c) go = Less(i, limit)", {}, 5),
    "down to zero": ("next = Sub(c, one) go = Greater(next, zero)", {"start": "limit"}, 4),
    "steps of two": (
        "two = Constant <value_int = 2> () next = Add(c, two) go = LessOrEqual(next, limit)",
        {},
        3,
    ),
    "doubled": (
        "two = Constant <value_int = 2> () next = Mul(c, two) go = Less(next, limit)",
        {"start": "one", "limit": 33},
        6,
    ),
    "narrow": (
        "n = Constant <value = int32 {1}> () next = Add(c, n) go = Less(next, three32)",
        {"start": "zero32", "kind": "int32"},
        3,
    ),
    "cast": (
        "next = Add(c, one) d = Cast <to = 6> (next) go = Less(d, three32)",
        {},
        3,
    ),
    "compared as floats": (
        """next = Add(c, one) d = Cast <to = 1> (next) e = Cast <to = 1> (limit) go = Less(d, e)""",
        {},
        4,
    ),
    "fractions": (
        """tenth = Constant <value = float {0.1}> () next = Add(c, tenth) full = Constant <value = float {1}> ()
        go = Less(next, full)""",
        {
            "kind": "float",
            "start": "nothing",
            "before": "nothing = Constant <value = float {0}> ()",
        },
        10,
    ),
    "squeezed": (
        """a = Constant <value_ints = [0]> () next = Add(c, one) u = Unsqueeze(next, a) v = Squeeze(u, a)
        go = Less(v, limit)""",
        {},
        4,
    ),
    "false at once": ("next = Add(c, one) go = Identity(false)", {}, 1),
    "first computed": (
        "next = Add(c, one) go = Less(next, limit)",
        {"before": "f = Less(zero, limit)", "first": "f"},
        4,
    ),
    "begun without condition": (
        "next = Add(c, one) go = Less(next, limit)",
        {"trips": "five", "first": ""},
        4,
    ),
}


@pytest.mark.parametrize(("step", "parts", "steps"), COUNTED.values(), ids=COUNTED.keys())
def test_steps_are_counted(step: str, parts: dict[str, Any], steps: int) -> None:
    model = counting(step, **parts)
    check(model, NormaliseLoopsPass(), inputs=[numbers(2)])
    (loop,) = [node for node in model.graph if node.op_type == "Loop"]
    assert loop.inputs[0] is not None
    assert loop.inputs[0].const_value is not None
    assert loop.inputs[0].const_value.numpy().item() == steps
    # Once is enough, and what counted goes: a device repeats the body, or it is unrolled.
    assert not NormaliseLoopsPass()(model).modified
    check(model, RemoveUnusedNodesPass(), inputs=[numbers(2)], modified=None)
    body = loop.attributes["body"].as_graph()
    assert not {"Less", "And", "Greater", "Not"} & {node.op_type for node in body}
    check(model, UnrollLoopsPass(KnowsAll()), inputs=[numbers(2)])
    assert "Loop" not in operators(model)


LEFT = {
    "an input is the limit": (
        "next = Add(c, one) go = Less(next, top)",
        {"extra": ", int64 top"},
        "its condition is only known at run time",
    ),
    "an input is the trip count": (
        "next = Add(c, one) go = Less(next, limit)",
        {"extra": ", int64 top", "trips": "top"},
        "its number of steps is only known at run time",
    ),
    "an input begins": (
        "next = Add(c, one) go = Less(next, limit)",
        {"extra": ", bool top", "first": "top"},
        "its first condition is only known at run time",
    ),
    "an input is the first state": (
        "next = Add(c, one) go = Less(next, limit)",
        {"extra": ", int64 top", "start": "top"},
        "its condition is only known at run time",
    ),
    "data decide": (
        "next = Add(c, one) m = ReduceMax <keepdims = 0> (s) z = Cast <to = 7> (m) go = Less(z, limit)",
        {},
        "is no number that is known",
    ),
    "beyond a type": (
        """next = Add(c, one) f = Cast <to = 1> (big) m = Mul(f, f) d = Cast <to = 7> (m) go = Less(d, limit)""",
        {},
        "a fraction is cast to an integer type that lacks it",
    ),
    "it never ends": (
        "next = Add(c, one) go = Less(zero, one)",
        {},
        f"more than {MOST_STEPS:,} steps",
    ),
    "stated": ("next = Add(c, one) go = Identity(k)", {"trips": "five"}, "stated already"),
}


@pytest.mark.parametrize(("step", "parts", "reason"), LEFT.values(), ids=LEFT.keys())
def test_what_is_known_at_run_time_stays(step: str, parts: dict[str, Any], reason: str) -> None:
    rewrite = NormaliseLoopsPass()
    assert not rewrite(counting(step, **parts)).modified
    assert reason in "; ".join(rewrite.refusals.lines())


def test_arithmetic_of_counters_wraps_as_that_of_onnxruntime() -> None:
    """An int32 that is multiplied beyond its range comes back negative, and ends the loop."""
    model = counting(
        "m = Constant <value = int32 {70000}> () next = Mul(c, m) z = Constant <value = int32 {0}> () go = Greater(next, z)",
        start="three32",
        kind="int32",
    )
    check(model, NormaliseLoopsPass(), inputs=[numbers(2)])


def test_a_state_that_no_step_changes_is_read_outside() -> None:
    text = """g (float[3] x, float[3, 3] w) => (float[3] y) <int64 n = {4}, bool true = {1}> {
      h = Tanh(w) y, same = Loop (n, true, x, h) <body = b (int64 i, bool k, float[3] s, float[3, 3] v)
        => (bool go, float[3] t, float[3, 3] u) { go = Identity(k) t = MatMul(v, s) u = Identity(v) }> }"""
    model = parse(text)
    check(model, NormaliseLoopsPass(), inputs=[numbers(3), numbers(3, 3)])
    (loop,) = [node for node in model.graph if node.op_type == "Loop"]
    product = next(n for n in loop.attributes["body"].as_graph() if n.op_type == "MatMul")
    assert product.inputs[0] is model.graph[0].outputs[0]
    assert not NormaliseLoopsPass()(model).modified
