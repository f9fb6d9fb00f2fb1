"""From the JSON document of a report back to the report."""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter, ValidationError

from samba_onnx.errors import UsageError
from samba_onnx.report.report import Report
from samba_onnx.report.report_records import REPORT_VERSION


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
    version = _version(text)
    if isinstance(version, int) and version > REPORT_VERSION:
        raise UsageError(
            f"{name}: is a report of version {version} of its form, and this samba-onnx reads up to version "
            f"{REPORT_VERSION}: install a newer one"
        )
    try:
        return TypeAdapter(Report).validate_json(_upgraded(text) if version == 1 else text)
    except ValidationError as error:
        # One is enough: in a document of another version, one change makes many errors.
        first = error.errors(include_url=False)[0]
        place = ".".join(str(step) for step in first["loc"]) or "the whole"
        raise UsageError(
            f"{name}: is no report of this version: {place}: {first['msg']}; expected what samba-port "
            "convert, analyze or inspect writes with --json"
        ) from None


def _version(text: bytes) -> object:
    """Return what a document says of its form; None where it is none."""
    try:
        document = json.loads(text)
    # pydantic says what is wrong with it, and where.
    except (ValueError, RecursionError):
        return None
    return document.get("schema_version") if isinstance(document, dict) else None


def _upgraded(text: bytes) -> bytes:
    """Return a document of version 1 in the form of version 2, which says nothing of its program."""
    document: dict[str, Any] = json.loads(text)
    name, _, version = str(document.get("producer", "")).rpartition(" ")
    document |= {"producer": {"name": name, "version": version}, "schema_version": 2}
    return json.dumps(document).encode()
