"""The device on hand-made PEFs: numbers, transfers, persistence, partial runs and isolation."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import samba_onnx
from samba_onnx.errors import (
    DeviceError,
    ExecutionError,
    InputError,
    OutOfDeviceMemoryError,
    PefChecksumError,
    ScheduleError,
    UsageError,
)
from samba_onnx.pef.manifest import Argin
from samba_onnx.pef.target_summary import TargetSummary, Tier
from samba_onnx.program.kinds import SectionType, SymbolKind
from samba_onnx.runtime.device import Device
from tests.runtime.building import (
    EXPLICIT,
    FALLBACK,
    FROM,
    HEADER,
    INPUT,
    OUTPUT,
    TO,
    WEIGHT,
    Piece,
    Plan,
    build,
    fallback,
    planned,
    section,
)

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 8)).astype(np.float32)
W = RNG.standard_normal((8, 8)).astype(np.float32)
# A float32 dot product of 8 terms differs between summation orders by a few units of 6e-8.
CLOSE = {"rtol": 1e-6, "atol": 1e-6}


def linear() -> Plan:
    """One section: y = x w."""
    return Plan(
        [section("linear (float[4,8] x, float[8,8] w) => (float[4,8] y) { y = MatMul(x, w) }")],
        ["x"],
        ["y"],
        [("x", TO, INPUT, 0), ("y", FROM, OUTPUT, 0)],
        [("w", WEIGHT)],
        {"w": W},
    )


def sandwich() -> Plan:
    """Section, fallback, section; ``a`` is read by both sides, ``b`` by two sections."""
    return Plan(
        [
            section("first (float[4] x) => (float[4] a) { a = Add(x, x) }"),
            fallback("cpu (float[4] a, float[4] z) => (float[4] b) { b = Mul(a, z) }"),
            section("second (float[4] a, float[4] b) => (float[4] c) { c = Sub(b, a) }"),
            section("third (float[4] b, float[4] c) => (float[4] d) { d = Mul(b, c) }"),
            fallback("last (float[4] d) => (float[4] e) { e = Abs(d) }"),
        ],
        ["x", "z"],
        ["c", "e", "a", "b", "d", "z"],
        [
            ("x", TO, INPUT, 0),
            ("a", FROM, FALLBACK, 1),
            ("b", TO, FALLBACK, 2),
            ("d", FROM, FALLBACK, 4),
            ("c", FROM, OUTPUT, 2),
        ],
    )


def sandwich_values(x: np.ndarray, z: np.ndarray) -> dict[str, np.ndarray]:
    a = x + x
    b = a * z
    c = b - a
    d = b * c
    return {"c": c, "e": np.abs(d), "a": a, "b": b, "d": d, "z": z}


FWD, BCKWD, OPT = SectionType.FWD, SectionType.BCKWD, SectionType.OPT


def chain(types: Sequence[SectionType] = (FWD, FWD, FWD, FWD)) -> Plan:
    """Four sections of one operator each, as at o0; a value skips one of them."""
    texts = [
        "s (float[4] x) => (float[4] a) { a = Add(x, x) }",
        "s (float[4] a) => (float[4] b) { b = Mul(a, a) }",
        "s (float[4] a, float[4] b) => (float[4] c) { c = Sub(b, a) }",
        "s (float[4] c) => (float[4] y) { y = Neg(c) }",
    ]
    return Plan(
        [section(text, type=kind) for text, kind in zip(texts, types, strict=True)],
        ["x"],
        ["y"],
        [("x", TO, INPUT, 0), ("y", FROM, OUTPUT, 3)],
    )


VECTOR = np.array([1, -2, 3, 0.5], np.float32)
OTHER = np.array([2, 0, -1, 4], np.float32)


@pytest.mark.parametrize("prepack", [True, False])
def test_one_section(tmp_path: Path, prepack: bool) -> None:
    plan = linear()
    with build(tmp_path, plan) as pef, Device(pef, prepack=prepack) as device:
        assert device.ledger.transfers == pef.manifest.graphs[0].load_transfers
        assert len(device.ledger.transfers) == 1
        result = device.run({"x": X})
        np.testing.assert_allclose(result["y"], X @ W, **CLOSE)
        assert device.ledger.run() == planned(plan, pef)


@pytest.mark.parametrize("time_sections", [True, False])
def test_fallback_between_sections(tmp_path: Path, time_sections: bool) -> None:
    plan = sandwich()
    with build(tmp_path, plan) as pef, Device(pef, time_sections=time_sections) as device:
        for x, z in ((VECTOR, OTHER), (OTHER, VECTOR)):
            result = device.run({"z": z, "x": x})
            expected = sandwich_values(x, z)
            assert list(result) == list(expected)
            for name, value in expected.items():
                np.testing.assert_array_equal(result[name], value, err_msg=name)
            assert device.ledger.run() == planned(plan, pef)
        assert device.ledger.runs == 2


@pytest.mark.parametrize("types", [(FWD, FWD, FWD, FWD), (FWD, FWD, BCKWD, BCKWD)])
def test_merged_and_single_sections_agree(tmp_path: Path, types: Sequence[SectionType]) -> None:
    plan = chain(types)
    with build(tmp_path, plan) as pef:
        results = []
        for time_sections in (False, True):
            with Device(pef, time_sections=time_sections) as device:
                results.append(device.run({"x": VECTOR})["y"])
                assert device.ledger.run() == planned(plan, pef)
        a = VECTOR + VECTOR
        np.testing.assert_array_equal(results[0], a - a * a)
        np.testing.assert_array_equal(results[0], results[1])


def test_profile_measures_every_call(tmp_path: Path) -> None:
    plan = sandwich()
    plan.pieces[0].seconds = 0.25
    with build(tmp_path, plan) as pef, Device(pef, time_sections=True) as device:
        for _ in range(3):
            device.run({"x": VECTOR, "z": OTHER})
        times = device.profile.calls("main")
        assert [time.call for time in times] == [0, 1, 2, 3, 4]
        assert [time.on_rdu for time in times] == [True, False, True, True, False]
        assert all(time.executions == 3 for time in times)
        assert all(0 < 3 * time.fastest_seconds <= time.measured_seconds for time in times)
        assert [time.modelled_seconds for time in times] == [0.25, None, 0.0, 0.0, None]
        device.profile.reset()
        assert device.profile.calls("main") == ()


def test_inputs_persist_on_both_sides(tmp_path: Path) -> None:
    plan = sandwich()
    with build(tmp_path, plan) as pef, Device(pef) as device:
        device.run({"x": VECTOR, "z": OTHER})
        again = device.run({"x": OTHER}, ["e"])
        np.testing.assert_array_equal(again["e"], sandwich_values(OTHER, OTHER)["e"])
        again = device.run({"z": VECTOR}, ["e"])
        np.testing.assert_array_equal(again["e"], sandwich_values(OTHER, VECTOR)["e"])
        moved = [transfer.symbol for transfer in device.ledger.run()]
        assert moved == ["a", "b", "d"]
        assert device.run({}, ["e"])["e"].tolist() == again["e"].tolist()


def test_an_output_asked_for_twice_is_copied_once(tmp_path: Path) -> None:
    with build(tmp_path, linear()) as pef, Device(pef) as device:
        assert list(device.run({"x": X}, ["y", "y"])) == ["y"]
        assert [t.symbol for t in device.ledger.run()] == ["x", "y"]


def test_nothing_aliases_the_device(tmp_path: Path) -> None:
    plan = sandwich()
    with build(tmp_path, plan) as pef, Device(pef) as device:
        x, z = VECTOR.copy(), OTHER.copy()
        first = device.run({"x": x, "z": z})
        kept = {name: value.copy() for name, value in first.items()}
        x[:] = 77
        z[:] = 77
        for value in first.values():
            value[:] = 99
        second = device.run()
        for name, value in second.items():
            np.testing.assert_array_equal(value, kept[name], err_msg=name)
        device.run({"x": OTHER, "z": VECTOR})
        for name, value in second.items():
            np.testing.assert_array_equal(value, kept[name], err_msg=name)


def test_partial_runs_hand_on_activations(tmp_path: Path) -> None:
    with build(tmp_path, chain()) as pef, Device(pef) as device:
        assert device.run({"x": VECTOR}, section_ids=[0, 1]) == {}
        assert [t.symbol for t in device.ledger.run()] == ["x"]
        np.testing.assert_array_equal(device.read("b"), 4 * VECTOR**2)
        y = device.run(from_call=2)["y"]
        np.testing.assert_array_equal(y, 2 * VECTOR - 4 * VECTOR**2)
        assert [(t.symbol, t.cause) for t in device.ledger.run()] == [("y", OUTPUT)]


def test_partial_runs_by_type_and_range(tmp_path: Path) -> None:
    plan = chain((FWD, BCKWD, FWD, OPT))
    with build(tmp_path, plan) as pef, Device(pef) as device:
        device.run({"x": VECTOR}, until_call=1)
        device.run(section_types=["bckwd"])
        device.run(section_types=["FwD"])
        y = device.run(section_types=["Opt"])["y"]
        np.testing.assert_array_equal(y, 2 * VECTOR - 4 * VECTOR**2)


def test_partial_run_copies_fallback_values(tmp_path: Path) -> None:
    with build(tmp_path, sandwich()) as pef, Device(pef) as device:
        device.run({"x": VECTOR, "z": OTHER}, until_call=2)
        assert [t.symbol for t in device.ledger.run()] == ["x", "a"]
        result = device.run(from_call=2)
        expected = sandwich_values(VECTOR, OTHER)
        assert set(result) == {"c", "e", "d"}
        np.testing.assert_array_equal(result["e"], expected["e"])
        assert [(t.symbol, t.direction) for t in device.ledger.run()] == [
            ("b", TO),
            ("d", FROM),
            ("c", FROM),
        ]


def test_stale_activations_are_refused(tmp_path: Path) -> None:
    with build(tmp_path, chain()) as pef, Device(pef) as device:
        device.run({"x": VECTOR}, until_call=2)
        device.run({"x": OTHER})
        with pytest.raises(ScheduleError, match=r"section 2 .* reads '[ab]'.*run section [01]"):
            device.run(from_call=2)
        with pytest.raises(ScheduleError, match="'a' has no value"):
            device.read("a")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"section_ids": [9]}, ScheduleError, "section 9 does not exist.*0, 1, 2, 3"),
        ({"section_types": ["fwd", "sgd"]}, ScheduleError, "SGD does not exist.*FWD, BCKWD, OPT"),
        ({"section_ids": [0], "section_types": ["FWD"]}, UsageError, "not both"),
        ({"section_ids": ["0"]}, UsageError, "has '0'; give integers"),
        ({"from_call": 7}, ScheduleError, "call 7 does not exist.*0 to 3"),
        ({"until_call": -1}, ScheduleError, "call -1 does not exist"),
        ({"from_call": 2, "until_call": 2}, ScheduleError, "no call"),
        ({"outputs": ["q"]}, UsageError, "output 'q' does not exist.*'y'"),
        ({"outputs": "yy"}, UsageError, "output 'yy' does not exist"),
        ({"graph": "other"}, UsageError, "graph 'other' does not exist.*main"),
        ({"section_ids": [0], "outputs": ["y"]}, ScheduleError, "'y', which has no value.*3"),
    ],
)
def test_requests_that_are_refused(
    tmp_path: Path, options: dict[str, object], error: type[Exception], message: str
) -> None:
    plan = chain((FWD, BCKWD, FWD, OPT))
    with build(tmp_path, plan) as pef, Device(pef) as device:
        with pytest.raises(error, match=message):
            device.run({"x": VECTOR}, **options)  # type: ignore[arg-type]
        assert device.ledger.transfers == ()


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, r"input 'x' was never given; section 0 \(first_0\) reads it.*tensor\(float\)\[4\]"),
        ({"x": VECTOR}, r"input 'z' was never given"),
        ({"x": VECTOR, "z": OTHER, "q": OTHER}, r"'q' does not exist.*'x' tensor\(float\)\[4\]"),
        ({"x": VECTOR, "z": OTHER[:3]}, r"'z' has shape \[3\], expected tensor\(float\)\[4\]"),
        ({"x": VECTOR, "z": OTHER[None]}, r"'z' has shape \[1, 4\]"),
        ({"x": VECTOR, "z": OTHER.astype(np.float64)}, "'z' has dtype float64, expected float32"),
        ({"x": VECTOR, "z": [1, 2, 3, 4]}, "'z' has dtype int64"),
        ({"x": VECTOR, "z": None}, "'z' has dtype object"),
        ({"x": VECTOR, "z": [[1], [2, 3]]}, "'z' is list"),
        ({"x": VECTOR, "z": OTHER.astype(">f4")}, "'z' has dtype >f4"),
    ],
)
def test_refused_inputs_change_nothing(
    tmp_path: Path, inputs: dict[str, object], message: str
) -> None:
    with build(tmp_path, sandwich()) as pef, Device(pef) as device:
        with pytest.raises(InputError, match=message):
            device.run(inputs)
        assert device.ledger.transfers == ()
        assert device.ledger.runs == 0
        if "z" in inputs:
            device.run({"x": OTHER, "z": OTHER})
            with pytest.raises(InputError):
                device.run(inputs)
            np.testing.assert_array_equal(
                device.run(outputs=["e"])["e"], sandwich_values(OTHER, OTHER)["e"]
            )


def test_strided_inputs_and_scalars(tmp_path: Path) -> None:
    plan = Plan(
        [
            section(
                "s (float[2,3] x, float k) => (float[2,3] y, float n) "
                "{ y = Mul(x, k) n = ReduceSum<keepdims=0>(y) }"
            )
        ],
        ["x", "k"],
        ["y", "n"],
        [("x", TO, INPUT, 0), ("k", TO, INPUT, 0), ("y", FROM, OUTPUT, 0), ("n", FROM, OUTPUT, 0)],
    )
    x = np.arange(6, dtype=np.float32).reshape(3, 2).T
    with build(tmp_path, plan) as pef, Device(pef) as device:
        result = device.run({"x": x, "k": np.float32(2)})
        np.testing.assert_array_equal(result["y"], 2 * x)
        assert result["n"].shape == ()
        assert result["n"] == 30
        assert device.ledger.run() == planned(plan, pef)


def test_out_of_memory_names_region_and_room(tmp_path: Path) -> None:
    plan = linear()
    plan.target = TargetSummary("small", (Tier("ddr", 300, 1e9),), {}, 1e9, 0.0)
    expected = r"region 'w' \(symbol 'w'\) needs 256 bytes, but 44 of 300 bytes are free in ddr; use smaller"
    with build(tmp_path, plan) as pef, pytest.raises(OutOfDeviceMemoryError, match=expected):
        Device(pef)


def test_memory_usage_counts_mapped_weights(tmp_path: Path) -> None:
    with build(tmp_path, linear()) as pef, Device(pef, prepack=False) as device:
        ddr = device.memory.usage()[1]
        assert (ddr.name, ddr.used, ddr.free) == ("ddr", 128 + 256 + 128, (1 << 30) - 512)


def test_failing_operator_gives_one_line(tmp_path: Path) -> None:
    plan = Plan(
        [fallback("r (float[4] x, int64[1] s) => (float[N] y) { y = Reshape(x, s) }")],
        ["x", "s"],
        ["y"],
    )
    with build(tmp_path, plan) as pef, Device(pef) as device:
        with pytest.raises(ExecutionError) as caught:
            device.run({"x": VECTOR, "s": np.array([3])})
        message = str(caught.value)
        assert message.startswith("fallback 0 (r_0) failed: Reshape node ''")
        assert "Input shape:{4}, requested shape:{3}" in message
        assert "\n" not in message
        assert "onnxruntime_src" not in message
        assert device.run({"s": np.array([2, 2])[:1] * 2})["y"].tolist() == VECTOR.tolist()


def test_unknown_operator_is_refused_at_load(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = '<ir_version: 10, opset_import: ["" : 21, "odd" : 1]>\n'
    model = parser.parse_model(text + "g (float[4] x) => (float[4] y) { y = odd.Twist(x) }")
    with (
        build(tmp_path, Plan([fallback(model)], ["x"], ["y"])) as pef,
        pytest.raises(ExecutionError, match=r"fallback 0 \(g_0\) cannot be prepared: .*Twist"),
    ):
        Device(pef)
    assert capfd.readouterr().err == ""


def test_resident_state_is_updated_in_place(tmp_path: Path) -> None:
    """A weight that is a section's input, and its update that shares the region."""
    plan = Plan(
        [
            section("f (float[4] x, float[4] state) => (float[4] y) { y = Mul(x, state) }"),
            section(
                "o (float[4] state, float lr) => (float[4] new) { d = Mul(state, lr) "
                "new = Sub(state, d) }",
                type=OPT,
            ),
        ],
        ["x", "lr"],
        ["y"],
        load=[("state", WEIGHT)],
        weights={"state": VECTOR},
        kinds={"state": SymbolKind.WEIGHT, "new": SymbolKind.WEIGHT},
        shared={"new": "state"},
        argins=[Argin("lr", "tensor(float)", 0.5, (1,))],
    )
    with build(tmp_path, plan) as pef, Device(pef) as device:
        assert device.ledger.transfers == pef.manifest.graphs[0].load_transfers
        weights = VECTOR
        for _ in range(2):
            y = device.run({"x": OTHER})["y"]
            np.testing.assert_array_equal(y, OTHER * weights)
            weights = weights - weights * np.float32(0.5)
            np.testing.assert_array_equal(device.read("state"), weights)
            np.testing.assert_array_equal(device.read("new"), weights)
        device.run({"lr": np.float32(0.25)}, section_types=["opt"])
        weights = weights * np.float32(0.75)
        np.testing.assert_array_equal(device.read("state"), weights)
        device.write("state", OTHER)
        assert (device.ledger.transfers[-1].cause, device.ledger.transfers[-1].call) == (
            EXPLICIT,
            None,
        )
        np.testing.assert_array_equal(device.run(section_types=["fwd"])["y"], OTHER * OTHER)


def test_regions_reused_by_activations(tmp_path: Path) -> None:
    """``a`` and ``c`` share bytes, as liveness planning does; nothing is mixed up."""
    plan = chain()
    plan.shared = {"c": "b", "y": "a"}
    with build(tmp_path, plan) as pef:
        for time_sections in (False, True):
            with Device(pef, time_sections=time_sections) as device:
                y = device.run({"x": VECTOR})["y"]
                np.testing.assert_array_equal(y, 2 * VECTOR - 4 * VECTOR**2)
        with Device(pef) as device:
            device.run({"x": VECTOR}, until_call=3)
            with pytest.raises(ScheduleError, match="'b' has no value"):
                device.read("b")


def test_explicit_reads_and_writes(tmp_path: Path) -> None:
    with build(tmp_path, linear()) as pef, Device(pef) as device:
        device.write("x", X)
        np.testing.assert_allclose(device.run()["y"], X @ W, **CLOSE)
        np.testing.assert_array_equal(device.read("x"), X)
        weights = device.read("w")
        np.testing.assert_array_equal(weights, W)
        weights[:] = 0
        np.testing.assert_array_equal(device.read("w"), W)
        explicit = [t for t in device.ledger.transfers if t.cause is EXPLICIT]
        assert [(t.symbol, t.direction) for t in explicit] == [
            ("x", TO),
            ("x", FROM),
            ("w", FROM),
            ("w", FROM),
        ]
        assert [t.symbol for t in device.ledger.run()] == ["y"]
        with pytest.raises(DeviceError, match="'w' is read-only"):
            device.write("w", W)
        with pytest.raises(UsageError, match="'q' does not exist"):
            device.read("q")
        with pytest.raises(InputError, match="'x' has shape"):
            device.write("x", X[:1])


def test_several_graphs_share_weights(tmp_path: Path) -> None:
    plan = Plan(
        [
            section("a (float[4,8] x, float[8,8] w) => (float[4,8] y) { y = MatMul(x, w) }"),
            Piece("b (float[8] v, float[8,8] w) => (float[8] u) { u = MatMul(v, w) }", graph="row"),
        ],
        ["x"],
        ["y"],
        load=[("w", WEIGHT)],
        weights={"w": W},
        graphs={"row": (["v"], ["u"])},
    )
    with build(tmp_path, plan) as pef, Device(pef) as device:
        assert [t.symbol for t in device.ledger.transfers] == ["w"]
        with pytest.raises(UsageError, match=r"several graphs.*main, row"):
            device.run({"x": X})
        np.testing.assert_allclose(device.run({"v": X[0]}, graph="row")["u"], X[0] @ W, **CLOSE)
        np.testing.assert_allclose(device.run({"x": X}, graph="main")["y"], X @ W, **CLOSE)


def test_outputs_without_nodes(tmp_path: Path) -> None:
    """A graph output that is an input or a stored weight moves nothing from the device."""
    plan = linear()
    plan.outputs = ["x", "y", "w"]
    with build(tmp_path, plan) as pef, Device(pef) as device:
        result = device.run({"x": X})
        np.testing.assert_array_equal(result["x"], X)
        np.testing.assert_array_equal(result["w"], W)
        assert not np.shares_memory(result["x"], X)
        assert device.ledger.run() == planned(plan, pef)
        result["x"][:] = 0
        np.testing.assert_array_equal(device.run(outputs=["x"])["x"], X)


def test_verification_precedes_the_first_result(tmp_path: Path) -> None:
    with build(tmp_path, linear()) as pef:
        from concurrent.futures import Future

        failed: Future[None] = Future()
        failed.set_exception(PefChecksumError("a byte differs"))
        pef.start_verification = lambda: failed  # type: ignore[method-assign]
        with Device(pef) as device:
            for _ in range(2):
                with pytest.raises(PefChecksumError, match="a byte differs"):
                    device.run({"x": X})
                with pytest.raises(PefChecksumError, match="a byte differs"):
                    device.read("w")
        with Device(pef, verify=False) as device:
            device.run({"x": X})


def test_closed_device_and_bad_threads(tmp_path: Path) -> None:
    with build(tmp_path, linear()) as pef:
        with pytest.raises(UsageError, match="threads is 0"):
            Device(pef, threads=0)
        device = Device(pef, threads=1)
        device.close()
        with pytest.raises(DeviceError, match="closed"):
            device.run({"x": X})


def test_host_values_that_are_no_tensors(tmp_path: Path) -> None:
    """Sequences, optionals and strings live in fallbacks; what the device needs still crosses."""
    plan = Plan(
        [
            section("s (float[2] x) => (float[2] a) { a = Neg(x) }"),
            fallback(
                "cpu (float[2] a, seq(float[2]) q, optional(float[2]) o, string[N] t) => "
                "(seq(float[2]) p, bool h, string[N] u, float[M] f) "
                "{ p = SequenceInsert(q, a) h = OptionalHasElement(o) u = Identity(t) "
                "f = ConcatFromSequence<axis=0>(p) }"
            ),
            fallback(
                "cpu (seq(float[2]) p, bool h) => (seq(float[2]) r, int64 n) "
                "{ k = Constant<value = int64 {0}>() r = SequenceErase(p, k) n = SequenceLength(p) }"
            ),
        ],
        ["x", "q", "o", "t"],
        ["p", "h", "u", "f", "r", "n"],
        [("x", TO, INPUT, 0), ("a", FROM, FALLBACK, 1)],
    )
    x = np.array([1, 2], np.float32)
    with build(tmp_path, plan) as pef, Device(pef) as device:
        items = [np.array([5, 6], np.float32)]
        result = device.run({"x": x, "q": items, "o": None, "t": np.array(["a", "bü"])})
        items[0][:] = 0
        assert [item.tolist() for item in result["p"]] == [[5, 6], [-1, -2]]
        assert [item.tolist() for item in result["r"]] == [[-1, -2]]
        assert (result["h"].item(), result["n"].item()) == (False, 2)
        assert result["u"].tolist() == ["a", "bü"]
        assert result["f"].tolist() == [5, 6, -1, -2]
        assert device.ledger.run() == planned(plan, pef)
        again = device.run({"o": x, "t": ["c"]})
        assert [item.tolist() for item in again["p"]] == [[5, 6], [-1, -2]]
        assert (again["h"].item(), again["u"].tolist()) == (True, ["c"])
        with pytest.raises(InputError, match="'q' is int"):
            device.run({"q": 3})


def test_dynamic_shapes_stay_on_the_host(tmp_path: Path) -> None:
    plan = Plan([fallback("cpu (float[N,2] x) => (int64[2,M] y) { y = NonZero(x) }")], ["x"], ["y"])
    with build(tmp_path, plan) as pef, Device(pef) as device:
        for rows in (1, 3):
            x = np.eye(rows, 2, dtype=np.float32)
            np.testing.assert_array_equal(device.run({"x": x})["y"], np.stack(np.nonzero(x)))
        with pytest.raises(InputError, match=r"'x' has shape \[2, 3\], expected .*\[N, 2\]"):
            device.run({"x": np.eye(2, 3, dtype=np.float32)})
        assert device.ledger.transfers == ()


def test_reference_evaluator_agrees_on_the_chain(tmp_path: Path) -> None:
    whole = parser.parse_model(
        HEADER + "g (float[4] x) => (float[4] y) "
        "{ a = Add(x, x) b = Mul(a, a) c = Sub(b, a) y = Neg(c) }"
    )
    expected = ReferenceEvaluator(whole).run(None, {"x": OTHER})[0]
    with build(tmp_path, chain()) as pef, Device(pef, prepack=False) as device:
        np.testing.assert_array_equal(device.run({"x": OTHER})["y"], expected)


def test_one_lock_for_all_of_a_device_and_the_libraries_that_are_stated(tmp_path: Path) -> None:
    mutex = threading.RLock()
    with build(tmp_path, linear()) as pef, Device(pef, mutex=mutex) as device:
        assert device.lock.mutex is mutex
        assert device.ledger.lock is device.lock
        assert device.profile.lock is device.lock
        with pytest.raises(UsageError, match=r"none\.so"):
            Device(pef, custom_ops=[tmp_path / "none.so"])


def test_a_graph_for_each_of_several_sizes_is_called_by_the_names_of_the_model(
    tmp_path: Path,
) -> None:
    model = parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]>
        g (float[batch,2] x) => (float[batch,2] y, float[batch,2] z) { y = Neg(x) z = Abs(x) }"""
    )
    dims = {"batch": (1, 4)}
    with (
        samba_onnx.convert(model, tmp_path / "m.pef", dims=dims, sample=False) as pef,
        Device(pef) as device,
    ):
        last = pef.manifest.graphs[-1].name
        for batch in (4, 1):
            x = RNG.standard_normal((batch, 2)).astype(np.float32)
            assert device.run({"x": x}).keys() == {"y", "z"}
            results = device.run({"x": x}, ["z"])
            assert results.keys() == {"z"}
            np.testing.assert_array_equal(results["z"], np.abs(x))
        with pytest.raises(InputError):
            device.run({"x": x}, graph=last)


def test_the_host_keeps_no_result_of_a_run_of_the_whole_schedule(tmp_path: Path) -> None:
    x = np.ones(4, np.float32)
    with build(tmp_path, sandwich()) as pef, Device(pef) as device:
        device.run({"x": x, "z": x})
        with pytest.raises(ScheduleError, match="'e', which has no value on the device: run fallb"):
            device.run({"x": x}, ["e"], section_ids=[0])
