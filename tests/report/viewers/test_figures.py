"""Figures have the numbers of the report, read back from what matplotlib would draw."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import pytest

from samba_onnx.errors import UsageError
from samba_onnx.report import Report
from tests.report.samples import detector

pytest.importorskip("matplotlib", reason="pip install 'samba-onnx[figures]'")


@pytest.fixture(scope="module")
def report() -> Report:
    return Report.from_manifest(detector())


def axes_of(report: Report, kind: str) -> Any:
    drawn = report.figure(kind)
    # Drawn, too: a name that matplotlib takes for a formula fails here only.
    drawn.savefig(io.BytesIO(), format="png")
    (axes,) = drawn.axes
    return axes


def test_bars_are_as_long_as_sections_and_fallbacks_take(report: Report) -> None:
    axes = axes_of(report, "time")
    widths = [bar.get_width() for bar in axes.patches]
    on_cpu = sum(node.modelled_seconds for reason in report.fallbacks for node in reason.nodes)
    sections = sum(section.modelled_seconds for section in report.sections)
    assert widths == sorted(widths, reverse=True)
    assert sum(widths) == pytest.approx(sections + on_cpu)
    assert len(axes.get_yticklabels()) == len(widths)


def test_steps_are_as_high_as_calls_need_memory(report: Report) -> None:
    axes = axes_of(report, "memory")
    memory = max(report.memory_timelines, key=lambda one: one.peak_bytes)
    # The upper edge of the last tier is the sum of all.
    assert list(axes.patches[-1].get_data().values) == [call.bytes for call in memory.calls]
    assert max(axes.patches[-1].get_data().values) == memory.peak_bytes


def test_tiers_stand_on_each_other(report: Report) -> None:
    memory = max(report.memory_timelines, key=lambda one: one.peak_bytes)
    calls = tuple(
        dataclasses.replace(call, bytes=3, tiers={"ddr": 1, "hbm": 2}) for call in memory.calls
    )
    two = dataclasses.replace(memory, calls=calls, peak_bytes=3)
    lower, upper = axes_of(dataclasses.replace(report, memory_timelines=(two,)), "memory").patches
    assert set(lower.get_data().values) == {1}
    assert set(upper.get_data().values) == {3}
    assert set(upper.get_data().baseline) == {1}


def test_points_are_at_intensity_and_rate(report: Report) -> None:
    assert report.device is not None
    axes = axes_of(report, "roofline")
    points = axes.collections[0].get_offsets().tolist()
    assert points == [
        pytest.approx([s.flops / s.off_chip_bytes, s.flops / s.modelled_seconds])
        for s in report.sections
        if s.flops and s.off_chip_bytes and s.modelled_seconds
    ]
    # No section is above the roof of its device.
    assert all(rate <= max(report.device.peak_flops.values()) for _, rate in points)


def test_names_are_no_formulas(report: Report) -> None:
    model = dataclasses.replace(report.model, name=r"$\frac{$ \undefined $x$.onnx")
    for kind in ("time", "memory", "roofline"):
        axes_of(dataclasses.replace(report, model=model), kind)


def test_what_there_is_no_figure_of_is_said(report: Report) -> None:
    with pytest.raises(UsageError, match="expected time, memory, roofline"):
        report.figure("pie")
    with pytest.raises(UsageError, match="no roofline"):
        dataclasses.replace(report, device=None).figure("roofline")
    with pytest.raises(UsageError, match="no figure of memory"):
        dataclasses.replace(report, memory_timelines=()).figure("memory")
    with pytest.raises(UsageError, match="no figure of time"):
        dataclasses.replace(report, sections=(), fallbacks=()).figure("time")
