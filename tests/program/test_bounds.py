"""Intervals of values, held against onnxruntime on all integers that operands can be, and on random graphs."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from numpy.typing import NDArray

from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.program.bounds import Bounds
from samba_onnx.program.intervals import Interval
from samba_onnx.program.legal_inputs import legal_inputs

INT32 = 2**31


def proto(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')


def values(text: str, inputs: dict[str, NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
    """Return what onnxruntime computes of every value of a graph."""
    model = onnx.shape_inference.infer_shapes(proto(text))
    known = {value.name for value in model.graph.output}
    model.graph.output.extend(v for v in model.graph.value_info if v.name not in known)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def bounds(text: str, *, by_type: bool = True) -> dict[str, Interval]:
    """Return the intervals of the values of a graph, inputs by legality."""
    model = ir.serde.deserialize_model(proto(text))
    InferShapesPass()(model)
    every = Bounds(legal_inputs(model.graph), by_type=by_type)
    return {value.name or "": every.of(value) for node in model.graph for value in node.outputs} | {
        value.name or "": every.of(value) for value in model.graph.inputs
    }


SMALL = (-3, 4)
"""What both operands of a rule are drawn from: all of it."""


@pytest.mark.parametrize(
    "rule",
    [
        "Add(a, b)",
        "Sub(a, b)",
        "Mul(a, b)",
        "Neg(a)",
        "Abs(a)",
        "Sign(a)",
        "Relu(f)",
        "Min(a, b)",
        "Max(a, b)",
        "Clip(a, low, high)",
        "Div(a, positive)",
        "Div(a, negative)",
        "Mod(a, positive)",
        "Mod(a, negative)",
        "Mod<fmod=1>(a, positive)",
        "Mod<fmod=1>(a, negative)",
        "Where(c, a, b)",
        "Cast<to=7>(f)",
        "Cast<to=6>(a)",
        "Floor(f)",
        "Ceil(f)",
    ],
)
def test_an_interval_is_what_all_operands_come_to_and_no_more(rule: str) -> None:
    every = np.array(list(itertools.product(range(SMALL[0], SMALL[1] + 1), repeat=2)))
    kind = (
        "float"
        if rule.startswith(("Floor", "Ceil", "Relu"))
        else "int32"
        if "to=6" in rule
        else "int64"
    )
    text = f"""g (int64[{len(every)}] x, int64[{len(every)}] z, bool[{len(every)}] c, float[{len(every)}] h) => ({kind}[{len(every)}] y)
<int64 least = {{{SMALL[0]}}}, int64 most = {{{SMALL[1]}}}, int64 low = {{-1}}, int64 high = {{2}}, int64 positive = {{3}}, int64 negative = {{-3}}, float start = {{-2.5}}, float end = {{3.5}}> {{
  a = Clip(x, least, most)
  b = Clip(z, least, most)
  f = Clip(h, start, end)
  y = {rule}
}}"""
    first, second = every[:, 0], every[:, 1]
    halves = (first + 0.5).clip(-2.5, 3.5).astype(np.float32)
    computed = values(text, {"x": first, "z": second, "c": first > second, "h": halves})["y"]
    assert bounds(text)["y"] == Interval(computed.min(), computed.max())


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("ArgMax<axis=1>(x)", Interval(0, 6)),
        ("Shape(x)", Interval(0, 2**63 - 1)),
        ("NonZero(x)", Interval(0, 7)),
        ("Range(zero, seven, one)", Interval(0, 7)),
        ("CumSum(ones, one)", Interval(0, 7)),
        ("ReduceSum<keepdims=0>(ones, axis)", Interval(0, 7)),
        ("ConstantOfShape<value=int64[1] {5}>(seven1)", Interval(5, 5)),
        ("Pad(ones, pads)", Interval(0, 1)),
        ("Pad(ones, pads, seven)", Interval(0, 7)),
        ("Concat<axis=0>(ones, threes)", Interval(0, 3)),
        ("ScatterElements(ones, zeros, threes)", Interval(0, 3)),
        ('ScatterElements<reduction="add">(ones, zeros, threes)', Interval()),
        ("Cast<to=6>(wide)", Interval(-INT32, INT32 - 1)),
        ("Cast<to=7>(wide)", Interval()),
        ("Add(small, small)", Interval(-INT32, INT32 - 1)),
        ("Cast<to=22>(x)", Interval(-8, 7)),
        ("Cast<to=21>(x)", Interval(0, 15)),
        ("Cast<to=22>(threes)", Interval(0, 3)),
        ("ReduceMax(ones, axis)", Interval(0, 1)),
        ("ReduceMin<keepdims=0>(none, axis)", Interval(0, 1)),
        ("ReduceMax<keepdims=0>(none, first)", Interval()),
        ("ReduceMin(none)", Interval()),
    ],
)
def test_intervals_of_other_operators(rule: str, expected: Interval) -> None:
    text = f"""g (float[2,7] x, bool[2,7] m, bool[0,7] n, int64 wide, int32 small) => (y)
<int64[1] first = {{0}}, int64 zero = {{0}}, int64 one = {{1}}, int64 three = {{3}}, int64 seven = {{7}}, int64[1] seven1 = {{7}}, int64[1] axis = {{1}}, int64[4] pads = {{0, 1, 0, 0}}> {{
  ones = Cast<to=7>(m)
  none = Cast<to=7>(n)
  zeros = Mul(ones, zero)
  threes = Mul(ones, three)
  y = {rule}
}}"""
    assert bounds(text)["y"] == expected


def test_places_of_the_largest_are_places_and_values_are_not() -> None:
    text = "g (float[2,7] x) => (y, i) <int64[1] k = {3}> { y, i = TopK(x, k) }"
    assert bounds(text)["i"] == Interval(0, 6)
    assert bounds(text)["y"] == Interval()


@pytest.mark.parametrize("operator", ["Add", "Mul", "Sub"])
def test_what_may_leave_its_type_may_be_anything(operator: str) -> None:
    text = f"""g (int64 x) => (int64 y) <int64 most = {{{2**62}}}, int64 least = {{-{2**62}}}, int64 one = {{1}}> {{
  a = Clip(x, least, most)
  b = {operator}(a, a)
  y = Add(b, one)
}}"""
    assert bounds(text)["y"] in (Interval(), Interval(1 - 2**63, 2**63))
    assert bounds(text, by_type=False)["y"] == bounds(text)["y"]


def test_large_integers_are_exact() -> None:
    text = f"""g (int64 x) => (int64 y) <int64 most = {{{2**60 + 1}}}, int64 least = {{{2**60 + 1}}}, int64 other = {{{2**60}}}> {{
  a = Clip(x, least, most)
  y = Sub(a, other)
}}"""
    assert bounds(text)["y"] == Interval(1, 1)


def test_an_input_that_is_looked_up_is_a_place() -> None:
    text = """g (int64[4] i, int64[4] j, int64[4] k) => (y, z, w) <float[9,2] t = {0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0}, int64[2] s = {2, 2}, int64[1] a = {0}, int64[1] b = {2}> {
  r = Reshape(i, s)
  y = Gather(t, r)
  p = Slice(j, a, b)
  z = Gather(t, p)
  w = Identity(k)
}"""
    known = bounds(text)
    assert known["i"] == known["r"] == Interval(-9, 8)
    assert known["j"] == Interval(), "what is cut off may be anything"
    assert known["k"] == Interval()


@pytest.mark.parametrize("operator", ["Tile", "Expand"])
@pytest.mark.parametrize(("times", "place"), [(3, Interval(-2, 1)), (0, Interval())])
def test_an_input_of_which_nothing_is_looked_up_may_be_anything(
    operator: str, times: int, place: Interval
) -> None:
    text = f"""g (int64[1] i) => (y) <float[2] t = {{0, 0}}, int64[1] times = {{{times}}}> {{
  r = {operator}(i, times)
  y = Gather(t, r)
}}"""
    assert bounds(text)["i"] == place


# Without Min, Max and Clip: onnxruntime 1.31 computes them wrong for int64 beyond int32.
OPERATORS = (
    "Add({}, {})",
    "Sub({}, {})",
    "Mul({}, {})",
    "Neg({})",
    "Abs({})",
    "Div({}, five)",
    "Mod({}, five)",
    "Mod<fmod=1>({}, minus)",
    "CumSum({}, axis)",
    "Where(c, {}, {})",
    "Transpose<perm=[0]>({})",
    "Add({}, edge)",
)


def random_graph(seed: int) -> str:
    """Return a graph of integers up to the border of int32, and beyond."""
    draw = random.Random(seed)
    names, lines = ["x", "w", "n"], []
    for number in range(10):
        operands: Sequence[str] = [draw.choice(names[-5:]), draw.choice(names)]
        lines.append(f"v{number} = {draw.choice(OPERATORS).format(*operands)}")
        names.append(f"v{number}")
    body = "\n".join(lines)
    return f"""g (int32[6] i, int64[6] j, bool[6] c) => (int64[6] v9)
<int64 five = {{5}}, int64 minus = {{-3}}, int64 edge = {{{INT32 - 2}}}, int64 axis = {{0}}> {{
x = Cast<to=7>(i)
w = Clip(j, minus, five)
n = Cast<to=7>(c)
{body} }}"""


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs_stay_inside(seed: int) -> None:
    text, generator = random_graph(seed), np.random.default_rng(seed)
    known = bounds(text)
    for _ in range(4):
        edges = [-INT32, INT32 - 1, 0, 1, -1, 7]
        inputs = {
            "i": generator.choice(edges, 6).astype(np.int32),
            "j": generator.choice(edges, 6),
            "c": generator.random(6) < 0.5,
        }
        for name, array in values(text, inputs).items():
            assert Interval(int(array.min()), int(array.max())).is_inside(known[name]), name
