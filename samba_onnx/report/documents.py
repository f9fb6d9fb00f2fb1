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
    # Without NaN, which is no JSON: should one get past `_plain`, an error is better than a file that
    # parsers refuse.
    return json.dumps(_plain(document), indent=2, allow_nan=False) + "\n"


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
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_tidy(schema)}


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
