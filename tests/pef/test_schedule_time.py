from __future__ import annotations

from dataclasses import replace

import pytest

from samba_onnx.pef.schedule_time import ScheduleTime, schedule_time
from samba_onnx.pef.timing import SectionTime
from tests.report.samples import detector


def test_each_part_of_a_run_is_in_one_sum() -> None:
    manifest = detector()
    first, last = manifest.sections
    waits = SectionTime(launch=8.0, compute=2.0, on_chip=1.0, off_chip=4.0, fill=0.5)
    busy = SectionTime(launch=8.0, compute=4.0, off_chip=2.0, fill=0.25)
    sections = (replace(first, time=waits), replace(last, time=busy))
    known = replace(manifest, sections=sections)
    graph = known.graphs[0]
    time = schedule_time(graph, known.stages())
    copies = sum(transfer.seconds for transfer in graph.run_transfers)
    assert time == ScheduleTime(
        launch=16.0,
        compute=4.0,
        on_chip=0.0,
        off_chip=4.0,
        fill=0.75,
        collectives=0.0,
        host_transfers=copies,
        cpu=14e-6,
    )
    assert time.sections == waits.seconds + busy.seconds
    assert time.total == pytest.approx(time.sections + copies + 14e-6)


def test_sections_of_an_older_pef_count_as_they_are() -> None:
    manifest = detector()
    time = schedule_time(manifest.graphs[0], manifest.stages())
    assert time.sections == sum(section.seconds for section in manifest.sections)
