"""What a run is modelled to take, in records and for people."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samba_onnx.pef.manifest import Call, Manifest, Section
from samba_onnx.report.times import modelled_time, modelled_time_lines
from tests.report.samples import detector


def overlapping() -> Manifest:
    """Return the detector with a section between its fallback and the last one, which needs neither."""
    manifest = detector()
    first, last = manifest.sections
    between = Section(3, "between", "main", "", ("x",), ("t",), (), {}, seconds=9e-6)
    graph = manifest.graphs[0]
    calls = (*graph.calls[:2], Call(2, 3), Call(3, 2))
    copies = [
        replace(copy, call=3) if copy.symbol in ("kept", "y") else copy
        for copy in graph.run_transfers
    ]
    graph = replace(graph, calls=calls, run_transfers=tuple(copies))
    target = replace(
        manifest.target, overlaps_to_rdu=True, overlaps_to_host=True, overlaps_cpu=True
    )
    sections = (first, between, last)
    return replace(manifest, graphs=(graph,), sections=sections, target=target)


def test_what_is_hidden_is_said() -> None:
    manifest = overlapping()
    time = modelled_time(manifest, manifest.graphs)
    # The section goes on beside the copies of what the fallback reads.
    assert time.hidden_transfers_seconds == pytest.approx(9e-6)
    assert time.hidden_cpu_seconds == 0
    copies = {copy.symbol: copy.seconds for copy in manifest.graphs[0].run_transfers}
    assert time.busy == pytest.approx(
        {
            "rdu": 4e-6 + 9e-6 + 1e-9,
            "cpu": 14e-6,
            "host_to_rdu": copies["x"] + copies["kept"],
            "rdu_to_host": copies["scores"] + copies["boxes"] + copies["y"],
        }
    )
    assert time.total_seconds == pytest.approx(sum(time.busy.values()) - 9e-6)
    text = [line.plain for line in modelled_time_lines(time)]
    assert "- 9.0 µs at once" in text[0]
    assert text[1] == "at once with others: 9.0 µs of 75 µs of the transfers"
    assert text[2] == "busy: RDU 13 µs, CPU 14 µs, host → RDU 39 µs, RDU → host 36 µs"


def test_nothing_is_said_where_nothing_is_hidden() -> None:
    manifest = detector()
    time = modelled_time(manifest, manifest.graphs)
    assert time.total_seconds == pytest.approx(sum(time.busy.values()))
    text = " ".join(line.plain for line in modelled_time_lines(time))
    assert "at once" not in text
    assert "busy" not in text
