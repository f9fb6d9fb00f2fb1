"""When calls and copies of a run begin and end, against schedules by hand and what holds of any."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samba_onnx.passes.timing.overlap import Resource, Timeline, timeline
from samba_onnx.passes.timing.schedule_time import call_seconds, schedule_time
from samba_onnx.pef.manifest import Call, Cause, Direction, Fallback, Graph, Section, Transfer
from samba_onnx.pef.target_summary import TargetSummary
from tests.report.samples import target

SERIAL = target()
AT_ONCE = replace(SERIAL, overlaps_to_rdu=True, overlaps_to_host=True, overlaps_cpu=True)
UP, DOWN = Direction.HOST_TO_RDU, Direction.RDU_TO_HOST
EXACT = 1e-9


@dataclass(frozen=True)
class Run:
    """A schedule with its copies, as a planner makes them."""

    graph: Graph
    stages: dict[int, Section | Fallback]
    regions: dict[str, str]

    def line(self, device: TargetSummary = AT_ONCE) -> Timeline:
        busy = {i: s.seconds for i, s in self.stages.items() if isinstance(s, Section)}
        return timeline(self.graph, self.stages, device, self.regions, busy)

    @property
    def serial(self) -> float:
        copies = sum(copy.seconds for copy in self.graph.run_transfers)
        return copies + sum(stage.seconds for stage in self.stages.values())


def run(text: str, copy: float = 2.0, outputs: Sequence[str] = (), places: str = "") -> Run:
    """Return a run of stages like ``R4 x>a``: home, seconds, what is read and written.

    Args:
        text: The stages, with commas between them. What nobody writes is an input.
        copy: Seconds of every copy.
        outputs: What the graph returns.
        places: Symbols that share a place on the device, as ``a=b``, with spaces between them.
    """
    stages: dict[int, Section | Fallback] = {}
    transfers: list[Transfer] = []
    writer: dict[str, int] = {}
    here: dict[bool, set[str]] = {True: set(), False: set()}
    for number, words in enumerate(text.split(",")):
        home, values = words.split()
        before, _, after = values.partition(">")
        read, written = tuple(filter(None, before.split("+"))), tuple(after.split("+"))
        on_rdu, seconds = home[0] == "R", float(home[1:])
        parts = (number, str(number), "g", "", read, written, (), {})
        stage: Section | Fallback
        stage = Section(*parts, seconds=seconds) if on_rdu else Fallback(*parts, seconds=seconds)
        stages[number] = stage
        for name in read:
            if name not in here[on_rdu] and (on_rdu or name in writer):
                cause = Cause.FALLBACK if name in writer else Cause.INPUT
                here[on_rdu].add(name)
                way = UP if on_rdu else DOWN
                transfers.append(Transfer(name, 1, way, cause, copy, number))
        here[on_rdu].update(written)
        writer.update(dict.fromkeys(written, number))
    left = [name for name in outputs if name not in here[False]]
    transfers += [Transfer(name, 1, DOWN, Cause.OUTPUT, copy, writer[name]) for name in left]
    calls = tuple(Call(number, number) for number in stages)
    graph = Graph("g", (), tuple(outputs), calls, (), tuple(transfers))
    regions = dict(pair.split("=") for pair in places.split())
    return Run(graph, stages, regions)


@pytest.mark.parametrize(
    ("one", "end"),
    [
        # An input of the second section is copied beside the first one.
        (run("R4 x>a, R3 a+z>y"), 2 + 4 + 3),
        # An output of the first section is copied beside the second one, the other one behind that.
        (run("R4 x>a, R3 a>y", outputs=("a", "y")), 2 + 4 + 3 + 2),
        # A fallback between two sections: everything waits for what is before it.
        (run("R4 x>a, C5 a>b, R3 b>y", outputs=("y",)), 2 + 4 + 2 + 5 + 2 + 3 + 2),
        # A section that reads nothing of the fallback goes on beside it, and its copies.
        (run("R4 x>a, C5 a>b, R3 a>c, R1 b+c>y"), 2 + 4 + 2 + 5 + 2 + 1),
        # A fallback of what the host has goes on beside a section.
        (run("R9 x>a, C5 t>b, R3 a+b>y"), 2 + 9 + 3),
        # Its result goes where the first section has read its input: the copy waits for that.
        (run("R9 x>a, C1 t>b, R3 a+b>y", places="x=p b=p"), 2 + 9 + 2 + 3),
        # What is copied to the host must be there before a section overwrites it.
        (run("R1 x>a, R1 x>b, R1 b>y", copy=5.0, outputs=("a",), places="a=p y=p"), 5 + 1 + 5 + 1),
        # And before another copy to the device does.
        (run("R1 x>a, C1 t>b, R3 b>y", copy=5.0, outputs=("a",), places="a=p b=p"), 5 + 1 + 5 + 5 + 3),
        # What a fallback waits for goes before an output of the same section.
        (run("R1 x>a+b, C9 b>c", outputs=("a",)), 2 + 1 + 2 + 9),
        # Both directions of the link at once.
        (run("R1 x>a, R1 z>b", copy=6.0, outputs=("a",)), 6 + 1 + 6),
    ],
)  # fmt: skip
def test_runs_by_hand(one: Run, end: float) -> None:
    assert one.line().end == end
    assert one.line(SERIAL).end == one.serial
    time = schedule_time(one.graph, one.stages, AT_ONCE, one.regions)
    assert time.total == pytest.approx(end, rel=EXACT)
    apart = schedule_time(one.graph, one.stages, SERIAL, one.regions)
    assert (apart.total, apart.hidden_transfers, apart.hidden_cpu) == (one.serial, 0.0, 0.0)


def test_each_direction_and_the_host_may_wait_on_their_own() -> None:
    one = run("R4 x>a, C5 t>b, R3 a+z>y", outputs=("a", "y"))
    ends = {
        name: one.line(replace(AT_ONCE, **{name: False})).end
        for name in ("overlaps_to_rdu", "overlaps_to_host", "overlaps_cpu")
    }
    # With all at once: x, both sections, y; z, the fallback and a go on beside these.
    assert one.line().end == 2 + 4 + 3 + 2
    assert ends == {
        "overlaps_to_rdu": 2 + 4 + 2 + 2 + 3 + 2,  # z waits for a
        "overlaps_to_host": 2 + 4 + 2 + 2 + 3 + 2,  # z waits for a, and so does the fallback
        "overlaps_cpu": one.serial,  # the fallback waits for a, and z for the fallback
    }


def test_what_stays_on_the_device_is_copied_to_the_host_at_once() -> None:
    one = run("R1 x>a")
    weight = Transfer("w", 1, DOWN, Cause.OUTPUT, 5.0, 0)
    graph = replace(one.graph, run_transfers=(*one.graph.run_transfers, weight))
    assert replace(one, graph=graph).line().end == 5.0


def test_sums_that_round_hide_nothing() -> None:
    """Parts of a second that add up to another last digit one way than the other."""
    for length in range(1, 6):
        words = [f"R0.{n + 1} v{n}>v{n + 1}" for n in range(length)]
        one = run(", ".join(words), 0.1, outputs=(f"v{length}",))
        time = schedule_time(one.graph, one.stages, AT_ONCE, {})
        assert (time.hidden_transfers, time.hidden_cpu) == (0.0, 0.0)


def test_what_is_hidden_of_copies_and_of_the_host() -> None:
    one = run("R4 x>a, C5 t>b, R3 a+z>y", outputs=("a", "y"))
    time = schedule_time(one.graph, one.stages, AT_ONCE, one.regions)
    assert (time.serial, time.total) == (20.0, 11.0)
    # The host computes in the first five seconds: beside the copy of x, then beside the first section.
    assert time.hidden_cpu == pytest.approx(3.0)
    assert time.hidden_transfers == pytest.approx(6.0)
    assert (time.host_transfers, time.to_host) == (8.0, 4.0)


@st.composite
def runs(draw: st.DrawFn) -> Run:
    known, words = ["i", "j", "k"], []
    for number in range(draw(st.integers(1, 7))):
        read = draw(st.lists(st.sampled_from(known), max_size=3, unique=True))
        home, seconds = draw(st.sampled_from("RC")), draw(st.integers(0, 20))
        words.append(f"{home}{seconds} {'+'.join(read)}>v{number}")
        known.append(f"v{number}")
    outputs = draw(st.lists(st.sampled_from(known[3:]), max_size=3, unique=True))
    shared = draw(st.lists(st.sampled_from(known), max_size=4, unique=True))
    one = run(", ".join(words), 1.0, outputs, " ".join(f"{name}=p" for name in shared))
    moves = tuple(
        replace(copy, seconds=float(draw(st.integers(0, 20)))) for copy in one.graph.run_transfers
    )
    return replace(one, graph=replace(one.graph, run_transfers=moves))


@given(runs())
def test_a_run_is_no_shorter_than_each_resource_is_busy_and_no_longer_than_all(one: Run) -> None:
    line = one.line()
    assert all(line.end >= line.busy(resource) for resource in Resource)
    assert line.end <= one.serial
    assert sum(line.busy(resource) for resource in Resource) == one.serial
    assert line.busy(*Resource) == line.end  # something is always on its way
    assert len(line.tasks) == len(one.stages) + len(one.graph.run_transfers)


@given(runs())
def test_one_thing_at_a_time_and_nothing_before_what_it_reads(one: Run) -> None:
    line = one.line()
    for resource in Resource:
        own = [task for task in line.tasks if task.resource is resource]
        assert all(first.end <= second.begin for first, second in itertools.pairwise(own))
    calls = {task.call: task for task in line.tasks if not task.symbol}
    writer = {name: i for i, stage in one.stages.items() for name in stage.outputs}
    for task in line.tasks:
        ends = {(other.symbol, other.resource): other.end for other in line.tasks if other.symbol}
        if task.symbol and task.symbol in writer:
            assert task.begin >= calls[writer[task.symbol]].end
        if not task.symbol:
            home = Resource.TO_RDU if task.resource is Resource.RDU else Resource.TO_HOST
            for name in one.stages[task.call].inputs:
                same = name in writer and calls[writer[name]].resource is task.resource
                there = calls[writer[name]].end if same else ends.get((name, home), 0.0)
                assert task.begin >= there


@given(runs(), st.data())
def test_one_more_copy_or_a_longer_one_never_makes_a_run_shorter(
    one: Run, data: st.DataObject
) -> None:
    moves = one.graph.run_transfers
    place = data.draw(st.integers(0, max(len(moves) - 1, 0)))
    end = one.line().end
    fewer = moves[:place] + moves[place + 1 :]
    assert replace(one, graph=replace(one.graph, run_transfers=fewer)).line().end <= end
    longer = tuple(
        replace(copy, seconds=copy.seconds + 7 * (number == place))
        for number, copy in enumerate(moves)
    )
    assert replace(one, graph=replace(one.graph, run_transfers=longer)).line().end >= end


@given(st.lists(st.tuples(st.sampled_from("RC"), st.integers(0, 20)), min_size=1, max_size=6))
def test_what_depends_on_all_before_it_overlaps_nothing(stages: list[tuple[str, int]]) -> None:
    words = [f"{home}{time} v{n}>v{n + 1}" for n, (home, time) in enumerate(stages)]
    one = run(", ".join(words), 3.0, outputs=(f"v{len(words)}",))
    assert one.line().end == one.serial
    time = schedule_time(one.graph, one.stages, AT_ONCE, {})
    assert (time.hidden_transfers, time.hidden_cpu) == (0.0, 0.0)


@given(runs(), st.booleans(), st.booleans(), st.booleans())
def test_calls_add_up_to_the_end_whatever_overlaps(
    one: Run, up: bool, down: bool, cpu: bool
) -> None:
    device = replace(SERIAL, overlaps_to_rdu=up, overlaps_to_host=down, overlaps_cpu=cpu)
    time = schedule_time(one.graph, one.stages, device, one.regions)
    end = one.line(device).end
    assert one.line().end <= end <= one.serial
    assert time.total == pytest.approx(end, rel=EXACT, abs=EXACT)
    calls, once = call_seconds(one.graph, one.stages, device, one.regions)
    assert (sum(calls.values()), once) == (pytest.approx(end, rel=EXACT, abs=EXACT), 0.0)
    assert min(calls.values()) >= 0
