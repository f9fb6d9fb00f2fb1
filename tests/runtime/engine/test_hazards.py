"""In-place writes: what is proven safe, and right numbers whatever is proven."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

from samba_onnx.program.kinds import SymbolKind
from samba_onnx.runtime.device import Device
from samba_onnx.runtime.engine.hazards import unsafe_outputs
from tests.runtime.building import HEADER, WEIGHT, Plan, build, section

SAFE = {
    "subtract a step": "new = Sub(state, g)",
    "decay, then a step": "a = Mul(state, k) new = Sub(a, g)",
    "both ways of the old value meet": "a = Mul(state, k) b = Neg(state) new = Add(a, b)",
    "clip by the norm": "n = ReduceSumSquare<keepdims=0>(state) r = Sqrt(n) new = Div(state, r)",
    "overwrite": "new = Mul(g, k)",
    "accumulate a product": "m = MatMul(g, g) new = Add(state, m)",
    "accumulate from the right": "m = MatMul(g, g) new = Add(m, state)",
    "accumulate with a factor": "m = MatMul(g, g) a = Mul(m, k) new = Add(state, a)",
    "scatter rows": "i = Constant<value_ints=[1, 0]>() s = Constant<value_ints=[2, 1]>() "
    "j = Reshape(i, s) u = Slice(g, zero, two) new = ScatterND(state, j, u)",
    "momentum that another output reads": "new = Add(state, g) other = Mul(new, k)",
    "maximum": "new = Max(state, g)",
}
UNSAFE = {
    "another reader": "new = Sub(state, g) other = Mul(state, k)",
    "another reader of a copy": "a = Mul(state, k) new = Sub(a, g) other = MatMul(a, g)",
    "a late reader": "new = Sub(state, g) a = Sub(new, state) other = Neg(a)",
    "a product in itself": "m = MatMul(state, g) new = Add(state, m)",
    "rows mixed by the producer": "new = MatMul(state, g)",
    "turned over": "new = Transpose(state)",
    "a view that is read": "s = Constant<value_ints=[-1]>() v = Reshape(state, s) "
    "new = Sub(state, g) other = Add(v, v)",
    "partial sums": "r = ReduceSum(state, one) new = Sub(state, r)",
    "normalised": "new = Softmax(state)",
    "activation with two reads": "new = Gelu(state)",
    "scattered from itself": "i = Constant<value_ints=[1, 0]>() s = Constant<value_ints=[2, 1]>() "
    "j = Reshape(i, s) u = Slice(state, zero, two) new = ScatterND(state, j, u)",
}
SIZE = 64


def text(body: str) -> str:
    square = f"float[{SIZE},{SIZE}]"
    other = f"float[{SIZE * SIZE}]" if "Add(v, v)" in body else square
    outputs = f"{square} new, {other} other" if "other = " in body else f"{square} new"
    return (
        f"g ({square} state, {square} g, float k) => ({outputs}) "
        "{ zero = Constant<value_ints=[0]>() two = Constant<value_ints=[2]>() "
        f"one = Constant<value_ints=[1]>() {body} }}"
    )


@pytest.mark.parametrize("body", SAFE.values(), ids=SAFE)
def test_shown_to_be_safe(body: str) -> None:
    model = parser.parse_model(HEADER + text(body))
    assert unsafe_outputs(model, {"new": ["state"]}) == frozenset()


@pytest.mark.parametrize("body", UNSAFE.values(), ids=UNSAFE)
def test_not_shown_to_be_safe(body: str) -> None:
    model = parser.parse_model(HEADER + text(body))
    assert unsafe_outputs(model, {"new": ["state"]}) == {"new"}


@pytest.mark.parametrize("body", [*SAFE.values(), *UNSAFE.values()], ids=[*SAFE, *UNSAFE])
def test_numbers_of_in_place_updates(tmp_path: Path, body: str) -> None:
    """Every graph, updating a region that it reads, gives what it gives in separate memory."""
    model = HEADER + text(body)
    names = [value.name for value in parser.parse_model(model).graph.output]
    plan = Plan(
        [section(text(body))],
        ["g", "k"],
        names[1:],
        load=[("state", WEIGHT)],
        kinds={"state": SymbolKind.WEIGHT, "new": SymbolKind.WEIGHT},
        shared={"new": "state"},
    )
    rng = np.random.default_rng(1)
    state, gradient = rng.uniform(0.5, 1.5, (2, SIZE, SIZE)).astype(np.float32)
    reference = ReferenceEvaluator(parser.parse_model(model))
    with build(tmp_path, plan) as pef, Device(pef) as device:
        device.load({"state": state})
        for factor in (np.float32(0.5), np.float32(0.25)):
            feed = {"state": state, "g": gradient, "k": factor}
            expected = dict(zip(names, reference.run(None, feed), strict=True))
            state = expected["new"]
            result = device.run({"g": gradient, "k": factor})
            # Sums of 64 float32 products in another order differ by about sqrt(64) roundings.
            np.testing.assert_allclose(device.read("state"), state, rtol=2e-6)
            state = device.read("new")
            for name in names[1:]:
                np.testing.assert_allclose(result[name], expected[name], rtol=2e-6, atol=1e-6)


def test_bindings_on_one_place_are_wrong_without_the_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hazard is real: without a buffer the late reader sees the update."""
    body = "new = Sub(state, g) m = MatMul(g, g) a = Add(m, new) other = Sub(a, state)"
    plan = Plan(
        [section(text(body))],
        ["g", "k"],
        ["other"],
        load=[("state", WEIGHT)],
        kinds={"state": SymbolKind.WEIGHT, "new": SymbolKind.WEIGHT},
        shared={"new": "state"},
    )
    ones = np.ones((SIZE, SIZE), np.float32)
    results = []
    for proof in (True, False):
        if not proof:
            monkeypatch.setattr(
                "samba_onnx.runtime.engine.overwriting.unsafe_outputs", lambda *_: frozenset()
            )
        with build(tmp_path, plan) as pef, Device(pef) as device:
            device.load({"state": ones})
            results.append(device.run({"g": ones, "k": np.float32(1)})["other"])
    assert (results[0] == SIZE - 1).all()
    assert (results[1] == SIZE).all()


def test_values_of_other_shape_in_one_region(tmp_path: Path) -> None:
    plan = Plan(
        [
            section(
                "s (float[4] x, float[2,2] state) => (float[4] new) "
                "{ k = Constant<value_ints=[-1]>() v = Reshape(state, k) new = Add(x, v) }"
            )
        ],
        ["x"],
        ["new"],
        load=[("state", WEIGHT)],
        kinds={"state": SymbolKind.WEIGHT, "new": SymbolKind.ACTIVATION},
        shared={"new": "state"},
    )
    x = np.arange(4, dtype=np.float32)
    with build(tmp_path, plan) as pef, Device(pef) as device:
        device.load({"state": np.ones((2, 2), np.float32)})
        np.testing.assert_array_equal(device.run({"x": x})["new"], x + 1)
