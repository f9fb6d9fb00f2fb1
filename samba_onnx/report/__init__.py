"""Coverage and transfer reports: built from a manifest, shown on a terminal or as JSON."""

from samba_onnx.report.records import SCHEMA_VERSION
from samba_onnx.report.report import Report

__all__ = ["SCHEMA_VERSION", "Report"]
