"""What ``samba-port targets`` says."""

from __future__ import annotations

from samba_onnx.report.records import SCHEMA_VERSION, AssumptionReport, record


@record
class TierReport:
    """One tier of device memory."""

    name: str
    """``sram``, ``hbm`` or ``ddr``."""
    capacity_bytes: int
    """Its size."""
    bytes_per_second: float
    """Its bandwidth."""


@record
class TargetReport:
    """The hardware figures of a target."""

    name: str
    """The name or path, as ``--target`` takes it."""
    description: str
    """One sentence."""
    operators: int
    """Number of supported operators."""
    tiers: tuple[TierReport, ...]
    """The fastest first."""
    peak_flops_per_second: dict[str, float]
    """By data type."""
    link_bytes_per_second: float
    """Bandwidth between host and RDU, in each direction."""
    link_latency_seconds: float
    """Latency of one transfer."""
    assumptions: tuple[AssumptionReport, ...]
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
