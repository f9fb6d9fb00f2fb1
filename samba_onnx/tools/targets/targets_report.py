"""What ``samba-port targets`` says."""

from __future__ import annotations

from samba_onnx.pef.target_summary import Assumption, Tier
from samba_onnx.report.report_records import SCHEMA_VERSION, record


@record
class TargetReport:
    """The hardware figures of a target."""

    name: str
    """The name or path, as ``--target`` takes it."""
    description: str
    """One sentence."""
    operators: int
    """Number of supported operators."""
    tiers: tuple[Tier, ...]
    """The fastest first."""
    peak_flops_per_second: dict[str, float]
    """By data type."""
    link_bytes_per_second: float
    """Bandwidth between host and RDU, in each direction."""
    link_latency_seconds: float
    """Latency of one transfer."""
    assumptions: tuple[Assumption, ...]
    """Figures that are not published."""


@record
class TargetListReport:
    """All targets."""

    headline: str
    """Their names."""
    targets: tuple[TargetReport, ...]
    """In the order of their names."""
    schema_version: int = SCHEMA_VERSION
    """Version of this document's form."""
