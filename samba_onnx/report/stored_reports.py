"""Reports that a command was given in place of a model: those of PEFs and of JSON documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samba_onnx.compiling.model_sources import is_torch_model
from samba_onnx.errors import UsageError

if TYPE_CHECKING:
    from samba_onnx.report import Report


def stored_report(side: str) -> Report | None:
    """Return the report that a file holds, as a PEF or as JSON; None for a model.

    Args:
        side: Path of the file, or a factory.

    Raises:
        UsageError: It cannot be opened, or is a JSON document of another kind.
        PefError: It is a damaged PEF.
    """
    if is_torch_model(side):
        return None
    from samba_onnx.pef import load_pef
    from samba_onnx.report import Report
    from samba_onnx.report.reading import read_report
    from samba_onnx.safety.files import open_regular, printable, read_document

    with open_regular(side, what="file", error=UsageError) as file:
        # By how it begins, as reports and PEFs may have any name.
        head = file.read(2)
    if head[:1] == b"{":
        return read_report(read_document(side, what="file", error=UsageError), printable(side))
    if head != b"PK":
        return None
    with load_pef(side) as pef:
        return Report.from_manifest(pef.manifest)
