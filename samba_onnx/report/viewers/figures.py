"""A report as figures of matplotlib, for notebooks and papers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from samba_onnx.errors import MissingLibraryError, UsageError
from samba_onnx.report.page.charts import stage_times
from samba_onnx.report.report import Report
from samba_onnx.report.units import byte_text, rate_text, second_text
from samba_onnx.safety.files import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import Formatter

__all__ = ["KINDS", "figure"]

_MOST_BARS: Final = 15
"""Sections and fallbacks in the figure of time, the longest."""
_MOST_LETTERS: Final = 60
"""Letters of a name: what is longer would leave a bar no room."""
_COLORS: Final = {"cpu": "tab:orange", "rdu": "tab:blue"}
"""As on our pages: what is on the CPU is seen without looking for it."""


def figure(report: Report, kind: str) -> Figure:
    """Return a figure that belongs to no window: nothing of matplotlib's is changed for other figures.

    Args:
        report: The report.
        kind: One of ``KINDS``.

    Raises:
        UsageError: There is no such figure, or the report has nothing for it.
        MissingLibraryError: The extra ``figures`` is not installed.
    """
    draw = KINDS.get(kind)
    if draw is None:
        raise UsageError(f"there is no figure {printable(kind)!r}: expected {', '.join(KINDS)}")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingLibraryError(
            "Report.figure needs matplotlib: install it with pip install 'samba-onnx[figures]'"
        ) from None
    # Not pyplot, which keeps every figure, and chooses how all are shown.
    drawn = Figure(figsize=(8, 4.5), layout="constrained")
    axes = drawn.add_subplot()
    draw(report, axes)
    axes.set_title(_plain(f"{report.model.name} on {report.target}, as it is modelled"))
    return drawn


def _time(report: Report, axes: Axes) -> None:
    """Draw a bar for each of the sections and fallbacks that take most of a run."""
    rows = sorted(stage_times(report), key=lambda row: (-row[0], row[1]))[:_MOST_BARS]
    if not rows or not rows[0][0]:
        raise UsageError("there is no figure of time: nothing of this model takes any")
    seconds = [row[0] for row in rows]
    colors = [_COLORS.get(kind, _COLORS["rdu"]) for _, _, kind, _ in rows]
    bars = axes.barh(range(len(rows)), seconds, color=colors)
    axes.bar_label(bars, [second_text(each) for each in seconds], padding=3)
    axes.set_yticks(range(len(rows)), [_plain(name) for _, name, _, _ in rows])
    # The longest first, as in every table.
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.xaxis.set_major_formatter(_units("s"))
    axes.set_xlabel("modelled time in a run")


def _memory(report: Report, axes: Axes) -> None:
    """Draw what each call of the graph with the highest peak needs in device memory, by tier."""
    memory = max(report.memory_timelines, key=lambda one: one.peak_bytes, default=None)
    if memory is None or not memory.calls:
        raise UsageError("there is no figure of memory: the report has no timeline of it")
    tiers = sorted({tier for call in memory.calls for tier in call.tiers})
    edges = list(range(len(memory.calls) + 1))
    floor = [0.0] * len(memory.calls)
    for tier in tiers:
        top = [low + call.tiers.get(tier, 0) for low, call in zip(floor, memory.calls, strict=True)]
        # Steps, not lines: between two calls nothing is half there.
        axes.stairs(top, edges, baseline=floor, fill=True, label=_plain(tier))
        floor = top
    axes.axhline(memory.peak_bytes, linewidth=1, linestyle=":", color="black")
    axes.annotate(f"peak {byte_text(memory.peak_bytes)}", (0, memory.peak_bytes), va="bottom")
    axes.set_xlabel(_plain(f"calls of graph {memory.graph}"))
    axes.yaxis.set_major_formatter(_units("B"))
    axes.set_ylabel("device memory at once")
    axes.legend(loc="lower right")


def _roofline(report: Report, axes: Axes) -> None:
    """Draw sections below the roofs of the device."""
    device = report.device
    sections = [s for s in report.sections if s.flops and s.off_chip_bytes and s.modelled_seconds]
    if device is None or not device.peak_flops or not sections:
        raise UsageError("there is no roofline: no section computes, or the report names no device")
    intensities = [section.flops / section.off_chip_bytes for section in sections]
    rates = [section.flops / section.modelled_seconds for section in sections]
    axes.scatter(intensities, rates, s=16, zorder=3)
    peak = max(device.peak_flops.values())
    for rate in sorted(set(device.peak_flops.values())):
        names = ", ".join(name for name, each in device.peak_flops.items() if each == rate)
        axes.axhline(rate, linewidth=1, color="black")
        axes.annotate(f"{rate_text(rate, 'FLOP/s')} {_plain(names)}", (min(intensities), rate))
    for tier in device.tiers:
        # On-chip memory has no traffic among these bytes.
        bandwidth = 0.0 if tier.name == "sram" else tier.bytes_per_second
        if bandwidth:
            begin, knee = min(intensities) / 2, peak / bandwidth
            axes.plot([begin, knee], [begin * bandwidth, peak], label=_plain(tier.name))
    axes.set(xscale="log", yscale="log", xlabel="FLOP per off-chip byte", ylabel="FLOP/s")
    axes.legend(loc="lower right")


KINDS: Final = {"time": _time, "memory": _memory, "roofline": _roofline}
"""What draws each figure."""


def _units(unit: str) -> Formatter:
    """Return what writes numbers of an axis with prefixes, as ``20 µs``."""
    from matplotlib.ticker import EngFormatter

    return EngFormatter(unit)


def _plain(text: str) -> str:
    """Return a name as matplotlib shows it: what stands between two dollars would be a formula."""
    return printable(text, _MOST_LETTERS).replace("$", r"\$")
