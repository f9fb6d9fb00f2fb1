from __future__ import annotations

import pytest

from tests.passes.rewrites.applying import numbers
from tests.passes.rewrites.legalisation.legalising import UNROLLING, legalised, refusal

BODY = """body = b (int64 i, bool c, float[2,3] s) => (bool d, float[2,3] t, float[2,3] o)
 { d = Identity(c)
 f = Cast<to=1>(i)
 t = Add(s, x)
 o = Mul(t, f) }"""
HEAD = "g (float[2,3] x) => (float[2,3] y, float[a,b,e] z)"


def test_a_loop_becomes_its_steps() -> None:
    text = f"{HEAD} <int64 n = {{4}}, bool go = {{1}}> {{ y, z = Loop<{BODY}>(n, go, x) }}"
    made = legalised(text, [numbers(2, 3)])
    assert made.count("Add") == 4
    assert "Cast" not in made, "the number of a step is a constant"


def test_a_condition_may_be_left_out() -> None:
    text = f"{HEAD} <int64 n = {{2}}> {{ y, z = Loop<{BODY}>(n, , x) }}"
    legalised(text, [numbers(2, 3)])


@pytest.mark.parametrize(
    ("constants", "body", "reason"),
    [
        ("int64 n = {820}", BODY, "it would become 5,741 nodes, more than 4,096"),
        (
            "int64 n = {0}",
            BODY,
            "it makes no step, and returns tensors without elements",
        ),
        (
            "int64 n = {3}",
            BODY.replace("d = Identity(c)", "d = Not(c)"),
            "its body computes whether it goes on",
        ),
    ],
)
def test_loops_that_stay(constants: str, body: str, reason: str) -> None:
    text = f"{HEAD} <{constants}> {{ y, z = Loop<{body}>(n, , x) }}"
    assert refusal(text, target=UNROLLING) == f"Loop 'y': {reason}"


def test_a_number_of_steps_that_is_computed_stays() -> None:
    text = f"{HEAD.replace('x)', 'x, int64 n)')} {{ y, z = Loop<{BODY}>(n, , x) }}"
    assert refusal(text) == "Loop 'y': its number of steps 'n' is not constant"


@pytest.mark.parametrize(
    ("back_in", "back_out", "axis_in", "axis_out"), [(0, 0, 0, 0), (1, 0, 1, 1), (0, 1, 0, 2)]
)
def test_a_scan_becomes_its_steps(back_in: int, back_out: int, axis_in: int, axis_out: int) -> None:
    shape = "5,2,3" if axis_in == 0 else "2,5,3"
    text = f"""g (float[2,3] s, float[{shape}] x) => (float[2,3] y, float[a,b,c] z)
{{ y, z = Scan<num_scan_inputs=1, scan_input_axes=[{axis_in}], scan_output_axes=[{axis_out}], scan_input_directions=[{back_in}], scan_output_directions=[{back_out}],
 body = b (float[2,3] h, float[2,3] v) => (float[2,3] k, float[2,3] o) {{ w = Mul(h, v)
 k = Tanh(w)
 o = Neg(k) }}>(s, x) }}"""
    sizes = tuple(map(int, shape.split(",")))
    inputs = [numbers(2, 3), numbers(*sizes, seed=1)]
    assert legalised(text, inputs, target=UNROLLING).count("Tanh") == 5


def test_a_body_may_need_other_rules() -> None:
    body = """body = b (int64 i, bool c, float[6] s) => (bool d, float[6] t)
 { d = Identity(c)
 p = Pad<mode="edge">(s, w)
 t = Slice(p, zero, six) }"""
    text = f"""g (float[6] x) => (float[6] y)
<int64 n = {{3}}, int64[2] w = {{1, 0}}, int64[1] zero = {{0}}, int64[1] six = {{6}}>
{{ y = Loop<{body}>(n, , x) }}"""
    assert legalised(text, [numbers(6)]).count("Gather") == 3


def test_what_a_body_needs_and_no_rule_writes_is_said() -> None:
    text = f"{HEAD} <int64 n = {{2}}> {{ y, z = Loop<{BODY.replace('Mul(t, f)', 'Atan(t)')}>(n, , x) }}"
    assert refusal(text).startswith("Loop 'y': it would need what the target lacks: Atan")


def test_a_long_loop_becomes_a_scan_over_the_numbers_of_its_steps() -> None:
    text = f"{HEAD} <int64 n = {{300}}, bool go = {{1}}> {{ y, z = Loop<{BODY}>(n, go, x) }}"
    assert legalised(text, [numbers(2, 3)]) == ["Scan"]


def test_a_state_that_changes_its_shape_is_no_body() -> None:
    body = """body = b (int64 i, bool c, s) => (bool d, t)
 { d = Identity(c)
 t = Concat<axis=0>(s, x) }"""
    text = f"g (float[1,3] x) => (float[a,b] y) <int64 n = {{60}}> {{ y = Loop<{body}>(n, , x) }}"
    assert "Scan" not in legalised(text, [numbers(1, 3)])


def test_what_the_target_lacks_is_written_within_a_body() -> None:
    body = BODY.replace("Mul(t, f)", "HardSwish(t)")
    text = f"{HEAD} <int64 n = {{300}}> {{ y, z = Loop<{body}>(n, , x) }}"
    assert legalised(text, [numbers(2, 3)]) == ["Scan"]
