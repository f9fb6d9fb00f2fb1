"""Whether figures of two reports may be held against each other: what they are of, apart from the model."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from samba_onnx.report.report import Report
from samba_onnx.report.units import printable


def conditions(report: Report) -> Mapping[str, str]:
    """Return under which conditions the figures of a report hold, each as a text.

    Args:
        report: A report; one that an older version wrote has no ``precision`` and no ``version``.
    """
    cut = report.parallel
    stated = {
        "sizes": _sizes(report),
        "precision": report.precision,
        "target": report.target,
        "level": report.level,
        "RDUs": str(cut.rdus) if cut else "1",
        "version": report.producer,
    }
    return {name: printable(text) for name, text in stated.items()}


def different(
    before: Report, after: Report, *, but: Collection[str] = ()
) -> Mapping[str, tuple[str, str]]:
    """Return the conditions that differ, with their texts in both reports.

    Args:
        before: One report.
        after: The other one.
        but: Conditions that may differ.

    Returns:
        Texts by name, as in :func:`conditions`; a condition that one report does not state is equal to any.
    """
    left, right = conditions(before), conditions(after)
    pairs = {name: (left[name], right[name]) for name in left if name not in but}
    # Inputs may be called otherwise in a model that was exported again: sizes are what counts.
    if "sizes" in pairs and _shapes(before) == _shapes(after):
        del pairs["sizes"]
    return {name: pair for name, pair in pairs.items() if all(pair) and pair[0] != pair[1]}


def different_text(pairs: Mapping[str, tuple[str, str]]) -> str:
    """Return ``sizes x 1x8 → x 4x8, level o0 → o3``.

    Args:
        pairs: What :func:`different` returned.
    """
    return ", ".join(f"{name} {left} → {right}" for name, (left, right) in pairs.items())


def _shapes(report: Report) -> list[list[tuple[int | str | None, ...] | None]]:
    """Return the shapes of each graph's inputs, without their names."""
    return [sorted((value.shape for value in graph.inputs), key=str) for graph in report.graphs]


def _sizes(report: Report) -> str:
    """Return the sizes of the graphs' inputs."""
    return "; ".join(
        " ".join((value.name, "x".join(map(str, value.shape or ())))).rstrip()
        for graph in report.graphs
        for value in graph.inputs
    )
