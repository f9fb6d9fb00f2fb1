"""Webs of int64 and float64 in narrower types, held against onnxruntime on the original: equal, to the last bit."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.legalisation.legalise import LegalisePass
from samba_onnx.passes.rewrites.legalisation.narrowing import NarrowPass
from samba_onnx.passes.rewrites.legalisation.proofs import helps, inner_narrowings, narrowings
from samba_onnx.passes.rewrites.legalisation.webs import groups, webs
from samba_onnx.passes.rewrites.remove_noops import RemoveNoopsPass
from samba_onnx.passes.rewrites.rewriting import WEIGHT
from samba_onnx.passes.targets import Target, load_target
from samba_onnx.program.dataflow import in_order
from samba_onnx.program.intervals import Interval
from tests.passes.rewrites.applying import operators, run
from tests.passes.rewrites.legalisation.legalising import TARGET, Everything, prepared

INT32 = 2**31
PROFILE = """extends = "sn40l"
name = "short"
description = "an SN40L whose integers have 32 bits"
dtypes = ["bfloat16", "float32", "int8", "int16", "int32", "bool"]
"""


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Target:
    path = Path(tmp_path_factory.mktemp("targets")) / "short.toml"
    path.write_text(PROFILE)
    return load_target(path)


def narrowed(
    text: str,
    inputs: Sequence[Any],
    target: Target = TARGET,
    weights: dict[str, Any] | None = None,
    rtol: float = 0.0,
) -> ir.Model:
    """Narrow a model, hold it against onnxruntime on the original, and return it."""
    model = prepared(text, weights)
    interface = [(v.name, v.dtype, v.shape) for v in (*model.graph.inputs, *model.graph.outputs)]
    before = run(model, inputs)
    rewrite = NarrowPass(Everything(target))
    assert rewrite(model).modified, rewrite.refusals.lines()
    assert interface == [
        (v.name, v.dtype, v.shape) for v in (*model.graph.inputs, *model.graph.outputs)
    ]
    stated = {value: (value.dtype, value.shape) for node in model.graph for value in node.outputs}
    InferShapesPass()(model)
    assert in_order(list(model.graph))
    assert stated == {v: (v.dtype, v.shape) for node in model.graph for v in node.outputs}
    for old, new in zip(before, run(model, inputs), strict=True):
        assert (old.dtype, old.shape) == (new.dtype, new.shape)
        np.testing.assert_allclose(new, old, rtol=rtol, atol=0)
    return model


def refusals(text: str, target: Target = TARGET) -> tuple[str, ...]:
    """Return why nodes of a model keep their types; none of them changes."""
    rewrite = NarrowPass(Everything(target))
    assert not rewrite(prepared(text)).modified
    return rewrite.refusals.lines()


def refused(model: ir.Model, target: Target) -> list[str]:
    return [node.op_type for node in model.graph if target.support(node).reason is not None]


def any_floats(count: int, seed: int) -> np.ndarray:  # type: ignore[type-arg]
    """Return numbers of float32 of all sizes: every exponent, numbers below the normal ones, infinities, NaN."""
    bits = np.random.default_rng(seed).integers(0, 1 << 32, count, np.uint32)
    return bits.view(np.float32)


HALF = "double half = {0.125}"


@pytest.mark.parametrize(
    "rule",
    [
        "d = Mul(a, b)",
        "d = Add(a, b)",
        "d = Sub(a, b)",
        "d = Div(a, b)",
        "d = Sqrt(a)",
        "d = Mul(a, half)",
        "d = Div(half, a)",
        "n = Neg(a)\n m = Max(n, b)\n d = Mul(m, half)",
        "m = Mul(a, b)\n d = Reshape(m, shape)",
        "c = Clip(a, zero, half)\n d = Sub(c, b)",
        "f = Floor(a)\n d = Add(f, b)",
        "t = Less(a, b)\n d = Where(t, a, b)",
    ],
)
def test_an_island_of_float64_between_numbers_of_float32(rule: str) -> None:
    count = 20_000
    text = f"""g (float[{count}] x, float[{count}] z) => (float[{count}] y)
<double half = {{0.125}}, double zero = {{0}}, int64[1] shape = {{-1}}> {{
  a = Cast<to=11>(x)
  b = Cast<to=11>(z)
  {rule}
  y = Cast<to=1>(d)
}}"""
    with np.errstate(all="ignore"):
        model = narrowed(text, [any_floats(count, 1), any_floats(count, 2)])
    assert refused(model, TARGET) == []
    RemoveNoopsPass()(model)
    assert "Cast" not in operators(model)


@pytest.mark.parametrize("operator", ["Mul", "Div"])
def test_a_factor_that_float32_lacks_is_within_two_roundings(operator: str) -> None:
    text = f"""g (float[9999] x) => (float[9999] y) <double c = {{0.1}}> {{
  a = Cast<to=11>(x)
  b = {operator}(a, c)
  y = Cast<to=1>(b)
}}"""
    numbers = any_floats(9999, 3)
    numbers = np.where(
        np.abs(numbers) < 1e-30, np.float32(1), numbers
    )  # results below are no normal ones
    narrowed(text, [np.where(np.abs(numbers) > 1e30, np.float32(1), numbers)], rtol=2 * 2.0**-24)


def test_whole_numbers_are_exact_through_sums_and_products() -> None:
    text = """g (bool[2,9] m, int8[2,9] x) => (float[2,9] y, int64[2] z)
<double three = {3}, int64[1] axes = {1}, int64 axis = {1}> {
  a = Cast<to=11>(m)
  b = Cast<to=11>(x)
  c = Mul(a, b)
  d = CumSum(c, axis)
  e = Add(d, three)
  y = Cast<to=1>(e)
  s = ReduceSum<keepdims=0>(c, axes)
  z = Cast<to=7>(s)
}"""
    generator = np.random.default_rng(0)
    x = generator.choice([-128, 127, 0, 1], (2, 9)).astype(np.int8)
    model = narrowed(text, [generator.random((2, 9)) < 0.7, x])
    assert refused(model, TARGET) == []


ISLAND = "g (float[4] x, float[4] z) => (float[4] y) <double c = {0.1}, double two = {2}> { a = Cast<to=11>(x)\n"
BOTH = f"{ISLAND} b = Cast<to=11>(z)\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{ISLAND} d = Add(a, c)\n y = Cast<to=1>(d) }}", "Add 'd': float32 would round its constant 'c'"),
        (
            f"{BOTH} d = Mul(a, b)\n e = Sub(d, b)\n y = Cast<to=1>(e) }}",
            "Mul 'd': float32 would round 'd' before it is read",
        ),
        (
            f"{ISLAND} d = Exp(a)\n y = Cast<to=1>(d) }}",
            "Exp 'd': Exp of float32 may be further from 'd' than its rounding",
        ),
        (
            f"{BOTH} d = Mul(a, b)\n e = Cast<to=10>(d)\n y = Cast<to=1>(e) }}",
            "Mul 'd': float32 would round 'd' before it is read",
        ),
    ],
)  # fmt: skip
def test_islands_that_stay(text: str, reason: str) -> None:
    assert reason in refusals(text)


@pytest.mark.parametrize(("most", "fits"), [(2**24 - 2, True), (2**24, False)])
def test_whole_numbers_up_to_what_float32_has_all_of(most: int, fits: bool) -> None:
    text = f"""g (bool[3] m) => (float[3] y) <double most = {{{most}}}> {{
  a = Cast<to=11>(m)
  c = Add(a, most)
  d = Abs(c)
  y = Cast<to=1>(d)
}}"""
    mask = np.array([True, False, True])
    if fits:
        assert refused(narrowed(text, [mask]), TARGET) == []
    else:
        assert "Add 'c': float32 would round 'c' before it is read" in refusals(text)


@pytest.mark.parametrize("factor", ["1e-40", "1e40"])
def test_factors_that_float32_has_not_with_all_digits_stay(factor: str) -> None:
    text = f"{ISLAND} d = Mul(a, c)\n y = Cast<to=1>(d) }}".replace("{0.1}", f"{{{factor}}}")
    assert "Mul 'd': float32 would round its constant 'c'" in refusals(text)


def test_numbers_from_outside_stay() -> None:
    text = "g (double[4] x) => (double[4] y) { y = Neg(x) }"
    assert refusals(text) == ("Neg 'y': 'x' may be any number of float64",)


def test_an_output_of_float64_keeps_its_type_behind_a_cast() -> None:
    text = """g (float[4] x) => (double[4] y, float[4] z) {
  a = Cast<to=11>(x)
  y = Abs(a)
  z = Cast<to=1>(y)
}"""
    model = narrowed(text, [np.array([-1, 2, -3.5, np.inf], np.float32)])
    assert refused(model, TARGET) == ["Cast"], "only the one to float64 is left"


MASK = """g (bool[2,6] m, int32[2,6] x) => (float[2,6] y, int64[2,1] z)
<int64 one = {1}, int64 axis = {1}, int64[1] axes = {1}> {
  a = Cast<to=7>(m)
  c = CumSum(a, axis)
  p = Mul(c, a)
  q = Add(p, one)
  y = Cast<to=1>(q)
  z = ReduceMax(q, axes)
}"""


def test_arithmetic_of_masks_on_a_target_of_32_bits(short: Target) -> None:
    generator = np.random.default_rng(0)
    model = narrowed(MASK, [generator.random((2, 6)) < 0.6, np.zeros((2, 6), np.int32)], short)
    assert refused(model, short) == ["Cast"], "the output's type stays"
    assert not NarrowPass(Everything(TARGET))(prepared(MASK)).modified, "sn40l has int64"


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("b = Cast<to=7>(x)\n c = Add(b, b)", "Add 'c': 'c' may be larger than int32: from -4,294,967,296 to 4,294,967,294"),
        ("c = Mul(w, w)", "Mul 'c': 'w' may be larger than int32"),
    ],
)  # fmt: skip
def test_integers_that_may_be_larger_stay(rule: str, reason: str, short: Target) -> None:
    text = f"g (int32[4] x, int64[4] w) => (float[4] y) {{ {rule}\n y = Cast<to=1>(c) }}"
    assert reason in refusals(text, short)


@pytest.mark.parametrize(("addend", "fits"), [(0, True), (1, False)])
def test_the_border_of_int32(addend: int, fits: bool, short: Target) -> None:
    """The largest sum that fits, and one more."""
    text = f"""g (bool[3] m) => (float[3] y) <int64 most = {{{INT32 - 2 + addend}}}> {{
  a = Cast<to=7>(m)
  b = Add(a, most)
  y = Cast<to=1>(b)
}}"""
    mask = np.array([True, False, True])
    if fits:
        assert refused(narrowed(text, [mask], short), short) == []
    else:
        assert "larger than int32" in refusals(text, short)[0]


@pytest.mark.parametrize(
    "operator",
    ["EyeLike", "Bernoulli<seed=1.0>", "RandomNormalLike<seed=1.0>", "RandomUniformLike<seed=1.0>"],
)
def test_operators_whose_result_has_the_type_of_their_operand_keep_it(operator: str) -> None:
    text = f"""g (float[3,3] x) => (double[3,3] y, float[3,3] z) {{
  a = Cast<to=11>(x)
  b = Abs(a)
  y = {operator}(b)
  z = Cast<to=1>(b)
}}"""
    assert "Abs" not in refused(narrowed(text, [np.full((3, 3), 0.5, np.float32)]), TARGET)


LOOKUP = """g (int64[2,3] i) => (float[2,3,2] y) {
  s = Transpose<perm=[0, 1]>(i)
  y = Gather(t, s)
}"""
TABLE = {"t": np.arange(18, dtype=np.float32).reshape(9, 2)}


def test_places_in_a_table_are_narrowed_where_an_illegal_one_stops(short: Target) -> None:
    text = LOOKUP.replace("i)", "i, float[9,2] t)", 1)
    legal = np.array([[0, 8, -9], [3, -1, 4]])
    model = narrowed(text, [legal], short, TABLE)
    assert "Gather" not in refused(model, short)
    for illegal in (9, -10, 2**32 + 3, -(2**32)):
        with pytest.raises(Exception, match="indices element out of data bounds"):
            run(model, [np.full((2, 3), illegal)])


@pytest.mark.parametrize(
    "text",
    [
        """g (float[5,4] x) => (float[7,4] y) <int64[2] p = {1, 1}, int64[1] a = {0}> { y = Pad<mode="reflect">(x, p, , a) }""",
        """g (float[1,2,5,6] x, float[1,3,4,2] i) => (float[1,2,3,4] y) { y = GridSample<align_corners=1>(x, i) }""",
    ],
)
def test_rules_write_places_of_32_bits(text: str, short: Target) -> None:
    model = prepared(text)
    generator = np.random.default_rng(0)
    inputs = [generator.uniform(-1, 1, [int(n) for n in value.shape or ()]).astype(np.float32) for value in model.graph.inputs]  # fmt: skip
    before = run(model, inputs)
    assert LegalisePass(Everything(short))(model).modified
    InferShapesPass()(model)
    assert refused(model, short) == []
    np.testing.assert_allclose(run(model, inputs)[0], before[0], rtol=0, atol=1e-6)


def test_a_weight_stays_one_in_the_narrow_type() -> None:
    text = """g (float[4] x, double[4] w, double[4] c) => (float[4] y) {
  a = Cast<to=11>(x)
  b = Max(a, w)
  d = Min(b, c)
  y = Cast<to=1>(d)
}"""
    both = {"w": np.array([0.5, 1, 2, 4]), "c": np.array([8.0, 8, 8, 8])}
    model = prepared(text, both)
    model.graph.initializers["w"].meta[WEIGHT] = True
    assert NarrowPass(Everything())(model).modified
    twins = {
        (value.name or "").partition("_")[0]: value for value in model.graph.initializers.values()
        if value.dtype is ir.DataType.FLOAT
    }  # fmt: skip
    assert {name: bool(value.meta.get(WEIGHT)) for name, value in twins.items()} == {
        "w": True,
        "c": False,
    }


OPERATORS = (
    "Add({}, {})",
    "Sub({}, {})",
    "Mul({}, three)",
    "Neg({})",
    "Abs({})",
    "Sign({})",
    "CumSum({}, axis)",
    "Where(c, {}, {})",
    "Slice({}, first, last)",
    "Transpose<perm=[0]>({})",
    "Add({}, edge)",
    "Reshape({}, shape)",
)


@pytest.mark.parametrize("seed", range(10))
def test_random_graphs_of_integers_stay_equal(seed: int, short: Target) -> None:
    """Values up to the border of int32 and beyond: those that fit are narrowed, and others are not."""
    draw = random.Random(seed)
    names, lines = ["x", "n", "k"], []
    for number in range(9):
        one, other = draw.choice(names[-4:]), draw.choice(names)
        lines.append(f"v{number} = {draw.choice(OPERATORS).format(one, other)}")
        names.append(f"v{number}")
    body = "\n".join(lines)
    text = f"""g (int16[6] i, bool[6] c, float[6,3] f) => (int64[6] v8, int64[6] v7, float[6] r, bool[6] b)
<int64 three = {{3}}, int64 edge = {{{INT32 - 32768 * 3}}}, int64 axis = {{0}}, int64[1] first = {{0}}, int64[1] last = {{6}}, int64[1] shape = {{6}}> {{
x = Cast<to=7>(i)
n = Cast<to=7>(c)
k = ArgMax<axis=1, keepdims=0>(f)
{body}
r = Cast<to=1>(n)
b = Less(v6, x) }}"""
    generator = np.random.default_rng(seed)
    integers = generator.choice([-32768, 32767, 0, -1, 1], 6).astype(np.int16)
    inputs = [integers, generator.random(6) < 0.5, generator.standard_normal((6, 3)).astype(np.float32)]  # fmt: skip
    before = len(refused(prepared(text), short))
    assert len(refused(narrowed(text, inputs, short), short)) < before


def test_what_states_its_number_states_the_narrow_one(short: Target) -> None:
    text = """g (float[3,3] x) => (float[1,3] y) <int64[2] n = {1, 3}> {
  e = ArgMax<axis=0, keepdims=1>(x)
  k = ConstantOfShape<value=int64[1] {5}>(n)
  s = Add(e, k)
  y = Cast<to=1>(s)
}"""
    model = narrowed(text, [np.zeros((3, 3), np.float32)], short)
    constants = next(node for node in model.graph if node.op_type == "ConstantOfShape")
    assert constants.attributes["value"].as_tensor().dtype == ir.DataType.INT32


def test_values_that_enter_are_cast_where_they_are_there(short: Target) -> None:
    """Behind the node that computes them, and before the first one that reads an input."""
    text = """g (float[2,9] x, int64[2] i) => (float[2] n, float[2] p, float[2,2] y) {
  o = Neg(i)
  n = Cast<to=1>(o)
  y = Gather<axis=1>(x, i)
  t = Transpose(x)
  s = Shape(t)
  m = Neg(s)
  p = Cast<to=1>(m)
}"""
    narrowed(text, [np.arange(18, dtype=np.float32).reshape(2, 9), np.array([3, 8])], short)


def test_islands_that_share_a_constant_are_two_webs() -> None:
    model = prepared(f"""g (float[4] x, float[4] z) => (float[4] y, float[4] w) <{HALF}> {{
  a = Cast<to=11>(x)
  b = Mul(a, half)
  y = Cast<to=1>(b)
  c = Cast<to=11>(z)
  d = Mul(c, half)
  w = Cast<to=1>(d)
}}""")
    _, floats = narrowings(model.graph)
    assert [len(web.nodes) for web in webs(model.graph, floats)] == [3, 3]


def test_inputs_of_a_form_stay_what_they_are() -> None:
    value = ir.Value(name="x", type=ir.TensorType(ir.DataType.INT64))
    (integers,) = inner_narrowings({value: Interval(0, 5)})
    assert not integers.fits(value)


def test_the_chooser_hears_why_a_value_does_not_fit() -> None:
    chooser = Everything()
    model = prepared(f"{ISLAND} b = Exp(a)\n y = Cast<to=1>(b) }}")
    assert not NarrowPass(chooser)(model).modified
    _, rule, refusal = chooser.refused
    assert rule == "narrow"
    assert "float32" in refusal.reason


def test_nodes_whose_types_nobody_changes() -> None:
    model = prepared("""g (int64[3] x, int64[2] v) => (int64[3] y, int64[3,4] z, int64[3] w) <int64 d = {4}> {
  y = mine.Abs(x)
  z = OneHot(x, d, v)
  w = Abs(x)
}""")
    (integers,) = inner_narrowings({})
    found = [list(groups(node, integers, 21)) for node in model.graph]
    assert [len(each) for each in found] == [0, 0, 1]


def test_what_follows_from_inputs_of_a_form_and_from_types_fits() -> None:
    model = prepared("""g (int64[3] x, int8[3] b) => (int64[3] y, int64[3] z, int64[3] w) {
  y = Add(x, x)
  z = Cast<to=7>(b)
  w = Mul(x, x)
}""")
    (integers,) = inner_narrowings({model.graph.inputs[0]: Interval(0, 1 << 20)})
    assert [integers.fits(node.outputs[0]) for node in model.graph] == [True, True, False]


def test_whom_narrow_values_would_help() -> None:
    class Never:
        def support(self, node: ir.Node) -> Never:
            return self

        reason = "no"

    model = prepared("""g (double[2,2] x, int64[2,2] i, float[2,2] f) => (double[2] y, int64[2] z, float[2] w, double[2,2] u) {
  y = Einsum<equation="ij->i">(x)
  z = Einsum<equation="ij->i">(i)
  w = Einsum<equation="ij->i">(f)
  u = Tanh(x)
}""")
    doubles = narrowings(model.graph)[1]
    integers = narrowings(model.graph)[0]
    none, einsum = frozenset[str](), frozenset({"einsum"})
    first, second, third, fourth = model.graph
    assert helps(first, doubles, Never(), none)
    assert not helps(first, doubles, Never(), einsum)
    assert not helps(second, integers, Never(), none)
    assert helps(third, doubles, TARGET, none) is False
    assert not helps(fourth, doubles, Never(), none)
    assert helps(fourth, doubles, TARGET, none)
    assert first.inputs[0] is not None
    assert first.inputs[0].dtype is ir.DataType.DOUBLE


@pytest.mark.parametrize("excluded", [frozenset[str](), frozenset({"narrow"})])
def test_places_that_a_rule_writes_are_narrow_unless_that_is_excluded(
    excluded: frozenset[str], short: Target
) -> None:
    chooser = Everything(short)
    chooser.finder.excluded = excluded
    model = prepared(
        'g (float[2,5] x) => (float[2,7] y) <int64[4] p = {0,1,0,1}> { y = Pad<mode="reflect">(x, p) }'
    )
    assert LegalisePass(chooser)(model).modified is not bool(excluded)


ROUNDED = {
    "Exp": "d = Exp(a)",
    "Log": "p = Abs(a)\n q = Add(p, one)\n d = Log(q)",
    "a softmax, a product and a sum": "s = Softmax(a)\n m = Mul(s, b)\n d = ReduceSum<keepdims=1>(m, last)",
    "Tanh of a product of matrices": "t = Transpose<perm=[1,0]>(b)\n m = MatMul(a, t)\n d = Tanh(m)",
    "a mean and a deviation": "u = ReduceMean<keepdims=1>(a, last)\n c = Sub(a, u)\n q = Mul(c, c)\n "
    "v = ReduceMean<keepdims=1>(q, last)\n w = Add(v, one)\n r = Sqrt(w)\n d = Div(c, r)",
    "a polynomial": "e = Mul(a, tenth)\n f = Add(e, one)\n g = Mul(f, a)\n d = Add(g, tenth)",
}
"""What float64 computes between Casts, and float32 rounds."""


def _island(rule: str) -> str:
    return f"""g (float[6,40] x, float[6,40] z) => (float[?,?] y)
<double one = {{1}}, double tenth = {{0.1}}, int64[1] last = {{-1}}> {{
  a = Cast<to=11>(x)
  b = Cast<to=11>(z)
  {rule}
  y = Cast<to=1>(d)
}}"""


@pytest.mark.parametrize("rule", ROUNDED.values(), ids=ROUNDED)
def test_longer_islands_of_float64_need_the_word_of_the_user(rule: str) -> None:
    """Each node rounds once to 24 digits; sums of 40 numbers lose the most, relative to their largest terms."""
    text, generator = _island(rule), np.random.default_rng(3)
    inputs = [generator.uniform(-2, 2, (6, 40)).astype(np.float32) for _ in range(2)]
    model, chooser = prepared(text), Everything()
    NarrowPass(chooser)(model)
    RemoveNoopsPass()(model)
    assert refused(model, TARGET) != []
    (before,) = run(model, inputs)
    chooser.finder.rounds_float64 = True
    assert NarrowPass(chooser)(model).modified
    RemoveNoopsPass()(model)
    assert refused(model, TARGET) == []
    (after,) = run(model, inputs)
    assert 0 < np.abs(after - before).max() <= 40 * 2.0**-24 * max(1, np.abs(before).max())


def test_constants_beyond_float32_stay_though_the_user_lets_it_round() -> None:
    text = _island("e = Mul(a, huge)\n f = Exp(a)\n g = Div(e, huge)\n d = Add(f, g)").replace(
        "double one = {1}", "double huge = {1e300}"
    )
    model, chooser = prepared(text), Everything()
    chooser.finder.rounds_float64 = True
    assert NarrowPass(chooser)(model).modified
    wide = {n.op_type for n in model.graph for v in n.outputs if v.dtype is ir.DataType.DOUBLE}
    assert wide == {"Mul", "Div", "Cast"}
    assert "its constant 'huge' has numbers beyond float32" in str(chooser.refused[2])
