"""Coverage and transfer reports: built from a manifest, shown on a terminal or as JSON."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from samba_onnx.report.report import Report
    from samba_onnx.report.report_records import SCHEMA_VERSION

__all__ = ["SCHEMA_VERSION", "Report"]


def __getattr__(name: str) -> object:
    # On first use: records that are written as JSON take a second to import, and limits of a report
    # are checked before anything takes time.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "report_records" if name == "SCHEMA_VERSION" else "report"
    return getattr(importlib.import_module(f"samba_onnx.report.{module}"), name)
