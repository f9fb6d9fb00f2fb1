"""Memory and time of graphs that are mapped spatially, in the report and the log."""

from __future__ import annotations

import dataclasses

import pytest

from samba_onnx.pef.log import render_log
from samba_onnx.pef.manifest import Manifest
from samba_onnx.pef.stage_records import SectionTime
from samba_onnx.report.report import Report
from tests.report.samples import detector


def spatial(batches: int) -> Manifest:
    """The two sections of the sample, on the chip at once; its weights and an update of them stay."""
    manifest = detector()
    first, last = manifest.sections
    last = dataclasses.replace(last, outputs=(*last.outputs, "w"))
    calls = tuple(call for call in manifest.graphs[0].calls if call.stage != 1)
    graph = dataclasses.replace(manifest.graphs[0], calls=calls, spatial_batches=batches)
    return dataclasses.replace(manifest, graphs=(graph,), sections=(first, last), fallbacks=())


def test_sections_count_for_every_mini_batch_and_what_stays_once() -> None:
    manifest = spatial(10)
    (rate,) = (t.bytes_per_second for t in manifest.target.tiers if t.name == "hbm")
    report = Report.from_manifest(manifest)
    # Read by the first section, and written by the last one.
    expected = 10 * (4e-6 + 1e-9) + 2 * 700_000 / rate
    assert report.modelled_time.sections_seconds == pytest.approx(expected)
    one = Report.from_manifest(spatial(0))
    assert one.modelled_time.sections_seconds == pytest.approx(4e-6 + 1e-9)


def test_all_sections_are_on_the_chip() -> None:
    used = [
        next(tier.used_bytes for tier in Report.from_manifest(one).memory if tier.tier == "sram")
        for one in (spatial(10), spatial(0))
    ]
    assert used == [1_302_000, 1_300_000]


def test_people_and_machines_are_told() -> None:
    report, plain = Report.from_manifest(spatial(10)), Report.from_manifest(spatial(0))
    assert [graph.spatial_batches for graph in report.graphs] == [10]
    (note,) = set(report.notes) - set(plain.notes)
    assert "graph main is mapped spatially: a run takes 10 mini-batches" in note
    assert "graph main  spatial, 10 mini-batches per run\n" in render_log(spatial(10))
    assert "spatial" not in render_log(spatial(0))


def test_of_a_section_that_takes_no_time_nothing_takes_the_most() -> None:
    first, last = detector().sections
    none = dataclasses.replace(first, time=SectionTime(), seconds=0.0)
    filling = dataclasses.replace(last, time=SectionTime(fill=1e-6), seconds=1e-6)
    report = Report.from_manifest(dataclasses.replace(detector(), sections=(none, filling)))
    assert [section.dominant for section in report.sections] == ["", "fill"]
