"""From the JSON document of a report back to the report."""

from __future__ import annotations

from pydantic import TypeAdapter, ValidationError

from samba_onnx.errors import UsageError
from samba_onnx.report.report import Report


def read_report(text: bytes, name: str) -> Report:
    """Read what ``convert``, ``analyze`` or ``inspect`` wrote with ``--json``.

    Args:
        text: The JSON document.
        name: What messages call it.

    Returns:
        The report; every field is checked.

    Raises:
        UsageError: It is no such document, or one of another version of its form.
    """
    try:
        return TypeAdapter(Report).validate_json(text)
    except ValidationError as error:
        # One is enough: in a document of another version, one change makes many errors.
        first = error.errors(include_url=False)[0]
        place = ".".join(str(step) for step in first["loc"]) or "the whole"
        raise UsageError(
            f"{name}: is no report of this version: {place}: {first['msg']}; expected what samba-port "
            "convert, analyze or inspect writes with --json"
        ) from None
