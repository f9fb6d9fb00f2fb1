"""What ``samba-port calibrate`` says: the figures of this machine's CPU."""

from __future__ import annotations

from samba_onnx.report.report_records import SCHEMA_VERSION, record


@record
class FigureReport:
    """A figure that was measured."""

    name: str
    """Its key in the file."""
    value: float
    """The value, in ``unit``."""
    unit: str
    """Unit of ``value``."""
    default: float | None
    """The value of the default profile; null where it has none."""


@record
class CalibrationReport:
    """The profile of a host that was measured."""

    headline: str
    """The answer in one line."""
    output: str
    """Path of the file that was written."""
    measured_with: str
    """The engine, its version and its threads."""
    figures: tuple[FigureReport, ...]
    """All figures, those of data types first."""
    refused: tuple[str, ...]
    """Data types whose products the engine cannot compute: they count as float32."""
    schema_version: int = SCHEMA_VERSION
    """Version of this document's form."""
