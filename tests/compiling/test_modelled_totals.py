"""What a run is modelled to take is one number, whoever adds it up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from samba_onnx.compiling.compiler import analyze
from samba_onnx.passes.planning.plan import GraphPlan
from samba_onnx.passes.timing.schedule_time import call_seconds, places, run_time
from samba_onnx.pef.manifest import Direction, Manifest, Section
from samba_onnx.pef.stage_records import Term
from samba_onnx.report import Report

EXACT = 1e-12
"""Of sums of a few times, in another order."""
LAYERS = "".join(f"a{n} = MatMul(b{n}, w{n})\n b{n + 1} = Relu(a{n})\n" for n in range(4))
WEIGHTS = ", ".join(f"float[64,64] w{n}" for n in range(4))
VALUES = np.ones((64, 64), np.float32)
TEXT = f"""<ir_version: 9, opset_import: ["": 20]>
g (float[64,64] x) => (float[64,64] b4) <{WEIGHTS}> {{ c = Relu(x)
 b0 = Acos(c)
 {LAYERS} }}"""

PROGRAMS = {
    "o0": ("sn40l", "o0", 1),
    "o3": ("sn40l", "o3", 1),
    "looped": ("sn40l:kernel-looping,host-launch", "o0", 1),
    "tensor-parallel": ("sn40l", "o0", 2),
    "tensor-parallel and looped": ("sn40l:kernel-looping", "o0", 2),
}


def manifest_of(folder: Path, target: str, level: str, rdus: int) -> Manifest:
    model = onnx.parser.parse_model(TEXT)
    weights = [numpy_helper.from_array(VALUES, f"w{n}") for n in range(4)]
    model.graph.initializer.extend(weights)
    del model.graph.value_info[:]
    onnx.save(model, folder / "m.onnx")
    return analyze(folder / "m.onnx", target=target, level=level, n_chips=rdus)


def plan_seconds(manifest: Manifest) -> float:
    return GraphPlan(
        graph=manifest.graphs[0],
        sections=manifest.sections,
        fallbacks=manifest.fallbacks,
        symbols=manifest.symbols,
        regions=manifest.regions,
        stages=(),
        experimental={},
        notes=(),
        target=manifest.target,
    ).seconds


def beside_sections(manifest: Manifest) -> float:
    """Return what of the bytes between RDUs is sent while the sections around the exchange compute."""
    graph, stages = manifest.graphs[0], manifest.stages()
    rate = manifest.target.rdu_link_bytes_per_second
    sent = {t.call: t.bytes for t in graph.run_transfers if t.direction is Direction.RDU_TO_RDU}
    hidden, taken = 0.0, dict.fromkeys(stages, 0.0)
    for before, call, behind in zip(graph.calls, graph.calls[1:], graph.calls[2:], strict=False):
        if call.id not in sent:
            continue
        section, reader = stages[before.stage], stages[behind.stage]
        assert isinstance(section, Section)
        assert section.time is not None
        first = min(sent[call.id] / rate, section.time.overlapped - taken[section.id])
        hidden += first
        if isinstance(reader, Section) and reader.streaming is not None:
            # 64 rows arrive in two tiles, and nothing begins before the first of them is there.
            taken[reader.id] = min(sent[call.id] / rate - first, reader.streaming.seconds) / 2
            hidden += taken[reader.id]
    return hidden


@pytest.mark.parametrize("program", PROGRAMS)
def test_plan_report_and_schedule_add_up_to_one_time(program: str, tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path, *PROGRAMS[program])
    graph, stages = manifest.graphs[0], manifest.stages()
    time, report = run_time(manifest, graph), Report.from_manifest(manifest).modelled_time
    assert time.cpu > 0
    assert bool(time.collectives) == (manifest.parallel is not None)
    assert plan_seconds(manifest) == pytest.approx(time.total, rel=EXACT)
    assert report.total_seconds == pytest.approx(time.total, rel=EXACT)
    assert sum(report.parts.values()) == pytest.approx(time.serial, rel=EXACT)
    hidden = report.hidden_transfers_seconds + report.hidden_cpu_seconds
    assert time.total + hidden == pytest.approx(time.serial, rel=EXACT)
    called = [stages[call.stage] for call in graph.calls]
    by_hand = sum(stage.seconds for stage in called) + sum(t.seconds for t in graph.run_transfers)
    assert time.serial == pytest.approx(by_hand - beside_sections(manifest), rel=EXACT)
    calls, once = call_seconds(graph, stages, manifest.target, places(manifest.symbols))
    assert (sum(calls.values()), once) == (pytest.approx(time.total, rel=EXACT), 0.0)
    for section in Report.from_manifest(manifest).sections:
        parts = section.time_parts
        overlapped = max(parts["compute"], parts["on_chip"], parts["off_chip"])
        assert section.modelled_seconds == parts["launch"] + overlapped + parts["fill"]
        assert (section.dominant in set(Term)) == (section.modelled_seconds > 0)
