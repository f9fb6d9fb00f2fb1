"""What ``samba-port example`` says."""

from __future__ import annotations

from samba_onnx.report.report_records import SCHEMA_VERSION, record


@record
class ExampleReport:
    """A model that was written to try commands with."""

    headline: str
    """The answer in one line."""
    name: str
    """Which of the examples it is."""
    about: str
    """What it shows, in a sentence."""
    path: str
    """The file."""
    weights: int
    """How many numbers of random weights it has."""
    bytes: int
    """Size of the file."""
    commands: tuple[str, ...]
    """Command lines to go on with."""
    schema_version: int = SCHEMA_VERSION
    """Version of this document's form."""
