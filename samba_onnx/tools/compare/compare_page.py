"""The page of a comparison: values by their errors, and the graph in the colours of these."""

from __future__ import annotations

from samba_onnx.pef.manifest import Manifest
from samba_onnx.report.page.answer import Block, answer_page
from samba_onnx.report.report import Report
from samba_onnx.report.units import number_text
from samba_onnx.tools.compare.compare_report import ValueComparisonReport
from samba_onnx.tools.compare.compare_text import VALUE_COLUMNS, value_cells, worst_first

_UNBOUNDED = 1e9
"""What stands for the error of a value where none is allowed."""


def values_page(comparison: ValueComparisonReport, manifest: Manifest) -> str:
    """Return the page.

    Args:
        comparison: The values.
        manifest: The manifest of the PEF, which is open.

    Raises:
        MissingLibraryError: The extra ``html`` is not installed.
    """
    values = comparison.values
    errors = {
        # Whether it holds counts, not the share: torch's own result may be as far off.
        value.name: min(_share(value.of_allowed), 1.0)
        if value.passed
        else max(_share(value.of_allowed), 1.001)
        for value in values
    }
    worst = max((_share(value.of_allowed) for value in values), default=0.0)
    failed = sum(not value.passed for value in values)
    tiles = [
        ("beyond the tolerance", f"{failed:,}", f"of {len(values):,} values"),
        (
            "largest error",
            number_text(worst) if worst < _UNBOUNDED else "no bound",
            "of what is allowed",
        ),
        ("compared", f"{comparison.compared:,}", f"of {comparison.total:,} values of the original"),
        ("identical", f"{sum(value.identical for value in values):,}", "in every bit"),
    ]
    blocks = [
        Block(
            "Values, the worst first",
            VALUE_COLUMNS,
            [value_cells(one) for one in worst_first(values)],
            note=comparison.advice,
            sortable=True,
        )
    ]
    return answer_page(
        "compare",
        manifest.source.name,
        comparison.headline,
        tiles,
        blocks,
        report=Report.from_manifest(manifest),
        errors=errors,
    )


def _share(of_allowed: float | None) -> float:
    return _UNBOUNDED if of_allowed is None else of_allowed
