"""Device memory over a run, in records and for people, against sums made by hand."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import onnx
import pytest
from onnx import parser

import samba_onnx
from samba_onnx.passes.targets import load_target
from samba_onnx.report import Report
from samba_onnx.report.layout import render
from samba_onnx.report.memory_timeline import (
    CallMemoryReport,
    GraphMemoryReport,
    memory_timelines,
    timeline_text,
)

# float32: x 64 bytes, w 256, b 128; a, e and y 64 each, u 32.
MODEL = """
    <ir_version: 10, opset_import: ["" : 21]>
    net (float[2, 8] x) => (float[2, 4] u, float[2, 8] y) <float[8, 8] w, float[8, 4] b>
    { a = MatMul(x, w) e = Tanh(a) u = MatMul(e, b) y = Mul(a, e) }
"""
SIZES = (10, 20, 30, 70, 60, 50, 50, 50, 70)
KEPT = {"weight": 256 + 128, "input": 64}


def report(*, hbm: int = 10**6, text: str = MODEL) -> Report:
    target = load_target("sn40l")
    tiers = tuple(
        dataclasses.replace(tier, bytes=hbm) if tier.name == "hbm" else tier
        for tier in target.summary.tiers
    )
    small = dataclasses.replace(target, summary=dataclasses.replace(target.summary, tiers=tiers))
    model = parser.parse_model(text)
    for name, shape in (("w", (8, 8)), ("b", (8, 4))):
        array = np.ones(shape, np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return Report.from_manifest(samba_onnx.analyze(model, target=small, level="o0"))


def test_every_call_has_what_it_needs() -> None:
    (memory,) = report().memory_timelines
    assert [call.kinds for call in memory.calls] == [
        KEPT | {"activation": 64},
        KEPT | {"activation": 128},
        KEPT | {"activation": 128, "output": 32},
        KEPT | {"activation": 128, "output": 96},
    ]
    assert [call.bytes for call in memory.calls] == [512, 576, 608, 672]
    assert all(call.tiers == {"hbm": call.bytes} for call in memory.calls)
    assert (memory.peak_call, memory.peak_bytes) == (3, 672)
    assert memory.peak_kinds == memory.calls[3].kinds
    assert memory.reserved_bytes == 672  # nothing ends before the last call here
    largest = [(value.name, value.bytes, value.layer) for value in memory.largest]
    layers = [call.name for call in report().graphs[0].schedule]
    assert largest[:2] == [("w", 256, layers[0]), ("b", 128, layers[2])]
    assert {name: layer for name, _, layer in largest}["e"] == layers[1]
    assert sum(size for _, size, _ in largest) == 672


def test_what_has_no_room_in_hbm_is_streamed_and_takes_its_time() -> None:
    """Weights come last, so that w alone is beyond 500 bytes; b still fits into what is left."""
    wide, narrow = report(), report(hbm=500)
    (memory,) = narrow.memory_timelines
    assert [call.streamed_bytes for call in memory.calls] == [256, 0, 0, 0]
    assert memory.streamed_bytes == 256
    assert memory.calls[3].tiers == {"hbm": 672 - 256, "ddr": 256}
    assert wide.memory_timelines[0].streamed_bytes == 0
    first, *others = zip(narrow.sections, wide.sections, strict=True)
    assert first[0].modelled_seconds > first[1].modelled_seconds
    assert all(one.modelled_seconds == other.modelled_seconds for one, other in others)
    text = render(timeline_text(memory, {}, 12))
    assert "reads and writes 256 B in memory that is slower" in text


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (None, [(str(call), f"{SIZES[call]} B") for call in range(9)]),
        # A row has the most that one of its calls needs; neighbours that read the same are one.
        (3, [("0 to 2", "30 B"), ("3 to 8", "70 B")]),
        (
            9,
            [
                ("0", "10 B"),
                ("1", "20 B"),
                ("2", "30 B"),
                ("3", "70 B"),
                ("4", "60 B"),
                ("5 to 7", "50 B"),
                ("8", "70 B"),
            ],
        ),
    ],
)
def test_long_schedules_are_condensed(rows: int | None, expected: list[tuple[str, str]]) -> None:
    calls = tuple(
        CallMemoryReport(call, call, size, {"weight": size}, {"hbm": size}, 0)
        for call, size in enumerate(SIZES)
    )
    memory = GraphMemoryReport("main", 90, 70, 3, {"weight": 70}, {"hbm": 70}, (), 0, calls)
    title, peak, headings, *lines = render(timeline_text(memory, {3: "layer.3"}, rows)).splitlines()
    assert title == "Device memory over a run"
    assert peak.strip() == (
        "70 B needed at once, in call 3 (layer.3); 90 B reserved while the PEF is loaded"
    )
    assert headings.split() == ["calls", "needed", "weights"]
    shown = [re.split(r"\s{2,}", line.strip()) for line in lines[: len(expected)]]
    assert [(calls, needed) for calls, needed, _ in shown] == expected
    assert lines[len(expected)].split()[0] == "largest"


def test_a_graph_without_calls_has_no_timeline() -> None:
    text = '<ir_version: 10, opset_import: ["" : 21]> net (float[2] x) => (float[2] x) {}'
    manifest = samba_onnx.analyze(parser.parse_model(text))
    (memory,) = memory_timelines(manifest)
    assert (memory.peak_bytes, memory.peak_call, memory.calls) == (0, None, ())
    assert timeline_text(memory, {}, 12) is None
