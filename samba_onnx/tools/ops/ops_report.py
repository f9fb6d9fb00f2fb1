"""What ``samba-port ops`` says."""

from __future__ import annotations

from samba_onnx.report.report_records import SCHEMA_VERSION, record


@record
class OperandReport:
    """What a row says of one input or output, where it says anything."""

    name: str
    """ONNX's formal name."""
    types: dict[str, str]
    """Evidence by data type: ``full``, ``experimental``, ``observed`` or ``assumed``."""
    ranks: tuple[int, int] | None
    """Least and greatest number of dimensions; null where any will do."""
    static: bool
    """Whether it must be a compile-time constant."""
    absent: bool
    """Whether it must be left out."""


@record
class OperatorReport:
    """A supported operator and its limits."""

    operator: str
    """``Op``, or ``domain::Op`` outside the default domain."""
    since: int
    """First version of the operator that the row describes."""
    until: int | None
    """Last version; null up to the newest that the table knows."""
    evidence: str
    """The best of any data type: ``documented``, ``observed`` or ``assumed``."""
    types: dict[str, str]
    """Evidence by data type: ``full``, ``experimental``, ``observed`` or ``assumed``."""
    operations: str
    """How many operations an execution takes, as FLOPs count them, or why none, in words."""
    operands: tuple[OperandReport, ...]
    """Inputs, then outputs, with limits of their own."""
    attributes: dict[str, str]
    """Allowed values by attribute."""
    limits: tuple[str, ...]
    """Further limits."""
    source: str
    """Where the row comes from."""


@record
class UnsupportedReport:
    """An operator that the target is known not to run."""

    operator: str
    """``Op``, or ``domain::Op`` outside the default domain."""
    code: str
    """Short name of the reason, stable for machines."""
    reason: str
    """One sentence for people."""


@record
class OperatorTableReport:
    """The operator table of a target."""

    headline: str
    """How many operators there are."""
    target: str
    """Name of the target."""
    operators: tuple[OperatorReport, ...]
    """In the order of their names."""
    unsupported: tuple[UnsupportedReport, ...]
    """In the order of their names."""
    schema_version: int = SCHEMA_VERSION
    """Version of this document's form."""
