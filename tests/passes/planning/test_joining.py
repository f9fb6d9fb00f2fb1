"""Parts of a program become one graph with one schedule and one plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from samba_onnx.compiling.compiler import ProgramSource, analyze_programs, compile_programs
from samba_onnx.errors import InternalError, UsageError
from samba_onnx.pef.manifest import Cause, Direction, Manifest
from samba_onnx.program.kinds import SectionType, SymbolKind
from samba_onnx.program.program import ArginSpec, Part, Program
from tests.passes.planning.plan_samples import parse
from tests.unsupported_operator import UNSUPPORTED

FORWARD = """agraph (float[4,8] x, float[8,2] w) => (float[4,2] y, float[4,2] kept) {
    kept = MatMul (x, w)
    t = Relu (kept)
    y = Abs (t)
}"""
BACKWARD = """agraph (float[4,8] x, float[4,2] kept, float[4,2] y__grad) => (float[8,2] w__grad) {
    t = Mul (kept, y__grad)
    xt = Transpose <perm = [1, 0]> (x)
    w__grad = MatMul (xt, t)
}"""
OPTIMIZE = """agraph (float[8,2] w, float[8,2] w__grad, float lr) => (float[8,2] w__updated) {
    t = Mul (w__grad, lr)
    w__updated = Sub (w, t)
}"""


def part(kind: SectionType, text: str) -> Part:
    model = parse(text)
    model.graph.opset_imports[""] = 21
    return Part(kind, model)


def program(forward: str = FORWARD, name: str = "forward") -> Program:
    return Program(
        name=name,
        parts=(
            part(SectionType.FWD, forward),
            part(SectionType.BCKWD, BACKWARD),
            part(SectionType.OPT, OPTIMIZE),
        ),
        inputs=("x",),
        outputs=("y",),
        residents={
            "w": SymbolKind.WEIGHT,
            "w__updated": SymbolKind.WEIGHT,
            "y__grad": SymbolKind.GRADIENT,
            "w__grad": SymbolKind.GRADIENT,
        },
        regions={"w__updated": "w"},
        argins=(ArginSpec("lr", "tensor(float)", 0.1),),
        metadata={"kind": "training"},
    )


def manifest(forward: str = FORWARD) -> Manifest:
    return analyze_programs([program(forward)])


def test_sections_have_the_type_of_their_part_and_one_schedule() -> None:
    found = manifest()
    (graph,) = found.graphs
    stages = found.stages()
    assert [stages[call.stage].type for call in graph.calls] == ["FWD", "BCKWD", "OPT"]
    assert [call.id for call in graph.calls] == [0, 1, 2]
    assert graph.inputs == ("x", "lr")
    assert graph.outputs == ("y",)


def test_residents_are_loaded_once_and_share_regions() -> None:
    found = manifest()
    (graph,) = found.graphs
    symbols = {symbol.name: symbol for symbol in found.symbols}
    assert [(t.symbol, t.cause) for t in graph.load_transfers] == [("w", Cause.WEIGHT)]
    assert symbols["w"].region == symbols["w__updated"].region == "w"
    assert symbols["w__updated"].kind is SymbolKind.WEIGHT
    assert {region.name: region.mutable for region in found.regions}["w"]
    assert symbols["kept"].kind is SymbolKind.ACTIVATION


def test_a_step_moves_only_inputs_and_outputs() -> None:
    (graph,) = manifest().graphs
    moves = [(t.symbol, t.direction, t.call) for t in graph.run_transfers]
    assert moves == [("x", Direction.HOST_TO_RDU, 0), ("y", Direction.RDU_TO_HOST, 0)]


def test_names_inside_parts_do_not_collide() -> None:
    found = manifest()
    assert len({symbol.name for symbol in found.symbols}) == len(found.symbols)


def test_a_fallback_gets_a_copy_of_what_it_reads_of_a_resident() -> None:
    forward = FORWARD.replace("t = Relu (kept)", "c = Det (s)\n t = Mul (kept, c)").replace(
        "kept = MatMul (x, w)", "kept = MatMul (x, w)\n s = Slice (w, b0, b1)"
    )
    forward = forward.replace("{", "<int64[1] b0 = {0}, int64[1] b1 = {2}> {", 1)
    found = manifest(forward)
    (graph,) = found.graphs
    causes = {(t.symbol, t.direction): t.cause for t in graph.run_transfers}
    assert Cause.FALLBACK in causes.values()
    assert {f.type for f in found.fallbacks} == {SectionType.FWD}


def test_what_a_fallback_writes_to_a_resident_is_copied_to_the_device() -> None:
    gradient = BACKWARD.replace(
        "w__grad = MatMul (xt, t)", f"g = MatMul (xt, t)\n w__grad = {UNSUPPORTED} (g)"
    )
    whole = program()
    changed = replace(
        whole, parts=(whole.parts[0], part(SectionType.BCKWD, gradient), whole.parts[2])
    )
    (graph,) = analyze_programs([changed]).graphs
    moves = [(t.symbol, t.direction, t.cause, t.call) for t in graph.run_transfers]
    assert ("w__grad", Direction.HOST_TO_RDU, Cause.FALLBACK, 2) in moves
    assert [m for m in moves if m[0] == "w__grad"] == [moves[2]]
    assert all(t.symbol != "w__grad" for t in graph.load_transfers)


def test_graphs_share_what_has_one_name(tmp_path: Path) -> None:
    second = Program(
        name="again",
        parts=(
            part(
                SectionType.FWD,
                FORWARD.replace("float[4,2] y,", "float[4,2] z,")
                .replace("y = Abs", "z = Abs")
                .replace("kept", "inner"),
            ),
        ),
        inputs=("x",),
        outputs=("z",),
        residents={"w": SymbolKind.WEIGHT, "inner": SymbolKind.BUFFER},
        regions={},
    )
    with compile_programs([program(), second], tmp_path / "two.pef") as pef:
        found = pef.manifest
    assert [graph.name for graph in found.graphs] == ["forward", "again"]
    assert [t.symbol for t in found.graphs[1].load_transfers] == []
    assert [r.name for r in found.regions].count("w") == 1
    assert found.metadata == {"kind": "training"}


def test_tensors_of_two_sizes_cannot_share_a_region() -> None:
    whole = replace(program(), regions={"w__updated": "w", "y__grad": "w"})
    with pytest.raises(UsageError, match="share region 'w'"):
        analyze_programs([whole])


def test_an_input_that_nothing_gives_is_our_fault() -> None:
    whole = program()
    with pytest.raises(InternalError, match="kept"):
        analyze_programs([replace(whole, parts=whole.parts[1:])])


def test_parse_helper_makes_float_graphs() -> None:
    model = part(SectionType.FWD, FORWARD).model
    assert model.graph.inputs[0].dtype == ir.DataType.FLOAT
    assert np.prod(model.graph.inputs[0].shape.numpy()) == 32  # type: ignore[union-attr]


def test_a_pef_may_carry_the_weights(tmp_path: Path) -> None:
    weight = np.arange(16, dtype=np.float32).reshape(8, 2)
    source = ProgramSource([program()], residents={"w": weight})
    with compile_programs(source, tmp_path / "w.pef") as pef:
        assert np.array_equal(pef.weight("w"), weight)
        assert pef.manifest.symbols
    with compile_programs([program()], tmp_path / "n.pef") as pef:
        assert all(s.stored is None for s in pef.manifest.symbols if s.kind == "weight")
