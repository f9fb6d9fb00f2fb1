"""What was decided of inputs, in a report: sizes of dynamic dimensions, graphs for each, and constants."""

from __future__ import annotations

from typing import Final

from rich.console import Group, RenderableType

from samba_onnx.pef.dimensions import BoundDimension, DynamicDimension
from samba_onnx.pef.manifest import Graph, Manifest
from samba_onnx.report.layout import some, table, titled
from samba_onnx.report.report_records import (
    FixedInputReport,
    GraphReport,
)
from samba_onnx.report.units import byte_text, count_text, printable

_SHOWN: Final = 4
"""Numbers of a constant, and sizes of a model in a line, that are shown."""


def fixed_inputs(manifest: Manifest) -> tuple[FixedInputReport, ...]:
    """Return the inputs that are constants, with the first of their numbers."""
    reports = []
    for fixed in manifest.fixed_inputs:
        numbers = fixed.array().ravel()
        # As numbers of Python, whose truth values `_number_text` knows.
        shown = ", ".join(_number_text(number) for number in numbers[:_SHOWN].tolist())
        text = f"{shown}, ..." if numbers.size > _SHOWN else shown
        # With brackets also for one number in an axis, which is another input than a scalar.
        value = f"[{text}]" if fixed.shape else text
        reports.append(FixedInputReport(fixed.name, fixed.type, fixed.shape, value))
    return tuple(reports)


def _number_text(number: object) -> str:
    """Return a number as ``--constant`` takes it."""
    return str(number).lower() if isinstance(number, bool) else str(number)


def fixed_table(fixed: tuple[FixedInputReport, ...], rows: int | None) -> RenderableType | None:
    """Name the inputs that are constants, with their values."""
    if not fixed:
        return None
    cells = [(one.name, one.type, str(list(one.shape)), one.value) for one in fixed]
    return titled(
        "Inputs fixed as constants", table(("input", "type", "shape", "value"), cells, limit=rows)
    )


def run_graphs(manifest: Manifest) -> tuple[Graph, ...]:
    """Return the graphs that the figures of a run are of.

    Args:
        manifest: The manifest of any PEF.

    Returns:
        The graph that moves the most bytes, where there is one for each of several sizes; else all.
    """
    if not any(graph.model_names for graph in manifest.graphs):
        return manifest.graphs
    # No sum: a run executes one of them, which its inputs choose.
    return (max(manifest.graphs, key=lambda g: sum(move.bytes for move in g.run_transfers)),)


def sizes_text(manifest: Manifest) -> str:
    """Return the sizes that a model was compiled for, in brackets behind a space; empty where it has none.

    Args:
        manifest: The manifest of any PEF.

    Returns:
        As `` [batch 1 or 8; assumed: tokens 128]``, with dimensions that are dynamic in the model; without
        such the shapes of its inputs, as `` [1x3x224x224]``.
    """
    stated, assumed = (
        _bound_text(
            [dimension for dimension in manifest.bound_dimensions if dimension.assumed is guess]
        )
        for guess in (False, True)
    )
    dynamic = [
        f"{_name(dimension.name, dimension.inputs)} dynamic"
        for dimension in manifest.dynamic_dimensions
    ]
    parts = [", ".join(_few([*stated, *dynamic]))] if stated or dynamic else []
    if assumed:
        parts.append(f"assumed: {', '.join(_few(assumed))}")
    if not parts:
        symbols = {symbol.name: symbol for symbol in manifest.symbols}
        shapes = [symbols[name].shape for graph in run_graphs(manifest) for name in graph.inputs]
        # A scalar has no size, and inputs of one shape say it once.
        texts = dict.fromkeys("x".join(map(str, shape)) for shape in shapes if shape)
        parts = [", ".join(_few(list(texts)))] if texts else []
    return f" [{printable('; '.join(parts))}]" if parts else ""


def _bound_text(dimensions: list[BoundDimension]) -> list[str]:
    """Return ``batch 1 or 8`` of each dimension, with its sizes in all graphs."""
    sizes: dict[str, list[str]] = {}
    for dimension in dimensions:
        sizes.setdefault(_name(dimension.name, dimension.inputs), []).append(str(dimension.size))
    return [f"{name} {' or '.join(dict.fromkeys(each))}" for name, each in sizes.items()]


def _name(name: str, inputs: tuple[str, ...]) -> str:
    """Return what a dimension is called: by its place where it has no name."""
    return name or inputs[0]


def _few(texts: list[str]) -> list[str]:
    """Return the first of many, for a line."""
    return texts if len(texts) <= _SHOWN else [*texts[:_SHOWN], "..."]


def dynamic_table(
    dynamic: tuple[DynamicDimension, ...],
    bound: tuple[BoundDimension, ...],
    rows: int | None,
) -> RenderableType | None:
    """Name dynamic dimensions with their sizes, or the option that fixes each."""
    parts: list[RenderableType] = []
    if bound:
        # A row for each dimension, with its sizes in all graphs; a size that was assumed is not one that
        # was stated.
        sizes: dict[tuple[str, tuple[str, ...], bool], list[str]] = {}
        for one in bound:
            sizes.setdefault((one.name, one.inputs, one.assumed), []).append(str(one.size))
        cells = [
            (
                name,
                some(inputs, rows),
                ", ".join(dict.fromkeys(each)),
                "assumed" if assumed else "stated",
            )
            for (name, inputs, assumed), each in sizes.items()
        ]
        columns = ("dimension", "where", ">size", "by")
        title = "Sizes of dynamic dimensions"
        parts.append(titled(title, table(columns, cells, limit=rows)))
    if dynamic:
        left = [(one.name, some(one.inputs, rows), one.option) for one in dynamic]
        headings = ("dimension", "where", "made static by")
        parts.append(titled("Dynamic dimensions", table(headings, left, limit=rows)))
    return Group(*parts) if parts else None


def graphs_table(graphs: tuple[GraphReport, ...], rows: int | None) -> RenderableType | None:
    """Show what a run of each graph moves, where there is one for each of several sizes."""
    if not any(graph.model_names for graph in graphs):
        return None
    cells = [
        (
            graph.name,
            str(sum(call.home == "rdu" for call in graph.schedule)),
            str(sum(call.home == "cpu" for call in graph.schedule)),
            str(len(graph.run_transfers)),
            byte_text(sum(move.bytes for move in graph.run_transfers)),
        )
        for graph in graphs
    ]
    columns = ("graph", ">sections", ">CPU groups", ">transfers", ">bytes per run")
    title = f"{count_text(len(graphs), 'graph')}, of which the inputs choose one"
    return titled(title, table(columns, cells, limit=rows))
