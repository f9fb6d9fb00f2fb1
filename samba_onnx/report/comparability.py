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
        "version": report.producer.text,
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
    if "sizes" in pairs and _same_sizes(before, after):
        del pairs["sizes"]
    return {name: pair for name, pair in pairs.items() if all(pair) and pair[0] != pair[1]}


def different_text(pairs: Mapping[str, tuple[str, str]]) -> str:
    """Return ``sizes x 1x8 → x 4x8, level o0 → o3``.

    Args:
        pairs: What :func:`different` returned.
    """
    return ", ".join(f"{name} {left} → {right}" for name, (left, right) in pairs.items())


def _same_sizes(before: Report, after: Report) -> bool:
    """Return whether inputs that both have are of the same sizes, in as many graphs."""
    if len(before.graphs) != len(after.graphs):
        return False
    for left, right in zip(before.graphs, after.graphs, strict=True):
        shapes, others = (
            {value.name: value.shape for value in graph.inputs} for graph in (left, right)
        )
        common = shapes.keys() & others.keys()
        # An input may have become a constant; or all may be called otherwise in a model that was exported again.
        if common:
            if any(shapes[name] != others[name] for name in common):
                return False
        elif sorted(map(str, shapes.values())) != sorted(map(str, others.values())):
            return False
    return True


def _sizes(report: Report) -> str:
    """Return the sizes of the graphs' inputs."""
    return "; ".join(
        " ".join((value.name, "x".join(map(str, value.shape or ())))).rstrip()
        for graph in report.graphs
        for value in graph.inputs
    )
