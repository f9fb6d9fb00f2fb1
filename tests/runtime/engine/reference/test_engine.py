"""The second engine: what a device computes does not depend on who computes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import parser

from samba_onnx.errors import ExecutionError, UsageError
from samba_onnx.pef.manifest import Argin
from samba_onnx.program.kinds import SectionType, SymbolKind
from samba_onnx.runtime.device import Device
from samba_onnx.runtime.engine.evaluation import evaluate, evaluate_original
from samba_onnx.runtime.engine.registry import ENGINES
from tests.runtime.building import HEADER, WEIGHT, Plan, build, fallback, section

RNG = np.random.default_rng(0)


def on_both(folder: Path, plan: Plan, inputs: dict[str, Any], **load: Any) -> list[dict[str, Any]]:
    results = []
    for engine in ENGINES:
        with build(folder, plan) as pef, Device(pef, engine=engine, threads=1) as device:
            device.load(load)
            results.append(device.run(inputs))
            moved = [(move.symbol, move.bytes, move.cause) for move in device.ledger.transfers]
            results[-1]["moved"] = moved
    return results


def test_sections_and_fallbacks_with_weights_in_the_file(tmp_path: Path) -> None:
    plan = Plan(
        [
            section("a (float[2,8] x, float[8,4] w) => (float[2,4] y) { y = MatMul(x, w) }"),
            fallback(
                "b (float[2,4] y) => (string[2,4] s, float[2,4] z) { s = Cast<to=8>(y) z = Erf(y) }"
            ),
        ],
        ["x"],
        ["y", "z"],
        weights={"w": RNG.standard_normal((8, 4)).astype(np.float32)},
    )
    x = RNG.standard_normal((2, 8)).astype(np.float32)
    one, other = on_both(tmp_path, plan, {"x": x})
    # A dot product of 8 terms in two orders, and two polynomials for erf.
    for name in ("y", "z"):
        np.testing.assert_allclose(one[name], other[name], rtol=2e-6, atol=1e-6)
        assert one[name].dtype == other[name].dtype == np.float32
    assert one["moved"] == other["moved"]


def test_a_region_that_is_read_may_be_overwritten(tmp_path: Path) -> None:
    """The old value is read after the place of the new one would have been written."""
    text = (
        "g (float[4] state, float[4] g) => (float[4] new, float[4] other) "
        "{ new = Sub(state, g) m = Add(g, new) other = Mul(m, state) }"
    )
    plan = Plan(
        [section(text)],
        ["g"],
        ["other"],
        load=[("state", WEIGHT)],
        kinds={"state": SymbolKind.WEIGHT, "new": SymbolKind.WEIGHT},
        shared={"new": "state"},
    )
    state = np.array([1, 2, 3, 4], np.float32)
    g = np.ones(4, np.float32)
    one, other = on_both(tmp_path, plan, {"g": g}, state=state)
    np.testing.assert_array_equal(one["other"], (g + state - g) * state)
    np.testing.assert_array_equal(one["other"], other["other"])


def test_an_optimizer_step_in_blocks_gives_the_same_bits(tmp_path: Path) -> None:
    text = (
        "g (float[70000] w, float[70000] g, float rate) => (float[70000] w1) "
        "{ s = Mul(g, rate) w1 = Sub(w, s) }"
    )
    plan = Plan(
        [section(text, type=SectionType.OPT)],
        ["g", "rate"],
        [],
        load=[("w", WEIGHT)],
        kinds={"w": SymbolKind.WEIGHT, "w1": SymbolKind.WEIGHT},
        shared={"w1": "w"},
        argins=[Argin("rate", "tensor(float)", 0.5, (0,))],
    )
    w, g = RNG.standard_normal((2, 70000)).astype(np.float32)
    values = []
    for engine in ENGINES:
        with build(tmp_path, plan) as pef, Device(pef, engine=engine) as device:
            device.load({"w": w})
            device.run({"g": g}, argins={"rate": 0.1})
            values.append(device.read("w"))
    np.testing.assert_array_equal(*values)


def test_bfloat16_is_rounded_as_the_device_rounds_it(tmp_path: Path) -> None:
    plan = Plan(
        [
            section(
                "a (bfloat16[8,64] x, bfloat16[64,8] w) => (bfloat16[8,8] y) "
                "{ m = MatMul(x, w) y = Mul(m, m) }"
            )
        ],
        ["x", "w"],
        ["y"],
    )
    x = RNG.standard_normal((8, 64)).astype(ml_dtypes.bfloat16)
    w = RNG.standard_normal((64, 8)).astype(ml_dtypes.bfloat16)
    one, other = on_both(tmp_path, plan, {"x": x, "w": w})
    assert one["y"].dtype == other["y"].dtype == ml_dtypes.bfloat16
    # In float64, where sums are exact, rounded where a device rounds.
    product = (x.astype(np.float64) @ w.astype(np.float64)).astype(ml_dtypes.bfloat16)
    exact = (product.astype(np.float64) ** 2).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(other["y"], exact)
    np.testing.assert_array_equal(one["y"], exact)


def test_bfloat16_is_rounded_once_per_operator(tmp_path: Path) -> None:
    """A sum in bfloat16 would stay at 256, where adding 1 changes nothing."""
    plan = Plan(
        [section("a (bfloat16[1,1024] x) => (bfloat16[1,1] y) { y = ReduceSum(x) }")], ["x"], ["y"]
    )
    for outputs in on_both(tmp_path, plan, {"x": np.ones((1, 1024), ml_dtypes.bfloat16)}):
        assert outputs["y"].astype(float).tolist() == [[1024]]


def test_dropout_masks_inside_subgraphs_too(tmp_path: Path) -> None:
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21, "samba" : 1]>'
        "g (float rate, int32 seed, bool b) => (bool[40] mask) { mask = If(b) <"
        "then_branch = t () => (bool[40] p) "
        "{ p = samba.DropoutMask<shape=[40], stream=2>(rate, seed) }, "
        "else_branch = e () => (bool[40] q) "
        "{ q = samba.DropoutMask<shape=[40], stream=3>(rate, seed) }> }"
    )
    for branch in (True, False):
        feeds = {
            "rate": np.array(0.5, np.float32),
            "seed": np.array(7, np.int32),
            "b": np.array(branch),
        }
        masks = []
        for engine in ENGINES:
            copy = onnx.ModelProto()
            copy.CopyFrom(model)
            masks.append(evaluate(copy, feeds, engine=engine)["mask"])
        np.testing.assert_array_equal(*masks)
        assert 0 < masks[0].sum() < 40


def test_a_loop_reads_values_of_the_graph_around_it() -> None:
    model = parser.parse_model(
        HEADER + "g (float[2] x, int64 n, bool c) => (float[2] y) { y = Loop(n, c, x) <"
        "body = b (int64 i, bool on, float[2] v) => (bool more, float[2] w) "
        "{ more = Identity(on) w = Add(v, x) }> }"
    )
    x = np.array([1, 2], np.float32)
    feeds = {"x": x, "n": np.array(3), "c": np.array(True)}
    for engine in ENGINES:
        np.testing.assert_array_equal(evaluate_original(model, feeds, engine=engine)["y"], 4 * x)


def test_what_has_no_implementation_is_named(tmp_path: Path) -> None:
    plan = Plan(
        [
            fallback(
                parser.parse_model(
                    '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>'
                    "h (float[4] x) => (float[4] y) { y = com.microsoft.QuickGelu(x) }"
                )
            )
        ],
        ["x"],
        ["y"],
    )
    with (
        build(tmp_path, plan) as pef,
        pytest.raises(
            ExecutionError,
            match=r"fallback 0 \(h_0\) cannot be prepared: com.microsoft::QuickGelu node 'y': "
            "onnx.reference has no implementation",
        ) as caught,
    ):
        Device(pef, engine="reference")
    assert caught.value.reason.startswith("com.microsoft::QuickGelu node")


def test_what_fails_is_named(tmp_path: Path) -> None:
    plan = Plan(
        [section("g (float[4] x, int64[2] j) => (float[2] y) { y = Gather(x, j) }")],
        ["x", "j"],
        ["y"],
    )
    x = np.arange(4, dtype=np.float32)
    with build(tmp_path, plan) as pef, Device(pef, engine="reference") as device:
        with pytest.raises(ExecutionError, match=r"section 0 \(g_0\) failed: Gather node 'y'"):
            device.run({"x": x, "j": np.array([0, 9])})
        assert device.run({"j": np.array([0, 1])})["y"].tolist() == [0, 1]


def test_an_engine_that_does_not_exist(tmp_path: Path) -> None:
    plan = Plan([section("g (float[4] x) => (float[4] y) { y = Abs(x) }")], ["x"], ["y"])
    with (
        build(tmp_path, plan) as pef,
        pytest.raises(UsageError, match="'tpu' does not exist; there are onnxruntime, reference"),
    ):
        Device(pef, engine="tpu")


def test_weights_beside_the_original(tmp_path: Path) -> None:
    weight = RNG.standard_normal((3, 3)).astype(np.float32)
    model = parser.parse_model(HEADER + "g (float[3] x) => (float[3] y) { y = MatMul(w, x) }")
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, size_threshold=0, location="w.bin")
    x = np.ones(3, np.float32)
    for engine in ENGINES:
        y = evaluate_original(path, {"x": x}, engine=engine)["y"]
        np.testing.assert_allclose(y, weight @ x, rtol=1e-6)
