"""Parts, residents and argins of a program for people."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import RenderableType

from samba_onnx.pef.manifest import Argin
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.report.layout import table, titled
from samba_onnx.report.state import PartReport, ResidentReport
from samba_onnx.report.units import byte_text, count_text, flop_text, second_text, shape_text

_SOURCES = {"pef": "in the PEF", "user": "loaded before it is read", "device": "computed"}


def parts_table(rows: Iterable[PartReport]) -> RenderableType | None:
    """Show what each type of sections does, where there is more than one.

    Args:
        rows: One row per type of section, from ``state.parts``.
    """
    cells = [
        (
            part.type,
            f"{part.sections:,}",
            f"{part.fallbacks:,}",
            f"{part.nodes:,}",
            flop_text(part.flops),
            second_text(part.modelled_seconds),
        )
        for part in rows
    ]
    columns = ("type", ">sections", ">fallbacks", ">nodes", ">work", ">time")
    # Of one type the row would repeat the totals of the report.
    return titled("By section type", table(columns, cells)) if len(cells) > 1 else None


def resident_totals(rows: Iterable[ResidentReport]) -> RenderableType | None:
    """Show residents by kind.

    Args:
        rows: One row per resident, from ``state.residents``.
    """
    # By source as well: a PEF may hold some weights and leave others to whoever runs it.
    groups: dict[tuple[SymbolKind, str], list[ResidentReport]] = {}
    for row in rows:
        groups.setdefault((row.kind, row.source), []).append(row)
    cells = [
        (
            kind.words,
            f"{len(members):,}",
            byte_text(sum(row.bytes or 0 for row in members)),
            _SOURCES[source],
        )
        for (kind, source), members in groups.items()
    ]
    columns = ("kind", ">tensors", ">bytes", "value")
    title = "Residents: what stays in device memory between runs"
    return titled(title, table(columns, cells)) if cells else None


def residents_table(rows: Iterable[ResidentReport], limit: int | None) -> RenderableType | None:
    """Show every resident.

    Args:
        rows: One row per resident, from ``state.residents``.
        limit: Longest table; None for all rows.
    """
    cells = [
        (
            row.name,
            row.kind.words,
            row.type,
            shape_text(row.shape),
            "-" if row.bytes is None else byte_text(row.bytes),
            _SOURCES[row.source],
        )
        for row in rows
    ]
    columns = ("resident", "kind", "type", "shape", ">bytes", "value")
    return titled("Residents", table(columns, cells, limit=limit)) if cells else None


def argins_table(rows: Iterable[Argin], limit: int | None) -> RenderableType | None:
    """Show every argin.

    Args:
        rows: One row per argin, from ``state.argins``.
        limit: Longest table; None for all rows.
    """
    cells = [
        (row.name, row.type, f"{row.default:.9g}", ", ".join(map(str, row.stages))) for row in rows
    ]
    title = f"{count_text(len(cells), 'argin')}: scalars that a run may change"
    columns = ("argin", "type", ">default", "read by")
    return titled(title, table(columns, cells, limit=limit)) if cells else None
