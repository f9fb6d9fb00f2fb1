"""What a report says in a line each, before ``-v`` is asked for: time, memory, copies, sizes, evidence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from samba_onnx.report.layout import facts, some
from samba_onnx.report.report_records import TransferTotal
from samba_onnx.report.times import modelled_time_lines
from samba_onnx.report.units import byte_text, count_text, percent_text, printable, second_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from samba_onnx.report.report import Report

_NAMES: Final = 4
"""Names in a line before the others are counted."""


def brief_facts(report: Report, rows: int | None = None) -> RenderableType | None:
    """Return the lines, each behind the word that says what it is about; those without a fact are left out.

    Args:
        report: The report.
        rows: Has no effect, for a fact is one line or two.
    """
    return facts(fact_lines(report)) if report.coverage.nodes else None


def fact_lines(report: Report) -> list[tuple[str, str]]:
    """Return word and text of each line.

    Args:
        report: The report.
    """
    lines: list[tuple[str, str]] = [
        ("time", line.plain) for line in modelled_time_lines(report.modelled_time)
    ]
    lines += [("memory", text) for text in _memory(report)]
    lines += [("copies", text) for text in _copies(report)]
    lines += [("sizes", text) for text in _sizes(report)]
    lines += [("rewritten", text) for text in _rewritten(report)]
    lines += [("evidence", text) for text in _evidence(report)]
    return lines + [("assumed", text) for text in _assumed(report)]


def _memory(report: Report) -> Iterator[str]:
    """Say what is reserved on the device, and the most that a run needs of it at once."""
    used = [
        f"{tier.tier} {byte_text(tier.used_bytes)} ({percent_text(tier.used_bytes, tier.capacity_bytes)})"
        for tier in report.memory
        if tier.used_bytes
    ]
    if used:
        peak = max((line.peak_bytes for line in report.memory_timelines), default=0)
        yield ", ".join(used) + (f"; {byte_text(peak)} needed at once" if peak else "")


def _copies(report: Report) -> Iterator[str]:
    """Say what is copied in a run and at load."""
    both = (("every run", report.transfers_per_run), ("at load", report.transfers_at_load))
    texts = [f"{when} {_total(totals)}" for when, totals in both if totals]
    if texts:
        each = "of each RDU: " if report.parallel else ""
        yield each + "; ".join(texts)


def _total(totals: tuple[TransferTotal, ...]) -> str:
    """Return ``2 transfers, 606 kB, 39 µs``."""
    transfers = count_text(sum(total.transfers for total in totals), "transfer")
    size = byte_text(sum(total.bytes for total in totals))
    return f"{transfers}, {size}, {second_text(sum(total.modelled_seconds for total in totals))}"


def _sizes(report: Report) -> Iterator[str]:
    """Say which sizes are open, and which inputs are none; sizes that were assumed are a note."""
    dynamic = dict.fromkeys(dimension.option for dimension in report.dynamic_dimensions)
    if dynamic:
        yield f"dynamic, which runs on the CPU; made static with {' '.join(dynamic)}"
    if report.fixed_inputs:
        fixed = [f"{fixed_input.name}={fixed_input.value}" for fixed_input in report.fixed_inputs]
        yield f"fixed as constants: {some(fixed, _NAMES)}"


def _rewritten(report: Report) -> Iterator[str]:
    """Say what was written with other operators since the target lacks it."""
    # Graphs for several sizes have a row each, of which the one that saves most stands for all.
    rules = {rule.rule: rule for rule in sorted(report.legalisation, key=lambda rule: rule.seconds)}
    for rule in rules.values():
        if rule.nodes:
            nodes = some([f"{n:,} {name}" for name, n in rule.operators.items()], _NAMES)
            yield f"{nodes} with other operators ({rule.rule}), which saves {second_text(rule.seconds)}"


def _evidence(report: Report) -> Iterator[str]:
    """Name the operators on the RDU whose support is not plainly documented, by how it is known."""
    kinds: dict[str, list[str]] = {}
    for row in report.undocumented_support:
        kinds.setdefault(row.evidence, []).append(row.operator)
    if kinds:
        texts = [f"{kind} {some(names, _NAMES)}" for kind, names in kinds.items()]
        yield f"not documented on the RDU: {'; '.join(texts)}"


def _assumed(report: Report) -> Iterator[str]:
    """Count the figures that nobody published or measured, and name the command that lists them."""
    host = sum(figure.name.startswith("host.") for figure in report.assumptions)
    texts = []
    if len(report.assumptions) > host:
        figures = count_text(len(report.assumptions) - host, "hardware figure")
        texts.append(f"{figures} (samba-port targets {printable(report.target)})")
    if host:
        texts.append(f"{count_text(host, 'figure')} of the CPU (samba-port calibrate)")
    if texts:
        yield f"{' and '.join(texts)}: neither published nor measured"
