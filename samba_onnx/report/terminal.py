"""A report for people: blocks of text and tables that fit 80 columns and never cut a reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from samba_onnx.report.brief import brief_facts
from samba_onnx.report.change_reports import change_first
from samba_onnx.report.fallback_text import fallback_paragraphs
from samba_onnx.report.fitting import fit_text
from samba_onnx.report.fusion import fusion_table
from samba_onnx.report.layout import ARROWS, CAUSES, some, table, titled
from samba_onnx.report.legalisation import brought_table, left_table
from samba_onnx.report.memory_timeline import timeline_text
from samba_onnx.report.parallel import parallel_text
from samba_onnx.report.report import Report
from samba_onnx.report.report_records import TransferTotal
from samba_onnx.report.sizes import dynamic_table, fixed_table, graphs_table
from samba_onnx.report.state_text import parts_table, resident_totals
from samba_onnx.report.times import modelled_time_lines
from samba_onnx.report.units import (
    byte_text,
    count_text,
    figure_text,
    flop_text,
    percent_text,
    printable,
    second_text,
)

Block = Callable[[Report, int | None], "RenderableType | None"]
"""Renders one part of a report with at most so many rows; None where it has nothing to say."""


def summary(report: Report, rows: int | None = 12) -> RenderableType:
    """Return what ``convert`` and ``analyze`` show.

    Args:
        report: The report.
        rows: Longest table; None for all rows.

    Returns:
        Something that a rich console prints.
    """
    return stack(report, rows, SUMMARY if rows is None else BRIEF)


def stack(report: Report, rows: int | None, blocks: Sequence[Block]) -> RenderableType:
    """Put the headline and every block that has something to say below each other."""
    parts: list[RenderableType] = [Text(report.headline, style="bold")]
    for block in blocks:
        content = block(report, rows)
        # No empty blocks: most models have nothing to say in half of them.
        if content is not None:
            parts += [Text(""), content]
    return Group(*parts)


def _fallbacks(report: Report, rows: int | None) -> RenderableType | None:
    """Say why nodes fall back."""
    return fallback_paragraphs(report.fallbacks, rows)


def _changes(report: Report, rows: int | None) -> RenderableType | None:
    """Say what to change first."""
    return change_first(report.changes, report.bounds, rows)


def _legalised(report: Report, rows: int | None) -> RenderableType | None:
    """Show what was written with other operators, and what that brought."""
    return brought_table(report.legalisation, rows)


def _not_legalised(report: Report, rows: int | None) -> RenderableType | None:
    """Show what rules left, and why."""
    return left_table(report.legalisation, rows)


def _boundaries(report: Report, rows: int | None) -> RenderableType | None:
    """Show where the schedule passes between RDU and CPU."""
    if not report.boundaries:
        return None
    names = {call.stage: call.name for graph in report.graphs for call in graph.schedule}
    cells = [
        (
            f"{names.get(line.before, line.before)} → {names.get(line.after, line.after)}",
            ARROWS[line.direction],
            some(line.symbols, 3 if rows is not None else None),
            byte_text(line.bytes),
            second_text(line.modelled_seconds),
        )
        for line in report.boundaries
    ]
    columns = ("from → to", "way", "values", ">bytes", ">time")
    return titled("Boundaries between RDU and CPU, per run", table(columns, cells, limit=rows))


def _coverage(report: Report, rows: int | None) -> RenderableType | None:
    """Show nodes and operations by operator."""
    coverage = report.coverage
    if not coverage.nodes:
        return None
    flops = coverage.rdu_flops + coverage.cpu_flops
    cells = [
        (
            line.operator,
            f"{line.rdu_nodes:,}",
            f"{line.cpu_nodes:,}",
            flop_text(line.rdu_flops + line.cpu_flops),
        )
        for line in coverage.operators
    ]
    title = (
        f"Coverage: {percent_text(coverage.rdu_nodes, coverage.nodes)} of "
        f"{count_text(coverage.nodes, 'node')}"
    )
    # Of a model that only moves elements there is no share of its operations.
    if flops:
        title += f", {percent_text(coverage.rdu_flops, flops)} of {flop_text(flops)}, on the RDU"
    else:
        title += " on the RDU"
    return titled(title, table(("operator", ">RDU", ">CPU", ">work"), cells, limit=rows))


def _sections(report: Report, rows: int | None) -> RenderableType | None:
    """Show the sections: all in their order, or those that take most time."""
    if not report.sections:
        return None
    shown = report.sections
    cut = rows is not None and len(shown) > rows
    if cut:
        shown = tuple(sorted(shown, key=lambda section: -section.modelled_seconds))
    # A column for the size only where there are several.
    sized = any(graph.model_names for graph in report.graphs)
    cells = [
        (
            str(section.id),
            *((section.graph,) if sized else ()),
            section.name,
            section.type,
            f"{section.nodes:,}",
            flop_text(section.flops),
            byte_text(section.off_chip_bytes),
            byte_text(section.sram_bytes),
            second_text(section.modelled_seconds),
            section.dominant,
        )
        for section in shown
    ]
    columns = (
        ">id",
        *(("size",) if sized else ()),
        "section",
        "type",
        ">nodes",
        ">work",
        ">off-chip",
        ">on-chip",
        ">time",
        "most of it",
    )
    title = f"{count_text(len(report.sections), 'section')} on the RDU at {report.level}"
    if cut:
        title += ", those that take most time"
    return titled(title, table(columns, cells, limit=rows))


def _repeated(report: Report, rows: int | None) -> RenderableType | None:
    """Show the bodies that sections execute step by step."""
    cells = [
        (
            str(section.id),
            body.node,
            f"{body.steps:,}",
            f"{sum(body.operators.values()):,}",
            some([f"{count} {name}" for name, count in body.operators.items()], 4),
        )
        for section in report.sections
        for body in section.repeated
    ]
    columns = (">id", "body of", ">steps", ">nodes a step", "operators")
    title = "Bodies that sections repeat, each step behind the one before"
    return titled(title, table(columns, cells, limit=rows)) if cells else None


def _fused(report: Report, rows: int | None) -> RenderableType | None:
    """Show what rules of fusion matched, and which never did."""
    return fusion_table(report.fusion, rows)


def _parts(report: Report, rows: int | None) -> RenderableType | None:
    """Show the types of sections, where there are several."""
    return parts_table(report.parts)


def _residents(report: Report, rows: int | None) -> RenderableType | None:
    """Show what stays in device memory, by kind."""
    return resident_totals(report.residents)


def _memory(report: Report, rows: int | None) -> RenderableType | None:
    """Show how full the tiers are."""
    cells = [
        (
            tier.tier,
            byte_text(tier.used_bytes),
            byte_text(tier.capacity_bytes),
            percent_text(tier.used_bytes, tier.capacity_bytes),
            f"{tier.regions:,}",
        )
        for tier in report.memory
    ]
    columns = ("tier", ">used", ">capacity", ">share", ">regions")
    return titled("Device memory", table(columns, cells)) if cells else None


def _timeline(report: Report, rows: int | None) -> RenderableType | None:
    """Show what runs need in device memory: of several graphs, of that which needs the most."""
    # Graphs run one at a time; the JSON document has all of them.
    most = max(report.memory_timelines, key=lambda one: one.peak_bytes, default=None)
    names = {call.stage: call.name for graph in report.graphs for call in graph.schedule}
    return timeline_text(most, names, rows)


def _fits(report: Report, rows: int | None) -> RenderableType | None:
    """Show the largest sizes that fit, where somebody asked for them."""
    return fit_text(report.fits)


def _parallel(report: Report, rows: int | None) -> RenderableType | None:
    """Show what each of several RDUs needs."""
    return parallel_text(report.parallel)


def _transfers(report: Report, rows: int | None) -> RenderableType | None:
    """Show transfers by cause, per run and at load."""
    cells = [
        *total_cells("every run", report.transfers_per_run),
        *total_cells("at load", report.transfers_at_load),
    ]
    if not cells:
        return None
    columns = ("when", "cause", "way", ">transfers", ">bytes", ">time")
    return titled(_TRANSFERS[report.parallel is not None], table(columns, cells))


def total_cells(when: str, totals: Iterable[TransferTotal]) -> list[tuple[str, ...]]:
    """Return the rows of one occasion."""
    return [
        (
            when,
            CAUSES.get(total.cause, total.cause),
            ARROWS[total.direction],
            f"{total.transfers:,}",
            byte_text(total.bytes),
            second_text(total.modelled_seconds),
        )
        for total in totals
    ]


def _time(report: Report, rows: int | None) -> RenderableType | None:
    """State the modelled time, and what it leaves out."""
    lines = modelled_time_lines(report.modelled_time)
    return titled("Modelled time (from published figures, not measured)", *lines)


def _dynamic(report: Report, rows: int | None) -> RenderableType | None:
    """Name dynamic dimensions with their sizes, or the option that fixes each."""
    return dynamic_table(report.dynamic_dimensions, report.bound_dimensions, rows)


def _fixed(report: Report, rows: int | None) -> RenderableType | None:
    """Name the inputs that are constants."""
    return fixed_table(report.fixed_inputs, rows)


def _graphs(report: Report, rows: int | None) -> RenderableType | None:
    """Show the graphs for several sizes."""
    return graphs_table(report.graphs, rows)


def _support(report: Report, rows: int | None) -> RenderableType | None:
    """Name operators on the RDU whose support is not plainly documented."""
    if not report.undocumented_support:
        return None
    cells = [(row.operator, row.evidence, f"{row.nodes:,}") for row in report.undocumented_support]
    return titled(
        "On the RDU without documented support",
        table(("operator", "evidence", ">nodes"), cells, limit=rows),
    )


def _assumptions(report: Report, rows: int | None) -> RenderableType | None:
    """Name hardware figures that are not published."""
    if not report.assumptions:
        return None
    cells = [
        (figure.name, figure_text(figure.value, figure.unit), figure.note)
        for figure in report.assumptions
    ]
    return titled(
        "Assumed hardware figures (not published, not measured)",
        # Without a limit: modelled times are worth as much as all that was assumed for them.
        table(("figure", "value", "note"), cells),
    )


def _notes(report: Report, rows: int | None) -> RenderableType | None:
    """Show the notes and, in full, the passes."""
    lines = [Text(f"- {printable(note)}") for note in report.notes]
    return titled("Notes", *lines) if lines else None


def _passes(report: Report, rows: int | None) -> RenderableType | None:
    """Show what every pass did, only where everything is asked for."""
    # What passes did is of use to who looks for a reason, not to who reads what came of it.
    if rows is not None or not report.passes:
        return None
    cells = [
        (
            done.name,
            "changed" if done.modified else "-",
            f"{done.nodes_before:,} → {done.nodes_after:,}",
        )
        for done in report.passes
    ]
    return titled("Passes", table(("pass", "model", "nodes"), cells))


_TRANSFERS = {False: "Transfers between host and RDU", True: "Transfers of each RDU"}
"""Title of the transfers, by whether there are several RDUs."""

_FEW: Final = 10
"""Rows of the brief report's table of sections."""


def _few(block: Block, rows: int) -> Block:
    """Return a block with fewer rows."""
    return lambda report, _: block(report, rows)


def _further(report: Report, rows: int | None) -> RenderableType | None:
    """Name what is shown with ``-v``."""
    more = "-v: operators, memory, transfers, what rules left, assumed figures and passes"
    return Text(more, style="dim") if report.coverage.nodes else None


# About 15 lines for a model that runs whole, and 30 for one that does not: what to act upon, what it takes, and
# the sections that take most.
BRIEF: tuple[Block, ...] = (
    _notes,
    _changes,
    _few(_fallbacks, 3),
    _few(_boundaries, 4),
    brief_facts,
    _fits,
    _parallel,
    _graphs,
    _parts,
    _fused,
    _few(_sections, _FEW),
    _further,
)

# What somebody can act upon first, then what runs where, what it takes, and under which circumstances.
SUMMARY: tuple[Block, ...] = (
    _notes,
    _changes,
    _fallbacks,
    _legalised,
    _not_legalised,
    _boundaries,
    _coverage,
    _sections,
    _repeated,
    _fused,
    _parts,
    _parallel,
    _memory,
    _timeline,
    _fits,
    _residents,
    _transfers,
    _time,
    _dynamic,
    _fixed,
    _graphs,
    _support,
    _assumptions,
    _passes,
)
