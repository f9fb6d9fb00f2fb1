"""Records as JSON documents, and the JSON schema of such a document."""

from __future__ import annotations

import dataclasses
import functools
import json
from typing import Any, Literal


def to_json(document: Any) -> str:
    """Return a frozen dataclass as JSON text with a final newline.

    Args:
        document: A dataclass of strings, numbers, enumerations, tuples, dictionaries and
            dataclasses.

    Returns:
        JSON in the order of the fields. Characters outside ASCII are escaped, so that names with
        broken text survive; a number that JSON lacks (NaN, infinity) becomes null.
    """
    return _text(document, "\n") + "\n"


def _text(value: Any, newline: str) -> str:
    """Return ``value`` as JSON with two blanks for each level; what is a row in one line.

    Args:
        value: Part of a document.
        newline: What begins a line of its level.
    """
    inner = newline + "  "
    one_line = getattr(type(value), "__one_line__", False)
    if dataclasses.is_dataclass(value) and not one_line:
        names = _names(value.__class__)
        value = {name: getattr(value, attribute) for name, attribute in names}
    if one_line or not isinstance(value, list | tuple | dict):
        # Without NaN, which is no JSON: should one get past `_plain`, an error is better than a file that
        # parsers refuse.
        return json.dumps(_plain(value), allow_nan=False)
    if not value:
        return "{}" if isinstance(value, dict) else "[]"
    if isinstance(value, dict):
        items = [f"{json.dumps(str(key))}: {_text(item, inner)}" for key, item in value.items()]
        return f"{{{inner}{f',{inner}'.join(items)}{newline}}}"
    return f"[{inner}{f',{inner}'.join(_text(item, inner) for item in value)}{newline}]"


def _plain(value: Any) -> Any:
    """Return ``value`` in the types of JSON."""
    # Not `dataclasses.asdict`: it copies all that a report holds, and leaves what JSON lacks.
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(getattr(value, attribute)) for name, attribute in _names(type(value))}
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    # What is not finite is not known: readers of JSON have null for that.
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


@functools.cache
def _names(kind: type) -> tuple[tuple[str, str], ...]:
    """Return the fields of a document, each with the attribute that has its value."""
    return tuple(
        (field.metadata.get("alias", field.name), field.name)
        for field in dataclasses.fields(kind)
        if not field.metadata.get("exclude")
    )


def json_schema(document_type: type, *, reported: bool = True) -> dict[str, Any]:
    """Return the JSON schema of a record type.

    Args:
        document_type: A class made by ``records.record``, whose fields may be records of a manifest.
        reported: Whether fields have the names of reports; otherwise all have those of their records.

    Returns:
        A schema of the 2020-12 dialect whose descriptions are the docstrings of the fields.
    """
    # Here, not above: only schemas need pydantic, and every command would wait for its import.
    from pydantic import TypeAdapter

    mode: Literal["serialization", "validation"] = "serialization" if reported else "validation"
    schema = TypeAdapter(document_type).json_schema(mode=mode, by_alias=reported)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:samba-onnx:schema:{document_type.__name__}:{_version(document_type)}",
        **_tidy(schema),
    }


def _version(document_type: type) -> int:
    """Return the version of a document's form; 1 for one that does not state it."""
    stated = ("schema_version", "format_version")
    versions = (getattr(document_type, name, None) for name in stated)
    return next((version for version in versions if isinstance(version, int)), 1)


def _tidy(schema: Any) -> Any:
    """Drop generated titles and the reST marks of docstrings; every field is always present."""
    if isinstance(schema, list):
        return [_tidy(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    tidy: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("properties", "$defs"):  # their keys are names, not words of the schema
            tidy[key] = {name: _tidy(item) for name, item in value.items()}
        elif key == "description":
            tidy[key] = " ".join(value.replace("``", "").split())
        # A default would say that a field may be missing: a document has all of them.
        elif key not in ("title", "default"):
            tidy[key] = _tidy(value)
    if "properties" in tidy:
        tidy["required"] = list(tidy["properties"])
    return tidy
