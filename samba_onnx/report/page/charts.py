"""Charts of a report, as sizes in percent of their frame: whoever draws them writes no number but these."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from samba_onnx.pef.stage_records import Term
from samba_onnx.report.headline import PART_WORDS
from samba_onnx.report.memory_timeline import GraphMemoryReport
from samba_onnx.report.report import Report
from samba_onnx.report.report_records import SectionReport
from samba_onnx.report.units import (
    byte_text,
    count_text,
    flop_text,
    percent_text,
    printable,
    rate_text,
    second_text,
)

__all__ = [
    "Bar",
    "MemoryChart",
    "Roofline",
    "longest_operators",
    "longest_stages",
    "memory_charts",
    "roofline",
    "stage_times",
    "time_bars",
    "time_parts",
]

_COLUMNS: Final = 160
"""Columns of a timeline: more are narrower than a pixel of a telephone."""
_POINTS: Final = 400
"""Sections in a roofline, the longest."""
_TOP: Final = 10
"""Rows of a table of what takes most time."""

_KINDS: Final = {
    Term.COMPUTE.value: "compute",
    Term.ON_CHIP.value: "on_chip",
    Term.OFF_CHIP.value: "off_chip",
    Term.LAUNCH.value: "launch",
    Term.FILL.value: "fill",
}
"""The colour of what takes most of a section."""


@dataclass(frozen=True)
class Bar:
    """A piece of a bar, or a bar of a table."""

    label: str
    """What it is."""
    value: str
    """How much."""
    share: str
    """Which part of the whole."""
    left: float
    """Where it begins, in percent."""
    width: float
    """How wide it is, in percent."""
    kind: str
    """Names its colour."""
    detail: str = ""
    """What else a table says of it."""


def time_parts(report: Report) -> dict[str, float]:
    """Return what makes a run as long as it is: its parts, without what goes on beside something else.

    Args:
        report: The report.
    """
    time = report.modelled_time
    hidden = {"cpu": time.hidden_cpu_seconds, "host_transfers": time.hidden_transfers_seconds}
    # Else the pieces would be longer than the run.
    return {name: max(part - hidden.get(name, 0.0), 0.0) for name, part in time.parts.items()}


def time_bars(report: Report) -> list[Bar]:
    """Return what takes the time of a run, without what goes on beside something else.

    Args:
        report: The report.
    """
    parts = time_parts(report)
    total = sum(parts.values())
    bars, left = [], 0.0
    # The order of the words, not of the sizes: two pages are compared by eye.
    for name in (name for name in PART_WORDS if parts.get(name)):
        width = 100 * parts[name] / total
        share = percent_text(round(parts[name] * 1e12), round(total * 1e12))
        bars.append(
            Bar(
                PART_WORDS[name],
                second_text(parts[name]),
                share,
                round(left, 3),
                round(width, 3),
                name,
            )
        )
        left += width
    return bars


def longest_stages(report: Report) -> list[Bar]:
    """Return the sections and fallbacks that take most of a run, the longest first.

    Args:
        report: The report.
    """
    return _bars(stage_times(report), report.modelled_time.total_seconds)


def stage_times(report: Report) -> list[tuple[float, str, str, str]]:
    """Return seconds, name, kind and detail of all sections and fallbacks.

    Args:
        report: The report.
    """
    rows = [
        (one.modelled_seconds, one.name, _KINDS.get(one.dominant, "rdu"), _section_detail(one))
        for one in report.sections
    ]
    on_cpu: defaultdict[int, list[float]] = defaultdict(list)
    for reason in report.fallbacks:
        for node in reason.nodes:
            on_cpu[node.stage].append(node.modelled_seconds)
    names = {call.stage: call.name for graph in report.graphs for call in graph.schedule}
    # A fallback takes as long as its nodes, of which each is timed by itself.
    rows += [
        (sum(each), names.get(stage, ""), "cpu", f"{count_text(len(each), 'node')} on the CPU")
        for stage, each in on_cpu.items()
    ]
    return rows


def _section_detail(section: SectionReport) -> str:
    nodes = f"{count_text(section.nodes, 'node')}, {flop_text(section.flops)}"
    return f"{nodes}, most of it {section.dominant}" if section.dominant else nodes


def longest_operators(report: Report) -> list[Bar]:
    """Return the operators whose nodes take most of a run, the longest first; none without the program.

    Args:
        report: The report.
    """
    if report.program is None:
        return []
    seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
    counts: defaultdict[tuple[str, str], int] = defaultdict(int)
    for node in report.program.nodes:
        seconds[node.operator, node.home] += node.modelled_seconds
        counts[node.operator, node.home] += 1
    rows = [
        (
            time,
            operator,
            home,
            f"{count_text(counts[operator, home], 'node')} on the {home.upper()}",
        )
        for (operator, home), time in seconds.items()
    ]
    return _bars(rows, report.modelled_time.total_seconds)


def _bars(rows: Iterable[tuple[float, str, str, str]], total: float) -> list[Bar]:
    """Return bars of seconds, label, kind and detail, as long as they are to the longest."""
    longest = sorted(rows, key=lambda row: (-row[0], row[1]))[:_TOP]
    most = max((row[0] for row in longest), default=0.0)
    return [
        Bar(
            label=printable(label),
            value=second_text(seconds),
            # Those that go on beside others may be more than the whole.
            share=percent_text(round(seconds * 1e12), max(round(total * 1e12), 1)),
            left=0.0,
            width=round(100 * seconds / most, 3) if most else 0.0,
            kind=kind,
            detail=detail,
        )
        for seconds, label, kind, detail in longest
    ]


@dataclass(frozen=True)
class Column:
    """A piece of a column, of one tier."""

    left: float
    width: float
    top: float
    height: float
    tier: str
    title: str


@dataclass(frozen=True)
class MemoryChart:
    """What calls of a graph need in device memory."""

    graph: str
    columns: tuple[Column, ...]
    most: str
    """The highest."""
    calls: int
    tiers: tuple[str, ...]
    peak: str
    """What stands at the peak, in a sentence."""


def memory_charts(report: Report) -> list[MemoryChart]:
    """Return a chart for each graph that needs device memory.

    Args:
        report: The report.
    """
    names = {call.stage: call.name for graph in report.graphs for call in graph.schedule}
    return [
        _memory_chart(one, names) for one in report.memory_timelines if one.peak_bytes and one.calls
    ]


def _memory_chart(memory: GraphMemoryReport, names: dict[int, str]) -> MemoryChart:
    calls = memory.calls
    count = min(len(calls), _COLUMNS)
    ends = [len(calls) * number // count for number in range(count + 1)]
    tiers = tuple(sorted({tier for call in calls for tier in call.tiers}))
    columns = []
    for number, (begin, end) in enumerate(itertools.pairwise(ends)):
        # A column of several calls is as high as the highest, so that the peak is seen.
        call = max(calls[begin:end], key=lambda one: one.bytes)
        top = 100.0
        for tier in tiers:
            height = 100 * call.tiers.get(tier, 0) / memory.peak_bytes
            top -= height
            title = f"call {call.call}, {names.get(call.stage, '')}: {byte_text(call.tiers.get(tier, 0))} in {tier}"
            left, width = 100 * number / count, 100 / count
            columns.append(
                Column(
                    round(left, 3),
                    round(width, 3),
                    round(top, 3),
                    round(height, 3),
                    tier,
                    printable(title),
                )
            )
    stage = next((call.stage for call in calls if call.call == memory.peak_call), None)
    peak = f"{byte_text(memory.peak_bytes)} at once, in call {memory.peak_call} ({printable(names.get(stage or 0, ''))})"
    return MemoryChart(
        printable(memory.graph),
        tuple(columns),
        byte_text(memory.peak_bytes),
        len(calls),
        tiers,
        peak,
    )


@dataclass(frozen=True)
class Point:
    """A section in a roofline."""

    left: float
    top: float
    kind: str
    title: str


@dataclass(frozen=True)
class Line:
    """A roof, or a line of the grid with its label."""

    x1: float
    y1: float
    x2: float
    y2: float
    label: str
    kind: str


@dataclass(frozen=True)
class Roofline:
    """Sections by operations for each byte of off-chip memory, and operations per second, both by powers of ten."""

    points: tuple[Point, ...]
    roofs: tuple[Line, ...]
    grid: tuple[Line, ...]
    left_out: int
    """Sections that are not shown: without operations or traffic, or shorter than those that are."""


def roofline(report: Report) -> Roofline | None:
    """Return the roofline of all sections.

    Args:
        report: The report.

    Returns:
        The chart; None without sections that compute, and for a report that does not know the device.
    """
    sections = [s for s in report.sections if s.flops and s.off_chip_bytes and s.modelled_seconds]
    device = report.device
    if not sections or device is None or not device.peak_flops:
        return None
    shown = sorted(sections, key=lambda section: (-section.modelled_seconds, section.id))[:_POINTS]
    intensities = [section.flops / section.off_chip_bytes for section in shown]
    rates = [section.flops / section.modelled_seconds for section in shown]
    peaks = sorted(set(device.peak_flops.values()))
    tiers = [tier for tier in device.tiers if tier.name != "sram"]
    bandwidth = max((tier.bytes_per_second for tier in tiers), default=0.0)
    knee = peaks[-1] / bandwidth if bandwidth else 1.0
    # With room behind the knee: a roof that ends where it begins is none.
    x = _Scale([*intensities, knee * 4])
    y = _Scale([*rates, peaks[-1] * 2])
    points = [
        Point(
            x.place(intensity),
            y.upward(rate),
            _KINDS.get(section.dominant, "rdu"),
            f"{printable(section.name)}: {rate_text(rate, 'FLOP/s')} at {intensity:.3g} FLOP per byte, "
            f"{second_text(section.modelled_seconds)}",
        )
        for section, intensity, rate in zip(shown, intensities, rates, strict=True)
    ]
    roofs = [_peak_line(x, y, rate, bandwidth, device.peak_flops) for rate in reversed(peaks)]
    roofs += [_slope(x, y, tier.bytes_per_second, peaks[-1], tier.name) for tier in tiers]
    grid = [Line(at, 0, at, 100, text, "x") for at, text in x.ticks()]
    grid += [Line(0, 100 - at, 100, 100 - at, text, "y") for at, text in y.ticks()]
    return Roofline(tuple(points), tuple(roofs), tuple(grid), len(report.sections) - len(shown))


def _peak_line(
    x: _Scale, y: _Scale, rate: float, bandwidth: float, peaks: dict[str, float]
) -> Line:
    names = ", ".join(name for name, each in peaks.items() if each == rate)
    start = x.place(rate / bandwidth) if bandwidth else 0.0
    return Line(
        start, y.upward(rate), 100, y.upward(rate), f"{rate_text(rate, 'FLOP/s')} {names}", "peak"
    )


def _slope(x: _Scale, y: _Scale, bandwidth: float, peak: float, name: str) -> Line:
    """Return the roof of a memory, from the left edge or the floor up to the peak."""
    begin = max(x.low, y.low / bandwidth)
    end = min(x.high, peak / bandwidth)
    return Line(
        x.place(begin),
        y.upward(begin * bandwidth),
        x.place(end),
        y.upward(end * bandwidth),
        f"{name} {rate_text(bandwidth, 'B/s')}",
        "memory",
    )


class _Scale:
    """Powers of ten that hold all numbers."""

    def __init__(self, numbers: Sequence[float]) -> None:
        self._first = math.floor(math.log10(min(numbers)))
        self._last = max(math.ceil(math.log10(max(numbers))), self._first + 1)
        self.low, self.high = 10.0**self._first, 10.0**self._last

    def place(self, number: float) -> float:
        """Return where a number stands, in percent."""
        share = (math.log10(number) - self._first) / (self._last - self._first)
        return round(100 * min(max(share, 0.0), 1.0), 3)

    def upward(self, number: float) -> float:
        """Return where a number stands, in percent from the top."""
        return round(100 - self.place(number), 3)

    def ticks(self) -> list[tuple[float, str]]:
        """Return places and texts of the powers, few enough to be read."""
        # Six labels are as many as a telephone has room for.
        step = max(1, (self._last - self._first) // 5)
        powers = range(self._first, self._last + 1, step)
        return [
            (
                self.place(10.0**power),
                rate_text(10.0**power, "") if power >= 0 else f"{10.0**power:g}",
            )
            for power in powers
        ]
