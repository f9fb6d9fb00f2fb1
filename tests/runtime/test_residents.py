"""Weights that are not in the PEF: loaded, read, written, shared between graphs, kept."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from samba_onnx.errors import InputError, ScheduleError, UsageError
from samba_onnx.pef.manifest import Argin
from samba_onnx.program.kinds import SectionType, SymbolKind
from samba_onnx.runtime.device import Device
from samba_onnx.runtime.engine.steps import DeviceStep
from samba_onnx.runtime.memory import release_free_memory
from samba_onnx.runtime.requests import run_request
from tests.runtime.building import (
    EXPLICIT,
    FALLBACK,
    FROM,
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
from tests.runtime.engine.test_steps import private_bytes

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 8)).astype(np.float32)
W = RNG.standard_normal((16, 8)).astype(np.float32)
B = RNG.standard_normal(16).astype(np.float32)
# A float32 dot product of 8 terms differs between summation orders by a few units of 6e-8.
CLOSE = {"rtol": 2e-6, "atol": 1e-6}
TRANSPOSED = (
    "f (float[4,8] x, float[16,8] weight, float[16] bias) => (float[4,16] y) "
    "{ t = Transpose<perm=[1,0]>(weight) m = MatMul(x, t) y = Add(m, bias) }"
)


def inference() -> Plan:
    return Plan(
        [section(TRANSPOSED)],
        ["x"],
        ["y"],
        [("x", TO, INPUT, 0), ("y", FROM, OUTPUT, 0)],
        [("bias", WEIGHT), ("weight", WEIGHT)],
        kinds={"weight": SymbolKind.WEIGHT, "bias": SymbolKind.BUFFER},
    )


def training() -> Plan:
    """y = x w; g = x' d; w = w - lr g, with a gradient that the host may seed."""
    return Plan(
        [
            section(
                "f (float[4,8] x, float[8,3] weight) => (float[4,3] y) { y=MatMul(x, weight) }"
            ),
            section(
                "b (float[4,8] x, float[4,3] y__grad) => (float[8,3] weight__grad) "
                "{ t = Transpose(x) weight__grad = MatMul(t, y__grad) }",
                type=SectionType.BCKWD,
            ),
            section(
                "o (float[8,3] weight, float[8,3] weight__grad, float lr) => "
                "(float[8,3] weight__updated) "
                "{ d = Mul(weight__grad, lr) weight__updated = Sub(weight, d) }",
                type=SectionType.OPT,
            ),
        ],
        ["x", "lr"],
        ["y"],
        [("x", TO, INPUT, 0), ("y", FROM, OUTPUT, 0)],
        [("weight", WEIGHT)],
        kinds={
            "weight": SymbolKind.WEIGHT,
            "weight__updated": SymbolKind.WEIGHT,
            "weight__grad": SymbolKind.GRADIENT,
            "y__grad": SymbolKind.GRADIENT,
        },
        shared={"weight__updated": "weight"},
        argins=[Argin("lr", "tensor(float)", 0.5, (2,))],
    )


@pytest.mark.parametrize("prepack", [True, False])
def test_load_then_run(tmp_path: Path, prepack: bool) -> None:
    plan = inference()
    with build(tmp_path, plan) as pef, Device(pef, prepack=prepack) as device:
        assert device.ledger.transfers == ()
        device.load({"weight": W, "bias": B})
        assert device.ledger.transfers == pef.manifest.graphs[0].load_transfers
        assert [move.symbol for move in device.ledger.transfers] == ["bias", "weight"]
        np.testing.assert_allclose(device.run({"x": X})["y"], X @ W.T + B, **CLOSE)
        assert device.ledger.run() == planned(plan, pef)
        np.testing.assert_array_equal(device.read("weight"), W)
        device.write("weight", 2 * W)
        np.testing.assert_allclose(device.run()["y"], 2 * X @ W.T + B, **CLOSE)
        device.load({"bias": 0 * B})
        np.testing.assert_allclose(device.run()["y"], 2 * X @ W.T, **CLOSE)
        made = device.ledger.transfers
        assert [(move.symbol, move.cause) for move in made if move.call is None] == [
            ("bias", WEIGHT),
            ("weight", WEIGHT),
            ("weight", EXPLICIT),
            ("weight", EXPLICIT),
            ("bias", WEIGHT),
        ]


def test_loaded_arrays_are_copied(tmp_path: Path) -> None:
    with build(tmp_path, inference()) as pef, Device(pef) as device:
        weight = W.copy()
        device.load({"weight": weight, "bias": B})
        weight[:] = 0
        np.testing.assert_allclose(device.run({"x": X})["y"], X @ W.T + B, **CLOSE)


def test_sessions_hold_read_only_residents(tmp_path: Path) -> None:
    """Read-only weights become initializers, of which onnxruntime sees nothing as input."""
    for plan, expected in ((inference(), ["x"]), (training(), ["x", "weight"])):
        with build(tmp_path, plan) as pef, Device(pef) as device:
            weights = {"weight": W, "bias": B} if expected == ["x"] else {"weight": W[:8, :3]}
            device.load(weights)
            device.run({"x": X}, section_types=["fwd"])
            assert session_inputs(device, SectionType.FWD) == expected


def test_sessions_give_up_changing_weights(tmp_path: Path) -> None:
    with build(tmp_path, inference()) as pef, Device(pef) as device:
        device.load({"weight": W, "bias": B})
        for factor in range(6):
            device.write("bias", factor * B)
            np.testing.assert_allclose(device.run({"x": X})["y"], X @ W.T + factor * B, **CLOSE)
        assert session_inputs(device, SectionType.FWD) == ["x", "weight", "bias"]


@pytest.mark.parametrize("prepack", [True, False])
@pytest.mark.parametrize("size", [2, 64])
def test_bfloat16_residents(tmp_path: Path, prepack: bool, size: int) -> None:
    """Small ones lie in the model, large ones outside; both are lowered to float32."""
    shape = f"bfloat16[{size},{size}]"
    plan = Plan(
        [section(f"f ({shape} x, {shape} weight) => ({shape} y) {{ y = MatMul(x, weight) }}")],
        ["x"],
        ["y"],
        load=[("weight", WEIGHT)],
        kinds={"weight": SymbolKind.WEIGHT},
    )
    x, weight = RNG.standard_normal((2, size, size)).astype(ml_dtypes.bfloat16)
    expected = (x.astype(np.float32) @ weight.astype(np.float32)).astype(ml_dtypes.bfloat16)
    with build(tmp_path, plan) as pef, Device(pef, prepack=prepack) as device:
        device.load({"weight": weight})
        result = device.run({"x": x})["y"]
        # Rounding to 8 bits may go either way where float32 sums differ in their last bit.
        np.testing.assert_allclose(
            result.astype(np.float32), expected.astype(np.float32), rtol=2**-7, atol=1e-5
        )
        np.testing.assert_array_equal(device.read("weight"), weight)


@pytest.mark.parametrize("kind", ["float", "int64", "bool", "uint8", "double", "float16", "int4"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (40, 40)])
def test_residents_of_every_kind(tmp_path: Path, kind: str, shape: tuple[int, ...]) -> None:
    dims = ",".join(map(str, shape))
    of = f"{kind}[{dims}]" if shape else kind
    result = f"float[{dims}]" if shape else "float"
    plan = Plan(
        [section(f"f ({of} state) => ({result} y) {{ y = Cast<to=1>(state) }}")],
        [],
        ["y"],
        load=[("state", WEIGHT)],
        kinds={"state": SymbolKind.BUFFER},
    )
    values = RNG.integers(0, 2, shape)
    with build(tmp_path, plan) as pef, Device(pef) as device:
        spec = {"int4": ml_dtypes.int4, "float": np.float32}.get(kind, kind)
        device.load({"state": np.asarray(values).astype(spec)})
        np.testing.assert_array_equal(device.run()["y"], values)


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"weight": W[:3]}, InputError, r"'weight' has shape \[3, 8\], expected tensor\(float\)"),
        ({"weight": W.astype(np.float64)}, InputError, "'weight' has dtype float64"),
        ({"q": W}, UsageError, "symbol 'q' does not exist"),
        ({"x": X}, UsageError, "symbol 'x' is no weight"),
        ({"y": X}, UsageError, "symbol 'y' is no weight"),
    ],
)
def test_refused_loads_change_nothing(
    tmp_path: Path, values: dict[str, np.ndarray], error: type[Exception], message: str
) -> None:
    with build(tmp_path, inference()) as pef, Device(pef) as device:
        with pytest.raises(error, match=message):
            device.load({"bias": B, **values})
        assert device.ledger.transfers == ()
        with pytest.raises(ScheduleError, match=r"buffer 'bias' has no value: give it to load\(\)"):
            device.read("bias")


def test_gradients_are_written_and_not_loaded(tmp_path: Path) -> None:
    with build(tmp_path, training()) as pef, Device(pef) as device:
        with pytest.raises(UsageError, match="'y__grad' is no weight"):
            device.load({"y__grad": np.ones((4, 3), np.float32)})
        device.load({"weight": W[:8, :3]})
        with pytest.raises(
            ScheduleError, match=r"section 1 .* reads 'y__grad', which has no value.*write it"
        ):
            device.run({"x": X})


def test_runs_before_loading_are_refused(tmp_path: Path) -> None:
    with build(tmp_path, inference()) as pef, Device(pef) as device:
        device.load({"bias": B})
        with pytest.raises(
            ScheduleError, match=r"section 0 \(f_0\) reads weight 'weight'.*load\(\)"
        ):
            device.run({"x": X})
        assert device.ledger.runs == 0


@pytest.mark.parametrize("time_sections", [False, True])
def test_training_steps_keep_state(tmp_path: Path, time_sections: bool) -> None:
    plan = training()
    with build(tmp_path, plan) as pef, Device(pef, time_sections=time_sections) as device:
        weight = W[:8, :3].copy()
        seed = RNG.standard_normal((4, 3)).astype(np.float32)
        device.load({"weight": weight})
        device.write("y__grad", seed)
        for step in range(5):
            rate = np.float32(0.5 / (step + 1))
            y = device.run({"x": X}, argins={"lr": float(rate)})["y"]
            np.testing.assert_allclose(y, X @ weight, **CLOSE)
            assert device.ledger.run() == planned(plan, pef)
            gradient = device.read("weight__grad")
            np.testing.assert_allclose(gradient, X.T @ seed, **CLOSE)
            weight = weight - rate * gradient
            np.testing.assert_array_equal(device.read("weight"), weight)
            np.testing.assert_array_equal(device.read("weight__updated"), weight)
        device.write("weight__updated", W[:8, :3])
        np.testing.assert_allclose(device.run(section_types=["fwd"])["y"], X @ W[:8, :3], **CLOSE)


def test_weights_written_between_types(tmp_path: Path) -> None:
    with build(tmp_path, training()) as pef, Device(pef) as device:
        device.load({"weight": W[:8, :3]})
        device.write("y__grad", np.zeros((4, 3), np.float32))
        for kind in ("fwd", "bckwd"):
            device.run({"x": X}, section_types=[kind])
        device.write("weight__grad", np.ones((8, 3), np.float32))
        device.run(section_types=["opt"], argins={"lr": 0.25})
        np.testing.assert_array_equal(device.read("weight"), W[:8, :3] - np.float32(0.25))
        assert device.ledger.run() == ()


def cache() -> Plan:
    """A prompt graph fills a cache, a token graph reads and extends it: one region."""
    return Plan(
        [
            section("p (float[4] x) => (float[4] present) { present = Add(x, x) }"),
            Piece(
                "t (float[4] past, float[4] z) => (float[4] next, float[4] y) "
                "{ next = Add(past, z) y = Neg(next) }",
                graph="token",
            ),
        ],
        ["x"],
        ["present"],
        shared={"present": "cache", "past": "cache", "next": "cache"},
        graphs={"token": (["past", "z"], ["next", "y"])},
        kinds={"next": SymbolKind.OUTPUT, "y": SymbolKind.OUTPUT},
    )


def test_graphs_share_a_cache(tmp_path: Path) -> None:
    x, z = np.arange(8, dtype=np.float32).reshape(2, 4)
    with build(tmp_path, cache()) as pef, Device(pef) as device:
        with pytest.raises(InputError, match="'past' was never given"):
            device.run({"z": z}, graph="token")
        device.run({"x": x}, [], graph="main")
        for step in range(1, 5):
            y = device.run({"z": z}, ["y"], graph="token")["y"]
            np.testing.assert_array_equal(y, -(2 * x + step * z))
            assert [move.symbol for move in device.ledger.run()] == ["z", "y"]
        for name in ("present", "past", "next"):
            np.testing.assert_array_equal(device.read(name), -y)
        device.write("present", z)
        np.testing.assert_array_equal(device.run({}, ["y"], graph="token")["y"], -2 * z)
        # Given, it replaces what is there.
        y = device.run({"past": x}, ["next"], graph="token")["next"]
        np.testing.assert_array_equal(y, x + z)


def test_fallbacks_copy_residents_that_change_in_every_run(tmp_path: Path) -> None:
    """A fallback reads a weight, which the host knows, and writes a buffer, which crosses twice."""
    plan = Plan(
        [
            section("s (float[4] x, float[4] weight) => (float[4] a) { a = Mul(x, weight) }"),
            fallback(
                "c (float[4] a, float[4] weight, float[4] total) => (float[4] total__updated) "
                "{ b = Add(a, weight) total__updated = Add(total, b) }"
            ),
            fallback("c (float[4] weight) => (float[4] n) { n = Neg(weight) }"),
            section(
                "s (float[4] total__updated, float[4] n) => (float[4] y) "
                "{ y = Sub(total__updated, n) }"
            ),
        ],
        ["x"],
        ["y"],
        [
            ("x", TO, INPUT, 0),
            ("a", FROM, FALLBACK, 1),
            ("total", FROM, FALLBACK, 1),
            ("total__updated", TO, FALLBACK, 1),
            ("n", TO, FALLBACK, 3),
            ("y", FROM, OUTPUT, 3),
        ],
        [("total", WEIGHT), ("weight", WEIGHT)],
        kinds={
            "weight": SymbolKind.WEIGHT,
            "total": SymbolKind.BUFFER,
            "total__updated": SymbolKind.BUFFER,
        },
        shared={"total__updated": "total"},
    )
    x, weight = np.arange(1, 9, dtype=np.float32).reshape(2, 4)
    with build(tmp_path, plan) as pef:
        for time_sections in (False, True):
            with Device(pef, time_sections=time_sections) as device:
                device.load({"weight": weight, "total": np.zeros(4, np.float32)})
                total = np.zeros(4, np.float32)
                for _ in range(3):
                    y = device.run({"x": x})["y"]
                    total = total + (x * weight + weight)
                    np.testing.assert_array_equal(y, total + weight)
                    np.testing.assert_array_equal(device.read("total"), total)
                    assert device.ledger.run() == planned(plan, pef)
                device.write("weight", 2 * weight)
                y = device.run({"x": x})["y"]
                np.testing.assert_array_equal(y, total + (x * 2 * weight + 2 * weight) + 2 * weight)


def session_inputs(device: Device, kind: SectionType) -> list[str]:
    """Look behind the curtain: the inputs of the sessions for one type of section."""
    plan = device.prepare(run_request(None, None, None)).plan
    (step,) = (s for bound, s in plan.steps if bound.stages[0].type is kind)
    assert isinstance(step, DeviceStep)
    assert step._bound is not None
    return [value.name for value in step._bound.session.get_inputs()]


def test_packed_weights_cost_their_size_once_more(tmp_path: Path) -> None:
    """What onnxruntime makes of a weight on the way to the packed one is given back."""
    size, layers = 1024, 8
    names = [f"weight{n}" for n in range(layers)]
    given = ", ".join(f"float[{size},{size}] {name}" for name in names)
    body = " ".join(
        f"t{n} = Transpose<perm=[1,0]>(weight{n}) h{n + 1} = MatMul(h{n}, t{n})"
        for n in range(layers)
    )
    plan = Plan(
        [
            section(
                f"f (float[1,{size}] h0, {given}) => (float[1,{size}] y) {{ {body} y = Neg(h8) }}"
            )
        ],
        ["h0"],
        ["y"],
        load=[(name, WEIGHT) for name in names],
        kinds=dict.fromkeys(names, SymbolKind.WEIGHT),
    )
    # Each rolls a vector by its number and one: products are exact, and no two are equal.
    values = {
        name: np.roll(np.eye(size, dtype=np.float32), n + 1, axis=0) for n, name in enumerate(names)
    }
    x = RNG.standard_normal((1, size)).astype(np.float32)
    expected = -np.roll(x, sum(range(1, layers + 1)), axis=1)
    weights = size * size * 4 * layers
    with build(tmp_path, plan) as pef, Device(pef, threads=1) as device:
        device.load(values)
        release_free_memory()
        before = private_bytes()
        np.testing.assert_array_equal(device.run({"h0": x})["y"], expected)
        assert 0.9 * weights < private_bytes() - before < 1.5 * weights
    with build(tmp_path, plan) as pef, Device(pef, threads=1, prepack=False) as device:
        device.load(values)
        release_free_memory()
        before = private_bytes()
        np.testing.assert_array_equal(device.run({"h0": x})["y"], expected)
        assert private_bytes() - before < 0.2 * weights


def test_what_a_graph_is_given_is_new_for_all_graphs(tmp_path: Path) -> None:
    """One graph's section and another graph's fallback read an input, each where it is."""
    plan = Plan(
        [
            section("s (float[4] x) => (float[4] y) { y = Neg(x) }"),
            Piece("f (float[4] x) => (float[4] z) { z = Abs(x) }", on_rdu=False, graph="look"),
        ],
        ["x"],
        ["y"],
        graphs={"look": (["x"], ["z"])},
        kinds={"z": SymbolKind.OUTPUT},
    )
    x = np.arange(4, dtype=np.float32)
    with build(tmp_path, plan) as pef, Device(pef) as device:
        device.write("x", x)
        device.run({"x": 2 * x}, graph="main")
        np.testing.assert_array_equal(device.run(graph="look")["z"], 2 * x)
        device.run({"x": 3 * x}, graph="look")
        for _ in range(3):
            np.testing.assert_array_equal(device.run(graph="main")["y"], -3 * x)
        np.testing.assert_array_equal(device.read("x"), 3 * x)


def test_what_a_fallback_reads_of_a_changing_weight_is_copied_in_every_run(tmp_path: Path) -> None:
    """The host keeps no copy of it, also when a part of the schedule is run."""
    plan = Plan(
        [
            fallback("f (float[4] x, float[4] weight) => (float[4] y) { y = Mul(x, weight) }"),
            section(
                "o (float[4] weight) => (float[4] weight__updated) "
                "{ weight__updated = Add(weight, weight) }",
                type=SectionType.OPT,
            ),
        ],
        ["x"],
        ["y"],
        [("weight", FROM, FALLBACK, 0)],
        [("weight", WEIGHT)],
        kinds={"weight": SymbolKind.WEIGHT, "weight__updated": SymbolKind.WEIGHT},
        shared={"weight__updated": "weight"},
    )
    x = np.arange(4, dtype=np.float32)
    with build(tmp_path, plan) as pef, Device(pef) as device:
        device.load({"weight": x})
        for _ in range(3):
            np.testing.assert_array_equal(device.run({"x": x}, section_ids=[0])["y"], x * x)
            assert device.ledger.run() == planned(plan, pef)
        device.run(section_ids=[1])
        np.testing.assert_array_equal(device.run({"x": x}, section_ids=[0])["y"], 2 * x * x)


def test_a_default_is_taken_only_where_nothing_was_given_before(tmp_path: Path) -> None:
    plan = Plan(
        [section("s (float[4] state, float[4] x) => (float[4] y) { y = Add(state, x) }")],
        ["state", "x"],
        ["y"],
        weights={"state": np.full(4, 9, np.float32)},
        kinds={"state": SymbolKind.INPUT},
    )
    x = np.arange(4, dtype=np.float32)
    with build(tmp_path, plan) as pef, Device(pef) as device:
        for _ in range(3):
            np.testing.assert_array_equal(device.run({"x": x})["y"], 9 + x)
        device.run({"state": x, "x": x})
        for _ in range(3):
            np.testing.assert_array_equal(device.run({"x": x})["y"], 2 * x)
        assert [move.symbol for move in device.ledger.run()] == ["x", "y"]
