"""Recurrent layers and long loops as repeated bodies, from the model to the run."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import samba_onnx
from samba_onnx.passes.targets import load_target
from samba_onnx.pef.manifest import Manifest
from samba_onnx.pef.target_summary import TimingFigures
from tests.passes.rewrites.legalisation.legalising import UNROLLING
from tests.passes.rewrites.legalisation.test_recurrent_layers import GATES

ON_RDU: dict[str, Any] = {"legalise": "all", "placement": "strict"}
"""Layers of these sizes take less time on the CPU; what is looked at is how they run on the RDU."""
LENGTHS = (16, 64, 256, 1024)


def numbers(*shape: int, seed: int) -> np.ndarray:
    """Return numbers that leave a recurrence of 8 units stable, so that its errors do not grow from step to step."""
    return 0.2 * np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def layer(
    operator: str,
    steps: int,
    *,
    batch: int = 2,
    lengths: tuple[int, ...] | None = None,
    holes: bool = False,
    states: bool = True,
    **attributes: Any,
) -> onnx.ModelProto:
    """Return a recurrent layer of 8 units over 4 inputs, all other operands constant."""
    ways = 2 if attributes.get("direction") == "bidirectional" else 1
    first, gates = bool(attributes.get("layout")), GATES[operator]
    state = (batch, ways, 8) if first else (ways, batch, 8)
    constants = {
        "w": numbers(ways, gates * 8, 4, seed=1),
        "r": numbers(ways, gates * 8, 8, seed=2),
        "b": numbers(ways, 2 * gates * 8, seed=3),
        "lengths": None if lengths is None else np.array(lengths, np.int32),
        "h": numbers(*state, seed=4) if states else None,
    }
    outputs = ["y", "y_h"]
    if operator == "LSTM":
        constants["c"] = numbers(*state, seed=5) if states else None
        constants["p"] = numbers(ways, 24, seed=6) if holes else None
        outputs.append("y_c")
    names = ["" if array is None else name for name, array in constants.items()]
    node = onnx.helper.make_node(operator, ["x", *names], outputs, hidden_size=8, **attributes)
    shape = (batch, steps, 4) if first else (steps, batch, 4)
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
            for name in outputs
        ],
        [onnx.numpy_helper.from_array(a, n) for n, a in constants.items() if a is not None],
    )
    opsets = [onnx.helper.make_opsetid("", 22)]
    return onnx.shape_inference.infer_shapes(
        onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
    )


def steps_of(manifest: Manifest) -> list[int]:
    return [body.steps for section in manifest.sections for body in section.repeated]


def check(model: onnx.ModelProto, folder: Path, **options: Any) -> Manifest:
    """Convert a model so that all of it runs on the RDU; hold numbers and ledger, and return its manifest."""
    with samba_onnx.convert(model, folder / "m.pef", **ON_RDU, **options) as pef:
        assert pef.manifest.fallbacks == ()
        assert samba_onnx.verify(model, pef).passed
        inputs = pef.reference_inputs()
        with samba_onnx.Device(pef, threads=1) as device:
            device.run(inputs)
            ledger = tuple(device.ledger.transfers)
        graph = pef.manifest.graphs[0]
        assert ledger == graph.load_transfers + graph.run_transfers
        return pef.manifest


@pytest.mark.parametrize("precision", ["fp32", "bf16", "mixed"])
@pytest.mark.parametrize(
    ("operator", "options"),
    [
        ("RNN", {}),
        ("RNN", {"direction": "bidirectional", "activations": ["Relu", "Tanh"]}),
        ("RNN", {"clip": 0.4, "direction": "reverse"}),
        ("GRU", {"direction": "bidirectional"}),
        ("GRU", {"linear_before_reset": 1, "states": False}),
        ("GRU", {"linear_before_reset": 1, "lengths": (64, 40)}),
        ("GRU", {"activations": ["HardSigmoid", "Softsign"], "direction": "reverse"}),
        ("LSTM", {}),
        ("LSTM", {"direction": "bidirectional", "states": False}),
        ("LSTM", {"direction": "reverse", "holes": True}),
        ("LSTM", {"input_forget": 1, "clip": 1.5}),
        ("LSTM", {"lengths": (30, 64), "direction": "bidirectional", "holes": True}),
        ("LSTM", {"activations": ["Sigmoid", "Relu", "Softplus"]}),
    ],
)
def test_every_layer_has_the_numbers_of_the_original(
    operator: str, options: dict[str, Any], precision: str, tmp_path: Path
) -> None:
    model = layer(operator, 64, **options)
    ways = 2 if options.get("direction") == "bidirectional" else 1
    assert steps_of(check(model, tmp_path, precision=precision)) == [64] * ways


@pytest.mark.parametrize("operator", ["RNN", "GRU", "LSTM"])
def test_a_body_in_bfloat16_rounds_as_its_steps_do(operator: str, tmp_path: Path) -> None:
    model = layer(operator, 64, direction="bidirectional")
    results = []
    for target in ("sn40l", UNROLLING):
        path = tmp_path / "m.pef"
        pef = samba_onnx.convert(model, path, **ON_RDU, precision="bf16", target=target)
        with pef, samba_onnx.Device(pef, threads=1) as device:
            results.append((steps_of(pef.manifest), device.run(pef.reference_inputs())))
    (steps, repeated), (none, unrolled) = results
    assert (steps, none) == ([64, 64], [])
    for name, value in unrolled.items():
        np.testing.assert_array_equal(repeated[name], value)


@pytest.mark.parametrize("operator", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("level", ["o0", "o1", "o3"])
def test_nothing_but_work_grows_with_the_length(operator: str, level: str, tmp_path: Path) -> None:
    counts, work = [], []
    for steps in LENGTHS:
        path = tmp_path / f"{steps}.pef"
        model = layer(operator, steps, direction="bidirectional")
        with samba_onnx.convert(model, path, **ON_RDU, level=level, sample=False) as pef:
            sections = pef.manifest.sections
            assert steps_of(pef.manifest) == [steps, steps]
        (graph,) = pef.manifest.graphs
        loads = len(graph.load_transfers)
        counts.append((len(sections), sum(section.nodes for section in sections), loads))
        work.append((path.stat().st_size, sum(section.flops for section in sections)))
    assert len(set(counts)) == 1
    sizes, flops = zip(*work, strict=True)
    # What tells the lengths apart is a few digits in the manifest.
    assert max(sizes) - min(sizes) < 1000
    first = LENGTHS[0]
    assert flops == tuple(flops[0] * steps // first for steps in LENGTHS)


def test_a_target_that_denies_it_unrolls(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(
        'extends = "sn40l"\nname = "own"\n[hardware.repeats_bodies]\n'
        'value = false\nevidence = "assumed"\nnote = "measured otherwise"\n'
    )
    manifest = check(layer("GRU", 20), tmp_path, target=str(own))
    assert steps_of(manifest) == []
    assert sum(section.operators.get("Tanh", 0) for section in manifest.sections) == 20
    assert "repeats_bodies" not in {
        one.name for one in load_target(own).summary.assumptions if one.value
    }


def test_the_assumption_is_listed() -> None:
    (one,) = [a for a in load_target("sn40l").summary.assumptions if a.name == "repeats_bodies"]
    assert (one.value, one.unit) == (1.0, "yes or no")


@pytest.mark.parametrize(("steps", "repeated"), [(2, []), (3, [3])])
def test_two_steps_stand_one_behind_the_other(
    steps: int, repeated: list[int], tmp_path: Path
) -> None:
    assert steps_of(check(layer("RNN", steps), tmp_path)) == repeated


@pytest.mark.parametrize("parallelism", ["weight", "batch"])
def test_several_rdus_repeat_the_same_body(parallelism: str, tmp_path: Path) -> None:
    model = layer("LSTM", 64, direction="bidirectional")
    chips = {"n_chips": 2, "tensor_parallel": parallelism}
    with samba_onnx.convert(model, tmp_path / "m.pef", **ON_RDU, **chips) as pef:
        assert (steps_of(pef.manifest), pef.manifest.fallbacks) == ([64, 64], ())
        assert samba_onnx.verify(model, pef).passed


def test_the_second_engine_agrees(tmp_path: Path) -> None:
    model = layer("GRU", 40, direction="bidirectional", lengths=(40, 7))
    with samba_onnx.convert(model, tmp_path / "m.pef", **ON_RDU) as pef:
        assert steps_of(pef.manifest) == [40, 40]
        # With onnxruntime on the original: layers of onnx.reference disregard the lengths of sequences.
        assert samba_onnx.self_test(pef, engine="reference").passed


LOOP = """<ir_version: 10, opset_import: ["" : 21]>
g (float[2,3] x, float[40,3] t) => (float[2,3] y, float[40,2,3] z) <int64 n = {40}, bool go = {1}, float[3,3] w = {
 0.3, 0.1, -0.2, 0.2, -0.4, 0.1, 0.0, 0.2, 0.3 }> {
  y, z = Loop (n, go, x) <body = b (int64 i, bool c, float[2,3] s) => (bool d, float[2,3] u, float[2,3] o) {
    d = Identity(c)
    e = Gather(t, i)
    m = MatMul(s, w)
    a = Add(m, e)
    u = Tanh(a)
    o = Mul(u, a)
  }>
}"""


def test_a_long_loop_is_a_body_too(tmp_path: Path) -> None:
    text = LOOP.replace("{40}", "{900}").replace("float[40", "float[900")
    assert steps_of(check(parser.parse_model(text), tmp_path)) == [900]


def test_where_a_precision_is_reduced_loops_are_reduced_in_their_steps(tmp_path: Path) -> None:
    manifest = check(parser.parse_model(LOOP), tmp_path, precision="bf16")
    assert steps_of(manifest) == []
    assert sum(section.operators.get("Tanh", 0) for section in manifest.sections) == 40


def test_no_time_is_less_than_all_steps_one_behind_the_other(tmp_path: Path) -> None:
    manifest = check(layer("RNN", 512), tmp_path)
    timing = load_target("sn40l").summary.timing
    assert isinstance(timing, TimingFigures)
    # A product, a sum and an activation; the copy for the value of all steps renames it.
    assert manifest.sections[0].seconds > 512 * 3 * timing.fill_seconds
    assert dataclasses.asdict(manifest.sections[0])["repeated"][0]["operators"] == {
        "MatMul": 1,
        "Add": 1,
        "Tanh": 1,
        "Identity": 1,
    }
