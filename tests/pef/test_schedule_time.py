from __future__ import annotations

from dataclasses import replace

import pytest

from samba_onnx.passes.targets import load_target
from samba_onnx.pef.manifest import Cause, Direction, Transfer
from samba_onnx.pef.schedule_time import ScheduleTime, call_seconds, run_time, schedule_time
from samba_onnx.pef.timing import SectionTime
from tests.report.samples import all_on_rdu, detector


def test_each_part_of_a_run_is_in_one_sum() -> None:
    manifest = detector()
    first, last = manifest.sections
    waits = SectionTime(launch=8.0, compute=2.0, on_chip=1.0, off_chip=4.0, fill=0.5)
    busy = SectionTime(launch=8.0, compute=4.0, off_chip=2.0, fill=0.25)
    sections = (replace(first, time=waits), replace(last, time=busy))
    known = replace(manifest, sections=sections)
    graph = known.graphs[0]
    time = run_time(known, graph)
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
        to_host=copies - graph.run_transfers[0].seconds - graph.run_transfers[3].seconds,
    )
    assert time.sections == waits.seconds + busy.seconds
    assert time.total == pytest.approx(time.sections + copies + 14e-6)


def test_sections_of_an_older_pef_count_as_they_are() -> None:
    manifest = detector()
    time = run_time(manifest, manifest.graphs[0])
    assert time.sections == sum(section.seconds for section in manifest.sections)


@pytest.mark.parametrize(
    ("busy", "sent", "collectives"),
    [
        (4.0, 3.0, 0.125),  # all of it goes on beside the section before, but for its latency
        (4.0, 6.0, 2.125),
        (0.5, 6.0, 5.625),
    ],
)
def test_an_exchange_streams_beside_the_section_before_it(
    busy: float, sent: float, collectives: float
) -> None:
    manifest = all_on_rdu()
    (section,), graph = manifest.sections, manifest.graphs[0]
    (call,) = graph.calls
    time = SectionTime(launch=8.0, compute=busy, off_chip=0.25, fill=1.0)
    compute = replace(section, time=time, seconds=time.seconds)
    exchange = replace(section, id=section.id + 1, time=SectionTime(), seconds=0.0)
    target = replace(
        load_target("sn30").summary,
        rdu_link_bytes_per_second=2.0**20,
        rdu_link_latency_seconds=0.125,
    )
    size = int(sent * 2**20)
    copy = Transfer(
        "x",
        size,
        Direction.RDU_TO_RDU,
        Cause.COLLECTIVE,
        target.exchange_seconds(size),
        call.id + 1,
    )
    calls = (call, replace(call, id=call.id + 1, stage=exchange.id))
    graph = replace(graph, calls=calls, run_transfers=(copy,))
    stages = {compute.id: compute, exchange.id: exchange}
    whole = schedule_time(graph, stages, target, {})
    assert (whole.sections, whole.collectives) == (time.seconds, collectives)
    by_call, once = call_seconds(graph, stages, target, {})
    assert (by_call[calls[1].id], once) == (collectives, 0.0)
    # Of a device of which only peak figures are known nothing is said to overlap.
    plain = schedule_time(graph, stages, replace(target, timing=None), {})
    assert plain.collectives == sent + 0.125
