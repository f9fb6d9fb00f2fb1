"""Placements on the whole way to a PEF and its run: never slower by the model, and the same numbers."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime as ort
import pytest

import samba_onnx
from samba_onnx.compiling.compiler import (
    ProgramSource,
    analyze,
    analyze_programs,
    compile_programs,
    convert,
)
from samba_onnx.errors import UsageError
from samba_onnx.passes.targets import Target, load_target
from samba_onnx.passes.timing import hosts
from samba_onnx.program.kinds import SectionType, SymbolKind
from samba_onnx.program.program import Part, Program
from samba_onnx.report import Report
from tests.unsupported_operator import UNSUPPORTED

UNARY = ("Relu", "Neg", "Cos", "Sin", "Tanh", "Transpose")
# A float32 product of 64 terms and Tanh differ between kernels by a few units of 6e-8.
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture(scope="module")
def without_cos(tmp_path_factory: pytest.TempPathFactory) -> Target:
    """A target like the default one, but Cos and Sin run on the CPU."""
    path = tmp_path_factory.mktemp("target") / "own.toml"
    path.write_text('extends = "sn40l"\nname = "own"\nremove = ["Cos", "Sin"]\n')
    return load_target(path)


def random_model(seed: int) -> onnx.ModelProto:
    """Return a graph of 24 nodes on 16 x 16 floats, some of them for the CPU, and a product at its end that is the bulk of the work."""
    source = random.Random(seed)
    known, lines = ["x", "z"], []
    for index in range(24):
        name = f"v{index}"
        operands = [source.choice(known[-5:]) for _ in range(2)]
        if source.random() < 0.4:
            lines.append(f"{name} = {source.choice(('Add', 'Mul'))}({', '.join(operands)})")
        else:
            lines.append(f"{name} = {source.choice(UNARY)}({operands[0]})")
        known.append(name)
    lines.append("y = MatMul(v23, w)")
    body = " ".join(lines)
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[16,16] x, float[16,16] z, float[16,65536] w) '
        f"=> (float[16,65536] y, float[16,16] {source.choice(known[2:])}) {{ {body} }}"
    )
    onnx.checker.check_model(model)
    return model


def seconds(manifest: Any) -> float:
    return Report.from_manifest(manifest).modelled_time.total_seconds


def test_no_placement_takes_longer_than_the_strict_one(without_cos: Target) -> None:
    saved = 0
    for seed in range(12):
        model = random_model(seed)
        strict = analyze(model, target=without_cos, placement="strict")
        optimal = analyze(model, target=without_cos)
        assert seconds(optimal) <= seconds(strict)
        assert len(optimal.fallbacks) <= len(strict.fallbacks)
        saved += seconds(optimal) < seconds(strict)
        nodes = [node for fallback in optimal.fallbacks for node in fallback.reasons]
        assert all((node.code == "cheaper") is node.supported for node in nodes)
    assert saved >= 6


@pytest.mark.parametrize("level", ["o0", "o3"])
def test_moved_nodes_compute_the_same_and_transfers_are_those_planned(
    without_cos: Target, level: str, tmp_path: Path
) -> None:
    generator = np.random.default_rng(0)
    shapes = {"x": (16, 16), "z": (16, 16), "w": (16, 65536)}
    feed = {n: generator.standard_normal(s).astype(np.float32) / 8 for n, s in shapes.items()}
    for seed in (0, 1, 2):
        model = random_model(seed)
        expected = ort.InferenceSession(model.SerializeToString()).run(None, feed)
        with convert(
            model,
            tmp_path / f"{seed}.pef",
            target=without_cos,
            level=level,
            sample=False,
            trial=False,
        ) as pef:
            assert any(node.supported for f in pef.manifest.fallbacks for node in f.reasons)
            with samba_onnx.Device(pef) as device:
                for _ in range(2):
                    results = device.run(feed)
                    assert device.ledger.run() == pef.manifest.graphs[0].run_transfers
                    for value, name in zip(expected, pef.manifest.graphs[0].outputs, strict=True):
                        np.testing.assert_allclose(results[name], value, **CLOSE)


def resident_program(text: str) -> Program:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    model = onnx.shape_inference.infer_shapes(model)
    return Program(
        name="forward",
        parts=(Part(SectionType.FWD, ir.from_proto(model)),),
        inputs=("x",),
        outputs=("y",),
        residents={"w": SymbolKind.WEIGHT},
    )


@pytest.mark.parametrize("stored", [True, False])
def test_what_weights_alone_decide_is_computed_once_and_again_when_they_are_loaded(
    without_cos: Target, stored: bool, tmp_path: Path
) -> None:
    """Both ways to give weights: kept in the PEF, and loaded; engines see the same part of the model."""
    text = """g (float[256,64] x, float[64,64] w) => (float[64,64] y)
    { t = Transpose(w) n = Neg(t) m = Transpose(x) a = MatMul(m, x) b = Cos(a) c = Sin(n)
      d = Add(b, c) e = Add(d, n) y = Cos(e) }"""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((256, 64)).astype(np.float32) / 16
    weights = [generator.standard_normal((64, 64)).astype(np.float32) for _ in range(2)]

    def expected(w: Any) -> Any:
        a = x.astype(np.float64).T @ x
        return np.cos(np.cos(a) + np.sin(-w.T.astype(np.float64)) - w.T)

    path = tmp_path / "m.pef"
    with compile_programs(
        ProgramSource([resident_program(text)], residents={"w": weights[0]} if stored else {}),
        path,
        target=without_cos,
    ) as pef:
        graph = pef.manifest.graphs[0]
        (fallback,) = pef.manifest.fallbacks
        at_load = {node.op_type: node for node in fallback.reasons if node.at_load}
        assert at_load.keys() == {"Transpose", "Neg", "Sin"}
        assert [at_load[name].supported for name in ("Transpose", "Neg", "Sin")] == [
            True,
            True,
            False,
        ]
        # The product goes down; neither w nor what is made of it crosses the link in a run.
        assert [move.symbol for move in graph.run_transfers] == ["x", "a"]
        for engine in ("onnxruntime", "reference"):
            with samba_onnx.Device(pef, engine=engine) as device:
                rounds = weights if stored else [weights[0], weights[0], weights[1]]
                for index, w in enumerate(rounds):
                    if index or not stored:
                        device.load({"w": w})
                    for _ in range(2):
                        y = device.run({"x": x})["y"]
                        assert device.ledger.run() == graph.run_transfers
                        np.testing.assert_allclose(y, expected(w), **CLOSE)


def test_the_strict_placement_sends_what_weights_decide(without_cos: Target) -> None:
    text = """g (float[256,64] x, float[64,64] w) => (float[64,64] y)
    { t = Transpose(w) m = Transpose(x) a = MatMul(m, x) b = Cos(a) y = Mul(b, t) }"""
    manifest = analyze_programs([resident_program(text)], target=without_cos, placement="strict")
    assert not any(node.supported for f in manifest.fallbacks for node in f.reasons)


def test_an_unknown_placement_is_refused() -> None:
    with pytest.raises(UsageError, match="placement is 'best': expected one of optimal, strict"):
        analyze(random_model(0), placement="best")


def test_the_profile_of_a_host_decides(without_cos: Target, tmp_path: Path) -> None:
    """On a host where a node takes a second, nothing is worth moving."""
    text = Path(hosts.__file__).with_name("default_host.toml").read_text()
    slow = tmp_path / "slow.toml"
    slow.write_text(text.replace("value = 0.2e-6", "value = 1.0"))

    manifest = analyze(random_model(1), target=without_cos, host=slow)

    assert manifest.host is not None
    assert manifest.host.node_seconds == 1.0
    assert not any(node.supported for f in manifest.fallbacks for node in f.reasons)


def test_a_node_of_strings_is_no_change_that_could_be_planned() -> None:
    """Strings have no size, so that nobody can say what their copies would cost."""
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (string[4] t, float[4,4] x) '
        f"=> (string[4] u, float[4,4] y) {{ u = StringNormalizer(t) r = Relu(x) y = {UNSUPPORTED}(r) }}"
    )

    manifest = analyze(model, placement="strict")

    assert {n.op_type for f in manifest.fallbacks for n in f.reasons} == {
        "StringNormalizer",
        UNSUPPORTED,
    }
