"""What a PEF holds, in full: interface, schedule, transfer plan, regions and members."""

from __future__ import annotations

from rich.console import RenderableType

from samba_onnx.report.layout import ARROWS, CAUSES, some, table, titled
from samba_onnx.report.report import Report
from samba_onnx.report.state_text import argins_table, residents_table
from samba_onnx.report.terminal import SUMMARY, Block, stack
from samba_onnx.report.units import byte_text, second_text, shape_text


def details(report: Report, rows: int | None = 12) -> RenderableType:
    """Return what ``inspect`` shows: the summary, then interface, schedule and plan."""
    return stack(report, rows, (*SUMMARY, *DETAILS))


def _interface(report: Report, rows: int | None) -> RenderableType | None:
    """Show inputs and outputs of every graph, other than argins."""
    # Argins have a table of their own, with their defaults.
    scalars = {argin.name for argin in report.argins}
    cells = [
        (
            graph.name,
            side,
            value.name,
            value.type,
            shape_text(value.shape),
            "-" if value.bytes is None else byte_text(value.bytes),
        )
        for graph in report.graphs
        for side, values in (("input", graph.inputs), ("output", graph.outputs))
        for value in values
        if value.name not in scalars
    ]
    columns = ("graph", "side", "name", "type", "shape", ">bytes")
    return titled("Interface", table(columns, cells, limit=rows)) if cells else None


def _schedule(report: Report, rows: int | None) -> RenderableType | None:
    """Show the calls of every graph."""
    cells = [
        (graph.name, str(call.id), call.home.upper(), call.name, call.type)
        for graph in report.graphs
        for call in graph.schedule
    ]
    columns = ("graph", ">call", "home", "section or fallback", "type")
    return titled("Schedule", table(columns, cells, limit=rows)) if cells else None


def _regions(report: Report, rows: int | None) -> RenderableType | None:
    """Show the regions, the largest first."""
    cells = [
        (
            region.name,
            region.tier,
            "mutable" if region.mutable else "read-only",
            byte_text(region.bytes),
            some(region.symbols, 2 if rows is not None else None),
        )
        for region in sorted(report.regions, key=lambda region: -region.bytes)
    ]
    columns = ("region", "tier", "access", ">bytes", "symbols")
    return titled("Regions", table(columns, cells, limit=rows)) if cells else None


def _plan(report: Report, rows: int | None) -> RenderableType | None:
    """Show the transfers of one run in their order."""
    cells = [
        (
            "-" if transfer.call is None else str(transfer.call),
            ARROWS[transfer.direction],
            CAUSES.get(transfer.cause, transfer.cause),
            transfer.symbol,
            byte_text(transfer.bytes),
            second_text(transfer.seconds),
        )
        for graph in report.graphs
        for transfer in graph.run_transfers
    ]
    columns = (">call", "way", "cause", "symbol", ">bytes", ">time")
    return titled("Transfer plan of one run", table(columns, cells, limit=rows)) if cells else None


def _members(report: Report, rows: int | None) -> RenderableType | None:
    """Show the files inside the PEF."""
    cells = [
        # Enough to tell two files apart by eye; the JSON document has all digits.
        (member.name, byte_text(member.bytes), member.sha256[:16] + "…")
        for member in report.members
    ]
    columns = ("member", ">bytes", "SHA-256")
    return titled("Members", table(columns, cells, limit=rows)) if cells else None


def _argins(report: Report, rows: int | None) -> RenderableType | None:
    """Show the scalars that a run may change."""
    return argins_table(report.argins, rows)


def _residents(report: Report, rows: int | None) -> RenderableType | None:
    """Show what stays in device memory between runs."""
    return residents_table(report.residents, rows)


# What a caller needs comes first, and what lies in the file last.
DETAILS: tuple[Block, ...] = (
    _interface,
    _argins,
    _schedule,
    _plan,
    _residents,
    _regions,
    _members,
)
