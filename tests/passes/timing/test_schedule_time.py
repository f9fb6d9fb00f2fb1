from __future__ import annotations

from dataclasses import replace

import pytest

from samba_onnx.passes.targets import load_target
from samba_onnx.passes.timing.schedule_time import (
    ScheduleTime,
    call_seconds,
    run_time,
    schedule_time,
    token_seconds,
)
from samba_onnx.pef.manifest import Call, Cause, Direction, Fallback, Region, Section, Transfer
from samba_onnx.pef.sharding import Collective, CollectiveKind, Parallelism
from samba_onnx.pef.stage_records import SectionTime, Streaming
from samba_onnx.program.kinds import SymbolKind
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
    ("busy", "sent", "steps", "collectives"),
    [
        (4.0, 3.0, 0, 0.125),  # all of it goes on beside the section before, but for its latency
        (4.0, 6.0, 0, 2.125),
        (0.5, 6.0, 0, 5.625),
        (4.0, 3.0, 6, 6 * 0.125),  # each step of a ring waits, and none beside anything
        (4.0, 6.0, 6, 2.0 + 6 * 0.125),
    ],
)
def test_an_exchange_streams_beside_the_section_before_it(
    busy: float, sent: float, steps: int, collectives: float
) -> None:
    manifest = all_on_rdu()
    (section,), graph = manifest.sections, manifest.graphs[0]
    (call,) = graph.calls
    time = SectionTime(launch=8.0, compute=busy, off_chip=0.25, fill=1.0)
    compute = replace(section, time=time, seconds=time.seconds)
    size = int(sent * 2**20)
    exchange = replace(
        section,
        id=section.id + 1,
        time=SectionTime(),
        seconds=0.0,
        collective=Collective(CollectiveKind.ALL_REDUCE, size, steps=steps),
    )
    target = replace(
        load_target("sn30").summary,
        rdu_link_bytes_per_second=2.0**20,
        rdu_link_latency_seconds=0.125,
    )
    copy = Transfer(
        "x",
        size,
        Direction.RDU_TO_RDU,
        Cause.COLLECTIVE,
        target.exchange_seconds(size, steps),
        call.id + 1,
    )
    calls = (call, replace(call, id=call.id + 1, stage=exchange.id))
    graph = replace(graph, calls=calls, run_transfers=(copy,))
    stages = {compute.id: compute, exchange.id: exchange}
    whole = schedule_time(graph, stages, target, {})
    assert (whole.sections, whole.collectives) == (time.seconds, collectives)
    by_call, once = call_seconds(graph, stages, target, {})
    assert (by_call, once) == ({call.id: time.seconds, calls[1].id: collectives}, 0.0)
    # Of a device of which only peak figures are known nothing is said to overlap.
    plain = schedule_time(graph, stages, replace(target, timing=None), {})
    assert plain.collectives == sent + max(steps, 1) * 0.125
    # One of four tokens sends a fourth, and waits as often.
    whole = replace(manifest, target=target, parallel=Parallelism("weight", 4, tokens=4))
    assert token_seconds(whole, [graph]) == sent / 4 + max(steps, 1) * 0.125


LINKED = replace(
    load_target("sn30").summary,
    rdu_link_bytes_per_second=2.0**20,
    rdu_link_latency_seconds=0.125,
    overlaps_to_rdu=False,
    overlaps_to_host=False,
    overlaps_cpu=False,
)
BUSY = SectionTime(compute=4.0)
FALLBACK = replace(detector().fallbacks[0], seconds=1.0)


def overlapped(*program: SectionTime | Streaming | Fallback | float | None) -> ScheduleTime:
    """Return the times of a program: sections, fallbacks, and exchanges by what they take behind their latency.

    None is a section of which only the sum is known, 4 seconds; what streams is in one that computes as long.
    """
    (section,), graph = all_on_rdu().sections, all_on_rdu().graphs[0]
    stages: dict[int, Section | Fallback] = {}
    copies: list[Transfer] = []
    for number, stage in enumerate(program, start=5):
        if isinstance(stage, Fallback):
            stages[number] = replace(stage, id=number)
        elif isinstance(stage, float):
            size = int(stage * 2**20)
            seconds = LINKED.exchange_seconds(size)
            way, cause = Direction.RDU_TO_RDU, Cause.COLLECTIVE
            copies.append(Transfer("x", size, way, cause, seconds, number))
            stages[number] = replace(section, id=number, seconds=0.0, time=SectionTime())
        elif isinstance(stage, Streaming):
            stages[number] = replace(section, id=number, seconds=4.0, time=BUSY, streaming=stage)
        else:
            seconds = 4.0 if stage is None else stage.seconds
            stages[number] = replace(section, id=number, seconds=seconds, time=stage)
    up = Transfer("x", 64, Direction.HOST_TO_RDU, Cause.INPUT, 2.0, None)
    calls = tuple(Call(number, number) for number in stages)
    graph = replace(graph, calls=calls, run_transfers=(up, *copies))
    whole = schedule_time(graph, stages, LINKED, {})
    by_call, once = call_seconds(graph, stages, LINKED, {})
    assert sum(by_call.values()) + once == whole.total
    # A copy that belongs to no call is made before the first one.
    plain = replace(graph, run_transfers=tuple(copies))
    alone, _ = call_seconds(plain, stages, LINKED, {})
    assert {call: by_call[call] - alone.get(call, 0.0) for call in by_call} == {
        call: 2.0 if call == min(by_call) else 0.0 for call in by_call
    }
    return whole


@pytest.mark.parametrize(
    ("program", "collectives"),
    [
        ((3.0,), 3.125),  # nothing goes on before the first section
        ((BUSY, 0.25), 0.125),
        ((BUSY, 3.0, 3.0), 3.0 + 2 * 0.125 - 1.0),  # the second one beside what is left
        ((BUSY, 4.0, 3.0), 3.0 + 2 * 0.125),
        ((BUSY, SectionTime(), 3.0), 0.125),  # what only renames elements is no section
        ((BUSY, FALLBACK, 3.0), 3.125),  # a fallback waits for the section
        ((BUSY, None, 3.0), 3.125),  # of a section whose parts are not known nothing is said
        ((3.0, Streaming(4.0, 4)), 3.125 - 2.25),  # but for the first tile
        ((), 0.0),
    ],
)
def test_what_an_exchange_goes_on_beside(
    program: tuple[SectionTime | Streaming | Fallback | float | None, ...], collectives: float
) -> None:
    time = overlapped(*program)
    assert time.collectives == collectives
    assert time.host_transfers == 2.0
    assert time.cpu == (1.0 if FALLBACK in program else 0.0)


def test_launches_of_a_spatial_run_are_made_once_and_known_where_parts_are() -> None:
    (section,), graph = all_on_rdu().sections, all_on_rdu().graphs[0]
    time = SectionTime(launch=8.0, compute=4.0)
    timed = replace(section, id=1, time=time, seconds=time.seconds)
    summed = replace(section, id=2, time=None, seconds=3.0)
    copy = Transfer("z", 64, Direction.HOST_TO_RDU, Cause.INPUT, 2.0, 1)
    graph = replace(graph, calls=(Call(0, 1), Call(1, 2)), run_transfers=(copy,), spatial_batches=5)
    stages = {1: timed, 2: summed}
    for overlaps in (False, True):  # all mini-batches are copied before the first one is computed
        target = replace(LINKED, overlaps_to_rdu=overlaps)
        by_call, once = call_seconds(graph, stages, target, {})
        assert (by_call, once) == ({0: 4.0, 1: 3.0}, 8.0 + 2.0)
        whole = schedule_time(graph, stages, target, {})
        assert (whole.total, whole.hidden_transfers) == (5 * 7.0 + 10.0, 0.0)


def test_what_stays_on_the_chip_is_moved_once_a_run_and_batches_are_not() -> None:
    """Weights are read, a running mean is read and written; a constant that is baked in has no place."""
    manifest = all_on_rdu()
    (section,), (x, y) = manifest.sections, manifest.symbols
    section = replace(section, inputs=("x", "mean"), outputs=("y", "mean"), weights=("w", "c"))
    sizes = {"w": 700_000, "mean": 4_000}
    kinds = {"w": SymbolKind.WEIGHT, "mean": SymbolKind.BUFFER}
    stays = [
        replace(x, name=name, kind=kinds[name], region=name, bytes=sizes[name]) for name in sizes
    ]
    baked = replace(x, name="c", kind=SymbolKind.CONSTANT, region="", baked=True)
    known = replace(
        manifest,
        sections=(section,),
        symbols=(*(replace(one, batch_shape=(4, *one.shape)) for one in (x, y)), *stays, baked),
        regions=(*manifest.regions, *(Region(name, sizes[name], "hbm") for name in sizes)),
        graphs=(replace(manifest.graphs[0], spatial_batches=4),),
    )
    time = run_time(known, known.graphs[0])
    assert time.residents == pytest.approx((700_000 + 2 * 4_000) / 1.6e12, rel=1e-12)
    assert run_time(manifest, manifest.graphs[0]).residents == 0.0
