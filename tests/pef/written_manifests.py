"""Holds every manifest that a test writes against ``docs/manifest.schema.json``, at next to no cost.

Manifests that differ only in names and figures are of one form. Each form is checked once in a process,
and of a long list one item of each form.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import jsonschema

SCHEMA = Path(__file__).parents[2] / "docs" / "manifest.schema.json"

_known: set[Hashable] = set()


def check_written(text: bytes) -> None:
    """Check a manifest, unless one of the same form was good.

    Args:
        text: Member ``manifest.json``.

    Raises:
        jsonschema.ValidationError: The schema refuses it.
    """
    form, reduced = _reduced(json.loads(text), "")
    if form not in _known:
        _validator().validate(reduced)
        _known.add(form)


@functools.cache
def _schema() -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(SCHEMA.read_text())
    return schema


@functools.cache
def _validator() -> jsonschema.Draft202012Validator:
    jsonschema.Draft202012Validator.check_schema(_schema())
    return jsonschema.Draft202012Validator(_schema())


@functools.cache
def _special() -> tuple[frozenset[str], frozenset[str]]:
    """Fields that are objects with any keys, and fields of words from a fixed list."""
    definitions = {"Manifest": _schema(), **_schema()["$defs"]}
    maps, words = set(), set()
    for definition in definitions.values():
        for name, content in definition.get("properties", {}).items():
            if isinstance(content.get("additionalProperties"), dict):
                maps.add(name)
            if "enum" in definitions.get(content.get("$ref", "").rpartition("/")[2], {}):
                words.add(name)
    return frozenset(maps), frozenset(words)


def _reduced(value: Any, field: str) -> tuple[Hashable, Any]:
    """Return the form of a part of a manifest, and the part with one item of each form in its lists."""
    maps, words = _special()
    if isinstance(value, list) or (isinstance(value, dict) and field in maps):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        forms: dict[Hashable, tuple[Any, Any]] = {}
        for key, item in items:
            form, part = _reduced(item, "")
            forms.setdefault(form, (key, part))
        whole = dict(forms.values()) if isinstance(value, dict) else [p for _, p in forms.values()]
        return (type(value), frozenset(forms)), whole
    if isinstance(value, dict):
        parts = {name: _reduced(item, name) for name, item in value.items()}
        form = tuple((name, form) for name, (form, _) in parts.items())
        return form, {name: part for name, (_, part) in parts.items()}
    return (value if field in words else type(value)), value
