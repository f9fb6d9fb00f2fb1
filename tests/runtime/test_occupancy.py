"""What is in device memory after every call equals what the lifetimes of regions say, to the byte."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import samba_onnx
from samba_onnx.passes.targets import load_target
from samba_onnx.pef.lifetimes import moved_bytes_by_tier
from samba_onnx.program.kinds import SymbolKind
from tests.runtime.building import Plan, build, fallback, section
from tests.runtime.stepping import opened, refuse_to_lack, steps

# The CPU has an operator in the middle.
MODEL = """
    <ir_version: 10, opset_import: ["" : 21]>
    net (float[batch, 8] x, float[batch, 8] z) => (float[batch, 8] y, float[batch, 4] u, float[batch, 8] v)
    <float[8, 8] w, float[8, 4] b>
    {
      a = MatMul(x, w)
      c = Bernoulli <seed = 1.0> (a)
      d = Add(a, z)
      e = Tanh(d)
      u = MatMul(e, b)
      v = Neg(e)
      y = Mul(c, e)
    }
"""


def model() -> onnx.ModelProto:
    proto = parser.parse_model(MODEL)
    rng = np.random.default_rng(0)
    for name, shape in (("w", (8, 8)), ("b", (8, 4))):
        array = rng.standard_normal(shape).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return proto


@pytest.mark.parametrize("level", ["o0", "o3"])
def test_inference_with_a_fallback(tmp_path: Path, level: str) -> None:
    options: dict[str, Any] = {"level": level, "sample": False, "placement": "strict"}
    with samba_onnx.convert(model(), tmp_path / "m.pef", dims={"batch": 2}, **options) as pef:
        manifest = pef.manifest
        (graph,) = manifest.graphs
        assert manifest.fallbacks
        inputs = {name: np.ones((2, 8), np.float32) for name in ("x", "z")}
        with opened(pef) as device:
            transient = steps(device, manifest, graph, inputs)
            assert len({(lifetime.first, lifetime.last) for lifetime in transient}) >= 2
            for lifetime in transient:
                if lifetime.first < lifetime.last and lifetime.kind is SymbolKind.ACTIVATION:
                    refuse_to_lack(device, manifest, graph, inputs, lifetime)
        # The same bytes as the modelled time of sections is of.
        moved = {s.id: s.bytes for s in manifest.sections}
        for call, entry in zip(graph.calls, moved_bytes_by_tier(manifest, graph), strict=True):
            assert sum(entry.values()) == moved.get(call.stage, 0)


def test_graphs_for_several_sizes(tmp_path: Path) -> None:
    options: dict[str, Any] = {"level": "o0", "sample": False, "placement": "strict"}
    dims = {"batch": (1, 4)}
    with samba_onnx.convert(model(), tmp_path / "m.pef", dims=dims, **options) as pef:
        for graph, batch in zip(pef.manifest.graphs, dims["batch"], strict=True):
            inputs = {name: np.ones((batch, 8), np.float32) for name in ("x", "z")}
            named = {symbol: inputs[graph.model_name(symbol)] for symbol in graph.inputs}
            with opened(pef) as device:
                assert steps(device, pef.manifest, graph, named)


def test_graphs_that_share_a_region(tmp_path: Path) -> None:
    """The output of one graph is an input of the other: it is needed until the end, and there before."""
    first = section("p (float[4] x) => (float[4] s) { s = Neg(x) }")
    second = section("q (float[4] s) => (float[4] h) { h = Abs(s) }")
    other = [
        section("r (float[4] t) => (float[4] g) { g = Exp(t) }", graph="next"),
        fallback("k (float[4] g) => (float[4] y) { y = Neg(g) }", graph="next"),
    ]
    plan = Plan([first, second, *other], ["x"], ["h", "s"], graphs={"next": (["t"], ["y"])})
    plan.shared = {"s": "place", "t": "place"}
    with build(tmp_path, plan) as pef:
        main, following = pef.manifest.graphs
        with opened(pef) as device:
            transient = steps(device, pef.manifest, main, {"x": np.ones(4, np.float32)})
            # Named after the input, which is what it is kept for.
            spans = [(lifetime.symbol, lifetime.first, lifetime.last) for lifetime in transient]
            assert sorted(spans) == [("h", 1, 1), ("t", 0, 1)]
        with opened(pef) as device:
            transient = steps(device, pef.manifest, following, {"t": np.ones(4, np.float32)})
            assert [(lifetime.symbol, lifetime.first, lifetime.last) for lifetime in transient] == [
                ("g", 0, 1)
            ]


def test_activations_that_take_turns(tmp_path: Path) -> None:
    """Where HBM is short, a region holds several values one after the other."""
    target = load_target("sn40l")
    tiers = tuple(replace(t, bytes=400) if t.name == "hbm" else t for t in target.summary.tiers)
    short = replace(target, summary=replace(target.summary, tiers=tiers))
    text = """
        <ir_version: 10, opset_import: ["" : 21]>
        net (float[2, 8] x) => (float[2, 8] y)
        { a = Tanh(x) b = Exp(a) c = Sigmoid(b) d = Neg(c) e = Erf(d) y = Abs(e) }
    """
    options: dict[str, Any] = {"level": "o0", "sample": False, "target": short}
    with samba_onnx.convert(parser.parse_model(text), tmp_path / "m.pef", **options) as pef:
        (graph,) = pef.manifest.graphs
        assert len(pef.manifest.regions) < len([s for s in pef.manifest.symbols if s.region])
        with opened(pef) as device:
            transient = steps(device, pef.manifest, graph, {"x": np.ones((2, 8), np.float32)})
        assert len(transient) == 6
