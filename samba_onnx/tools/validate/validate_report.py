"""What ``samba-port validate`` says: modelled beside measured times, and the constants that these lead to."""

from __future__ import annotations

from samba_onnx.report.report_records import SCHEMA_VERSION, record


@record
class MeasuredTime:
    """A measured time."""

    place: str
    """The PEF, with the id of the section behind a colon where it is of one."""
    measured_seconds: float
    """As measured."""
    modelled_seconds: float
    """As planned."""
    ratio: float
    """Modelled over measured time: above 1 the model is too slow."""
    bound: str
    """The part that takes most of the modelled time."""
    left_out_ratio: float | None
    """The ratio by a fit that has not seen the time; null without a fit."""


@record
class PartError:
    """How far the model is off where one part takes most of a time."""

    bound: str
    """The part."""
    rows: int
    """Measured times."""
    ratio: float
    """Geometric mean of modelled over measured times."""


@record
class FittedConstant:
    """A constant of the target."""

    name: str
    """Where a target's file has it, below ``hardware``."""
    planned: float
    """The value that PEFs were planned with."""
    fitted: float
    """The value that measured times lead to."""
    rows: int
    """Measured times that it rests on; 0 for one whose planned value stands."""


@record
class ValidationReport:
    """Measured times beside modelled ones."""

    headline: str
    """The answer in one line."""
    results: str
    """Path of the file with measured times."""
    times: tuple[MeasuredTime, ...]
    """All measured times, in the order of the file."""
    parts: tuple[PartError, ...]
    """By the part that takes most of the modelled time."""
    error: float
    """Geometric mean of the error of planned times, as a factor minus 1."""
    left_out_error: float | None
    """The same of times by fits that have not seen them; null without a fit."""
    profile: str | None
    """Path of the profile that was written."""
    constants: tuple[FittedConstant, ...]
    """What was fitted; none without a fit."""
    schema_version: int = SCHEMA_VERSION
    """Version of this document's form."""
