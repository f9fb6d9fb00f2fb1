"""What ``samba-port train-export`` says: which weights of an ONNX model are new."""

from __future__ import annotations

from samba_onnx.report.report_records import SCHEMA_VERSION, record


@record
class TrainedModelReport:
    """An ONNX model that was written with the weights of a checkpoint."""

    headline: str
    """The answer in one line."""
    model: str
    """File name of the original, without folder."""
    output: str
    """Path of the model that was written."""
    written: tuple[str, ...]
    """Initializers whose content is the checkpoint's."""
    kept: tuple[str, ...]
    """Other floating-point initializers, whose content is the original's."""
    bytes: int
    """Size of the file that was written, without data beside it."""
    schema_version: int = SCHEMA_VERSION
    """Version of this document's form."""
