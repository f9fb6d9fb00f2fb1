"""One way through the compiler: an ONNX model is a program like that of a torch module."""

from __future__ import annotations

import dataclasses
import errno
import os
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import samba_onnx
from samba_onnx.compiling.compiler import analyze_programs, compile_programs
from samba_onnx.errors import OutputError
from samba_onnx.loading import load_model, onnx_program
from samba_onnx.passes.order import RUNNING
from samba_onnx.pef.manifest import Manifest
from samba_onnx.program.kinds import SectionType, SymbolKind
from samba_onnx.program.program import DEFAULT_GRAPH

HEADER = '<ir_version: {ir_version}, opset_import: ["": 21]>'
PLAIN = """g (float[batch, 4] x) => (float[batch, 2] y)
<float[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}> { y = MatMul(x, w) }"""
DEFAULTED = """g (float[2] x, float[2] scale) => (float[2] y)
<float[2] scale = {3, 4}> { y = Mul(x, scale) }"""
WEIGHT_OUT = """g (float[2] x) => (float[2] y, float[2] w)
<float[2] w = {3, 4}> { y = Mul(x, w) }"""
PASSED_ON = """g (float[2] x, float[3] unread) => (float[2] x, float[2] y, float[3] unread)
{ y = Relu(x) }"""
INNER = """g (float[2] x, bool c) => (float[2] y, float[2] h)
<float[2] w = {3, 4}>
{ h = Relu(x)
  y = If (c) <then_branch = t () => (float[2] a) { a = Mul(h, w) },
              else_branch = e () => (float[2] b) { b = Add(x, w) }> }"""


def model(text: str, ir_version: int = 10) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"{HEADER.format(ir_version=ir_version)} {text}")


def kinds(manifest: Manifest) -> dict[str, SymbolKind]:
    return {symbol.name: symbol.kind for symbol in manifest.symbols}


def test_a_loaded_model_is_a_program_of_one_part() -> None:
    program = onnx_program(load_model(model(PLAIN)))
    (part,) = program.parts
    assert (program.name, part.type, part.has_weights) == (DEFAULT_GRAPH, SectionType.FWD, True)
    assert (program.inputs, program.outputs) == (("x",), ("y",))
    assert not program.residents


@pytest.mark.parametrize("text", [PLAIN, DEFAULTED, WEIGHT_OUT, PASSED_ON, INNER])
def test_models_and_programs_are_planned_alike(text: str, tmp_path: Path) -> None:
    whole = samba_onnx.analyze(model(text), keep_dynamic=True)
    planned = analyze_programs([onnx_program(load_model(model(text)))])
    for field in ("graphs", "sections", "fallbacks", "symbols", "regions", "passes", "notes"):
        assert getattr(whole, field) == getattr(planned, field)
    with (
        samba_onnx.convert(
            model(text), tmp_path / "m.pef", sample=False, trial=False, keep_dynamic=True
        ) as one,
        compile_programs([onnx_program(load_model(model(text)))], tmp_path / "p.pef") as other,
    ):
        assert one.manifest.members == other.manifest.members


@pytest.mark.parametrize("ir_version", [3, 10])
def test_the_default_of_an_input_is_one_from_ir_version_4_on(
    ir_version: int, tmp_path: Path
) -> None:
    x = np.float32([1, 2])
    with samba_onnx.convert(model(DEFAULTED, ir_version), tmp_path / "m.pef") as pef:
        with samba_onnx.Device(pef, threads=1) as device:
            assert device.run({"x": x})["y"].tolist() == [3, 8]
            if ir_version == 10:
                changed = device.run({"x": x, "scale": np.float32([5, 6])})
                assert changed["y"].tolist() == [5, 12]
        manifest = pef.manifest
    assert manifest.graphs[0].inputs == (("x",) if ir_version == 3 else ("x", "scale"))
    assert any("scale" in note for note in manifest.notes) == (ir_version == 10)


def test_weights_and_inputs_that_are_outputs_keep_their_names(tmp_path: Path) -> None:
    x, unread = np.float32([1, -2]), np.float32([4, 5, 6])
    with samba_onnx.convert(model(WEIGHT_OUT), tmp_path / "w.pef") as pef:
        assert kinds(pef.manifest) == {
            "x": SymbolKind.INPUT,
            "w": SymbolKind.WEIGHT,
            "y": SymbolKind.OUTPUT,
        }
        with samba_onnx.Device(pef, threads=1) as device:
            outputs = device.run({"x": x})
    assert {name: array.tolist() for name, array in outputs.items()} == {
        "y": [3, -8],
        "w": [3, 4],
    }
    with (
        samba_onnx.convert(model(PASSED_ON), tmp_path / "p.pef") as pef,
        samba_onnx.Device(pef, threads=1) as device,
    ):
        outputs = device.run({"x": x, "unread": unread})
        assert list(outputs) == ["x", "y", "unread"]
        assert outputs["unread"].tolist() == [4, 5, 6]


def test_dynamic_dimensions_and_every_pass_are_in_the_manifest() -> None:
    manifest = samba_onnx.analyze(model(PLAIN), keep_dynamic=True)
    assert [dimension.name for dimension in manifest.dynamic_dimensions] == ["batch"]
    assert not manifest.bound_dimensions
    for dims, size, assumed in ({"batch": 2}, 2, False), ({}, 1, True):
        static = samba_onnx.analyze(model(PLAIN), dims=dims)
        assert not static.dynamic_dimensions
        (bound,) = static.bound_dimensions
        assert (bound.name, bound.inputs, bound.size, bound.assumed) == (
            *("batch", ("x[0]",)),
            *(size, assumed),
        )
    assert manifest.passes[0].name == "ForgetShapes"
    assert len(manifest.passes) <= len(RUNNING)


def test_two_onnx_models_are_two_graphs_of_one_pef(tmp_path: Path) -> None:
    second = PLAIN.replace("x", "z").replace("y", "v")
    models = [model(text.replace("batch", "2")) for text in (PLAIN, second)]
    before = [proto.SerializeToString() for proto in models]
    programs = [
        dataclasses.replace(onnx_program(load_model(proto)), name=name)
        for name, proto in zip(("one", "two"), models, strict=True)
    ]
    with (
        compile_programs(programs, tmp_path / "both.pef") as pef,
        samba_onnx.Device(pef, threads=1) as device,
    ):
        assert [kinds(pef.manifest)[name] for name in ("w", "w_2")] == [SymbolKind.WEIGHT] * 2
        x = np.float32([[1, 0, 0, 0], [0, 1, 0, 0]])
        first = device.run({"x": x}, graph="one")
        other = device.run({"z": x}, graph="two")
    assert [proto.SerializeToString() for proto in models] == before
    assert first["y"].tolist() == other["v"].tolist() == [[1, 2], [3, 4]]


def test_a_weight_may_be_called_as_a_value_inside_of_another_graph(tmp_path: Path) -> None:
    inner = model("g (float[2, 4] z) => (float[2, 4] v) { w = Relu(z)\n v = Neg(w) }")
    programs = [
        dataclasses.replace(onnx_program(load_model(proto)), name=name)
        for name, proto in (("inner", inner), ("weight", model(PLAIN.replace("batch", "2"))))
    ]
    with (
        compile_programs(programs, tmp_path / "both.pef") as pef,
        samba_onnx.Device(pef, threads=1) as device,
    ):
        assert kinds(pef.manifest)["w"] == SymbolKind.WEIGHT
        x = np.float32([[1, 0, 0, 0], [0, 1, 0, 0]])
        assert device.run({"x": x}, graph="weight")["y"].tolist() == [[1, 2], [3, 4]]
        assert device.run({"z": x}, graph="inner")["v"].tolist() == (-x).tolist()


def test_a_model_in_memory_keeps_the_names_of_what_its_branches_hold() -> None:
    twice = model(
        """g (float[2] x, bool c) => (float[2] y) {
        one = Constant <value = float[2] {5, 6}> ()
        z = Add(x, one)
        y = If (c) <
            then_branch = t () => (float[2] a) <float[2] k = {1, 2}> { a = Mul(z, k) },
            else_branch = e () => (float[2] b) <float[2] k = {3, 4}> { b = Add(z, k) }> }"""
    )
    before = twice.SerializeToString()
    first, second = samba_onnx.analyze(twice), samba_onnx.analyze(twice)
    assert twice.SerializeToString() == before
    assert first == second


@pytest.mark.parametrize("late", ["m.pef", "m.pef.log"])
@pytest.mark.parametrize("before", [True, False])
def test_a_pef_and_its_log_change_together_or_not_at_all(
    late: str, before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of the two cannot be put in its place at the very end."""
    output = tmp_path / "m.pef"
    if before:
        samba_onnx.convert(model(PASSED_ON), output, sample=False, trial=False).close()
    old = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    replace = os.replace

    def full(source: Path, target: Path) -> None:
        if Path(target).name == late and Path(source).suffix != ".old":
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OutputError, match=f"{late}: cannot write: no space left"):
        samba_onnx.convert(model(INNER), output, sample=False, trial=False)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == old
