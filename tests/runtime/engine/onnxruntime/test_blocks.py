"""Optimizer sections block by block: the bits of the ordinary execution, in any number of threads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import parser

from samba_onnx.errors import AnomalyError, ExecutionError
from samba_onnx.pef.manifest import Argin
from samba_onnx.program.kinds import SectionType, SymbolKind
from samba_onnx.runtime.device import Device
from samba_onnx.runtime.engine.lowerings import elementwise_blocks
from samba_onnx.runtime.engine.lowerings.elementwise_blocks import Split
from samba_onnx.runtime.engine.onnxruntime import blocks
from tests.runtime.building import HEADER, WEIGHT, Plan, build, section

SHAPES = {"w0": [3, 40000], "w1": [7], "w2": [1000, 33], "w3": []}
"""More than a block, far less, and no dimensions at all."""


def momentum(name: str, shape: list[int]) -> str:
    """Two of torch's rules in one: momentum and a second moment."""
    return (
        f"{name}_a = Mul({name}_m, beta) {name}_m_new = Add({name}_a, {name}_g) "
        f"{name}_b = Mul({name}_g, {name}_g) {name}_c = Mul({name}_v, beta) "
        f"{name}_v_new = Add({name}_c, {name}_b) {name}_d = Sqrt({name}_v_new) "
        f"{name}_e = Div({name}_m_new, {name}_d) {name}_f = Mul({name}_e, rate) "
        f"{name}_new = Sub({name}, {name}_f) "
    )


def master(name: str, shape: list[int]) -> str:
    """A bfloat16 weight with a float32 master."""
    return (
        f"{name}_h = Cast<to=1>({name}_g) {name}_i = Mul({name}_h, rate) "
        f"{name}_m_new = Sub({name}_m, {name}_i) {name}_new = Cast<to=16>({name}_m_new) "
    )


def typed(shape: list[int], dtype: str = "float") -> str:
    return f"{dtype}[{','.join(map(str, shape))}]" if shape else dtype


def update(rule: Callable[[str, list[int]], str], *, low: bool = False) -> str:
    states = ("m",) if low else ("m", "v")
    dtype = "bfloat16" if low else "float"
    inputs, outputs = ["float beta", "float rate"], []
    for name, shape in SHAPES.items():
        inputs += [f"{typed(shape, dtype)} {name}_g"]
        inputs += [] if low else [f"{typed(shape)} {name}"]
        outputs += [f"{typed(shape, dtype)} {name}_new"]
        for state in states:
            inputs.append(f"{typed(shape)} {name}_{state}")
            outputs.append(f"{typed(shape)} {name}_{state}_new")
    body = "".join(rule(name, shape) for name, shape in SHAPES.items())
    return f"g ({', '.join(inputs)}) => ({', '.join(outputs)}) {{ {body} }}"


def plan(text: str) -> Plan:
    graph = parser.parse_model(HEADER + text).graph
    names = [value.name for value in (*graph.input, *graph.output)]
    given = [n for n in names if n in ("beta", "rate") or n.endswith("_g")]
    kept = [name for name in names if name not in given]
    kinds = {n: SymbolKind.WEIGHT if n in SHAPES else SymbolKind.OPTIMIZER_STATE for n in kept}
    return Plan(
        [section(text, type=SectionType.OPT)],
        given,
        [],
        load=[(name, WEIGHT) for name in kept if not name.endswith("_new")],
        kinds=kinds,
        shared={n: n.removesuffix("_new") for n in kept if n.endswith("_new")},
        argins=[Argin(name, "tensor(float)", 0.5, (0,)) for name in ("beta", "rate")],
    )


def trained(folder: Path, made: Plan, *, threads: int = 1) -> dict[str, Any]:
    """Values after three steps, in which only gradients move between host and device."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    with build(folder, made) as pef, Device(pef, threads=threads) as device:
        values = {}
        for symbol in pef.manifest.symbols:
            dtype = np.float32 if symbol.type == "tensor(float)" else ml_dtypes.bfloat16
            values[symbol.name] = np.asarray(rng.uniform(0.5, 2, symbol.shape)).astype(dtype)
        device.load({name: values[name] for name, _ in made.load})
        gradients = {name: values[name] for name in made.inputs if name.endswith("_g")}
        device.ledger.reset()
        for step in range(3):
            device.run(gradients, argins={"rate": 0.1 * (step + 1)})
        moved = [transfer.symbol for transfer in device.ledger.transfers]
        assert moved == 3 * list(gradients)
        return {name: device.read(name) for name in made.kinds}


def whole(model: onnx.ModelProto, *_: object) -> Split:
    return Split((), model)


@pytest.mark.parametrize("low", [False, True], ids=["float32", "bfloat16"])
def test_the_same_bits_as_the_ordinary_execution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, low: bool
) -> None:
    made = plan(update(master if low else momentum, low=low))
    lengths: list[list[int]] = []
    monkeypatch.setattr(blocks, "BLOCK", 1 << 14)
    pooled = blocks.BlockPool.blocks

    def noted(pool: blocks.BlockPool, runs: list[blocks.BlockRun]) -> blocks.Blocks:
        lengths.append([run.elements for run in runs])
        return pooled(pool, runs)

    monkeypatch.setattr(blocks.BlockPool, "blocks", noted)
    one = trained(tmp_path / "one", made)
    three = trained(tmp_path / "three", made, threads=3)
    assert len(lengths[0]) == 8 + 1 + 3  # 120000, 7 and 33000 elements; one number is no vector.
    assert sum(lengths[0]) == 120000 + 7 + 33000
    monkeypatch.setattr(elementwise_blocks, "split_elementwise", whole)
    ordinary = trained(tmp_path / "ordinary", made)
    assert ordinary.keys() == one.keys() == three.keys()
    for name, value in ordinary.items():
        assert value.tobytes() == one[name].tobytes() == three[name].tobytes(), name


def test_a_part_that_is_not_safe_in_place_is_left_to_the_ordinary_session(
    tmp_path: Path,
) -> None:
    """The other output reads the old weight, at any time."""
    text = (
        "g (float[70000] w, float[70000] g, float r) => (float[70000] w1, float[70000] other) "
        "{ s = Mul(g, r) w1 = Sub(w, s) other = Mul(w, r) }"
    )
    made = Plan(
        [section(text, type=SectionType.OPT)],
        ["g", "r"],
        ["other"],
        load=[("w", WEIGHT)],
        kinds={"w": SymbolKind.WEIGHT, "w1": SymbolKind.WEIGHT},
        shared={"w1": "w"},
    )
    with build(tmp_path, made) as pef, Device(pef) as device:
        device.load({"w": np.full(70000, 3, np.float32)})
        made_of_it = device.run({"g": np.ones(70000, np.float32), "r": np.float32(2)})
        assert set(made_of_it["other"]) == {6}
        assert set(device.read("w")) == {1}


def test_failures_and_anomalies_name_the_section(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Plan(
        [
            section(
                "g (float[200000] w, float r) => (float[200000] w1) { w1 = Div(w, r) }",
                type=SectionType.OPT,
            )
        ],
        ["r"],
        [],
        load=[("w", WEIGHT)],
        kinds={"w": SymbolKind.WEIGHT, "w1": SymbolKind.WEIGHT},
        shared={"w1": "w"},
    )
    with build(tmp_path, made) as pef, Device(pef, threads=2) as device:
        device.load({"w": np.ones(200000, np.float32)})
        with pytest.raises(AnomalyError, match=r"section 0 \(g_0\) of type OPT made 'w1' with"):
            device.run({"r": np.float32(0)}, detect_anomaly=True)

        def fail(left: object) -> None:
            raise RuntimeError("out of luck")

        monkeypatch.setattr(blocks, "_run_all", fail)
        with pytest.raises(ExecutionError, match=r"section 0 \(g_0\) failed: out of luck"):
            device.run({"r": np.float32(1)})
