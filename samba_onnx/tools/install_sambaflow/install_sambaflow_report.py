"""What ``samba-port install-sambaflow`` says."""

from __future__ import annotations

from samba_onnx.report.report_records import SCHEMA_VERSION, record


@record
class EnvironmentReport:
    """What ``import sambaflow`` finds in a Python environment."""

    headline: str
    """The answer in one line."""
    path: str
    """The file in site-packages by which plain Python finds samba-onnx."""
    changed: bool
    """Whether the file was written or removed."""
    sambaflow: str
    """``samba-onnx``, ``SambaFlow`` where that is really installed, or ``none``."""
    real: str | None
    """Where a SambaFlow lies that is really installed."""
    schema_version: int = SCHEMA_VERSION
    """Version of this document's form."""
