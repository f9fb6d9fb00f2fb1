from __future__ import annotations

import random

import numpy as np
import pytest

from samba_onnx.passes.rewrites.legalisation.legalise import LegalisePass
from tests.passes.rewrites.applying import operators, run
from tests.passes.rewrites.legalisation.legalising import Everything, legalised, prepared, refusal

OPERATORS = ("Div", "Mod", "Mod<fmod=1>")
MOST = 1 << 21


def divided(operator: str, low: int, high: int, divisor: str, kind: str = "int64") -> str:
    constant = divisor.lstrip("-").isdigit()
    return f"""g ({kind}[n] x, {kind}[n] z) => ({kind}[n] y)
<{kind} low = {{{low}}}, {kind} high = {{{high}}}, {kind} one = {{1}}, {kind} nine = {{9}}, {kind} ninth = {{-9}}, {kind} minus = {{-1}}, {kind} d = {{{divisor if constant else 0}}}> {{
  a = Clip(x, low, high)
  b = Clip(z, one, nine)
  c = Clip(z, ninth, minus)
  y = {operator}(a, {"d" if constant else divisor})
}}"""


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("kind", ["int64", "int32"])
@pytest.mark.parametrize("divisor", [1, 7, -3, -64])
def test_all_small_numbers_by_a_constant(operator: str, kind: str, divisor: int) -> None:
    every = np.arange(-200, 201).astype(kind)
    text = divided(operator, -200, 200, str(divisor), kind).replace("[n]", f"[{len(every)}]")
    assert "Floor" in legalised(text, [every, every])


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("divisor", ["b", "c"])
def test_computed_divisors(operator: str, divisor: str) -> None:
    grid = np.stack(np.meshgrid(np.arange(-30, 31), np.arange(-12, 13)), -1).reshape(-1, 2)
    text = divided(operator, -30, 30, divisor).replace("[n]", f"[{len(grid)}]")
    assert "Floor" in legalised(text, [grid[:, 0], grid[:, 1]])


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("divisor", [3, 1024, 2**30, -1023])
def test_numbers_at_the_ends_of_what_is_taken(operator: str, divisor: int) -> None:
    """Around each multiple of the divisor near the largest quotient, where float32 knows no fractions."""
    most = min(2**31 - 1, abs(divisor) * MOST)
    generator = np.random.default_rng(0)
    quotients = generator.integers(0, most // abs(divisor), 500, endpoint=True)
    near = (quotients[:, None] * abs(divisor) + np.arange(-2, 3)).ravel()
    numbers = np.concatenate([near, -near, [most, -most, most - 1]]).clip(-most, most)
    text = divided(operator, -most, most, str(divisor)).replace("[n]", f"[{len(numbers)}]")
    legalised(text, [numbers, numbers])


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("divisor", ["b", "c"])
def test_numbers_at_the_ends_of_what_is_taken_by_a_computed_divisor(
    operator: str, divisor: str
) -> None:
    near = np.concatenate([[0, 1, MOST // 7 * 7], MOST - np.arange(12)])
    numbers, by = (a.ravel() for a in np.meshgrid([*near, *-near], np.arange(1, 10)))
    by = by if divisor == "b" else -by
    text = divided(operator, -MOST, MOST, divisor).replace("[n]", f"[{len(numbers)}]")
    assert "Floor" in legalised(text, [numbers, by])


def test_int32_up_to_its_ends() -> None:
    least = -(2**31)
    text = divided("Mod", least, 2**31 - 1, str(2**30 - 1), "int32").replace("[n]", "[5]")
    numbers = np.array([least, least + 1, 2**31 - 1, 2**30 - 1, -(2**30)], np.int32)
    legalised(text, [numbers, numbers])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "g (int64[4] x) => (int64[4] y) <int64 d = {7}> { y = Div(x, d) }",
            "Div 'y': its operand 'x' may be any integer",
        ),
        (
            "g (int64[4] x, int64 d) => (int64[4] y) { y = Mod(x, d) }",
            "Mod 'y': its divisor 'd' may be 0",
        ),
        (
            f"g (int64[4] x) => (int64[4] y) <int64 d = {{2}}, int64 l = {{0}}, int64 h = {{{4 * MOST}}}> {{ c = Clip(x, l, h)\n y = Div(c, d) }}",
            f"Div 'y': its operand 'c' may be as large as {4 * MOST:,}",
        ),
        (
            f"g (int32[4] x) => (int32[4] y) <int32 d = {{{2**30 + 1}}}> {{ y = Div(x, d) }}",
            f"Div 'y': its operand 'd' may be as large as {2**30 + 1:,}",
        ),
        (
            f"g (int32[4] x) => (int32[4] y) <int32 d = {{-{2**20}}}> {{ y = Div(x, d) }}",
            "Div 'y': its operand 'x' may have no negative",
        ),
        # Of a divisor that is computed the smallest counts, which makes the largest quotient.
        (
            divided("Div", -MOST - 1, 0, "b").replace("[n]", "[4]"),
            f"Div 'y': its operand 'a' may be as large as {MOST + 1:,}",
        ),
        (
            divided("Mod", 0, MOST + 1, "c").replace("[n]", "[4]"),
            f"Mod 'y': its operand 'a' may be as large as {MOST + 1:,}",
        ),
        (
            "g (float[4] x) => (float[4] y) <float d = {3}> { y = Mod<fmod=1>(x, d) }",
            "Mod 'y': its operands are no integers, which are all that the rule divides",
        ),
    ],
)
def test_what_is_not_proved_stays(text: str, reason: str) -> None:
    assert refusal(text) == reason


def test_places_of_the_largest_become_rows_and_columns() -> None:
    text = """g (float[2,40] x) => (int64[2,3] r, int64[2,3] c) <int64[1] k = {3}, int64 w = {7}> {
  v, i = TopK(x, k)
  r = Div(i, w)
  c = Mod(i, w)
}"""
    numbers = np.random.default_rng(3).standard_normal((2, 40)).astype(np.float32)
    text = text.replace("float[2,40]", "float[1,40]").replace("[2,3]", "[1,3]")
    assert legalised(text, [numbers[:1]]).count("Floor") == 2


@pytest.mark.parametrize("seed", range(6))
def test_random_graphs_compute_what_they_did(seed: int) -> None:
    draw = random.Random(seed)
    names, lines = ["x", "n"], []
    for number in range(8):
        one, other = draw.choice(names[-4:]), draw.choice(names)
        kinds = ("Div({}, five)", "Mod({}, four)", "Mod<fmod=1>({}, minus)", "Sub({}, {})", "Mul({}, four)", "CumSum({}, axis)", "Div({}, minus)", "Where(c, {}, {})")  # fmt: skip
        lines.append(f"v{number} = {draw.choice(kinds).format(one, other)}")
        names.append(f"v{number}")
    body = "\n".join(lines)
    text = f"""g (int16[6] i, bool[6] c) => (int64[6] v7, int64[6] v6, int64[6] v5)
<int64 five = {{5}}, int64 four = {{4}}, int64 minus = {{-3}}, int64 axis = {{0}}> {{
x = Cast<to=7>(i)
n = Cast<to=7>(c)
{body} }}"""
    generator = np.random.default_rng(seed)
    model = prepared(text)
    inputs = [
        (generator.choice([-32768, 32767, 0, -1, 1, 32766], 6).astype(np.int16), generator.random(6) < 0.5)
        for _ in range(3)
    ]  # fmt: skip
    before = [run(model, pair) for pair in inputs]
    LegalisePass(Everything())(model)
    for old, pair in zip(before, inputs, strict=True):
        for one, other in zip(old, run(model, pair), strict=True):
            np.testing.assert_array_equal(other, one)
    assert "Floor" in operators(model) or not {"Div", "Mod"} & set(operators(prepared(text)))
