"""Targets for people."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from samba_onnx.report.layout import table, titled
from samba_onnx.report.units import byte_text, figure_text, printable, rate_text, second_text
from samba_onnx.tools.targets.targets_report import (
    TargetListReport,
    TargetReport,
)


def targets_text(report: TargetListReport) -> RenderableType:
    """Return what ``targets`` shows.

    Args:
        report: The targets.

    Returns:
        Something that a rich console prints.
    """
    parts: list[RenderableType] = []
    for target in report.targets:
        if parts:
            parts.append(Text(""))
        parts.append(_target(target))
    return Group(*parts)


def _target(target: TargetReport) -> RenderableType:
    """Return one block: published figures, then assumed ones."""
    figures = [
        (
            f"{tier.name} memory",
            f"{byte_text(tier.bytes)}, {rate_text(tier.bytes_per_second, 'B/s')}",
        )
        for tier in target.tiers
    ]
    figures += [
        (f"peak, {dtype}", rate_text(rate, "FLOP/s"))
        for dtype, rate in target.peak_flops_per_second.items()
    ]
    link = rate_text(target.link_bytes_per_second, "B/s")
    figures.append(("host link", f"{link}, latency {second_text(target.link_latency_seconds)}"))
    figures.append(("operators", f"{target.operators} (samba-port ops --target {target.name})"))
    contents: list[RenderableType] = [table(("figure", "value"), figures)]
    if target.assumptions:
        cells = [
            (figure.name, figure_text(figure.value, figure.unit), figure.note)
            for figure in target.assumptions
        ]
        contents += [
            Text("assumed, because the vendor does not publish them:"),
            table(("figure", "value", "note"), cells),
        ]
    title = printable(target.name)
    if target.description:
        title += f": {printable(target.description)}"
    return titled(title, *contents)
