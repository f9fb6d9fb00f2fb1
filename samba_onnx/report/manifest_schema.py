"""The JSON schema of a PEF's manifest, and the tables of its fields, from the records and their docstrings."""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import textwrap
import typing
from collections.abc import Iterator
from typing import Any

from samba_onnx.pef.manifest import Manifest
from samba_onnx.report.documents import json_schema

__all__ = ["field_tables", "manifest_records", "manifest_schema"]


def manifest_records() -> dict[str, type]:
    """Return every dataclass that a manifest holds, by name: the manifest, then each where it is first used."""
    records: dict[str, type] = {}
    # Breadth first: a page describes the manifest, then what its fields hold, then what is in that.
    waiting: list[type] = [Manifest]
    while waiting:
        kind = waiting.pop(0)
        if kind.__name__ not in records:
            records[kind.__name__] = kind
            hints = typing.get_type_hints(kind)
            used = [part for field in _stored(kind) for part in _parts(hints[field.name])]
            waiting += [part for part in used if dataclasses.is_dataclass(part)]
    return records


def manifest_schema() -> dict[str, Any]:
    """Return the JSON schema of ``manifest.json``, of the 2020-12 dialect.

    What it takes has the fields of the records with their types, and no others; what records say about each
    other is checked by the reader alone.
    """
    schema = json_schema(Manifest, reported=False)
    definitions = {"Manifest": schema, **schema["$defs"]}
    for name, kind in manifest_records().items():
        described = _field_docs(kind)
        properties = definitions[name]["properties"]
        stored = _stored(kind)
        definitions[name]["properties"] = {
            field.name: {**properties[field.name], "description": described[field.name]}
            for field in stored
        }
        # What older PEFs lack is not required: the reader knows what it stands for.
        definitions[name]["required"] = [
            field.name for field in stored if not field.metadata.get("may_be_missing")
        ]
        # As the reader has it, which refuses what it does not know.
        definitions[name]["additionalProperties"] = False
    return schema


def field_tables() -> str:
    """Return the part of ``docs/pef.md`` that describes each field of each record, in Markdown."""
    return "\n".join(_table(kind) for kind in manifest_records().values())


def _table(kind: type) -> str:
    documented = inspect.getdoc(kind) or ""
    described, hints = _field_docs(kind), typing.get_type_hints(kind)
    rows = [
        f"| `{field.name}` | {_type_text(hints[field.name])} | {_cell(described[field.name])} |"
        for field in _stored(kind)
    ]
    head = [f"### {kind.__name__}", "", _plain(documented).replace("``", "`"), ""]
    return "\n".join([*head, "| field | type | meaning |", "|---|---|---|", *rows, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _type_text(hint: Any) -> str:
    """Return a type in the words of JSON."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return f"list of {_type_text(arguments[0])}"
    if origin is dict:
        return f"object of {_type_text(arguments[1])}"
    if arguments:
        return " or ".join(_type_text(argument) for argument in arguments)
    if dataclasses.is_dataclass(hint):
        name = str(getattr(hint, "__name__", ""))
        return f"[{name}](#{name.lower()})"
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return ", ".join(f"`{member.value}`" for member in hint)
    words = {str: "text", int: "whole number", float: "fraction", bool: "flag", type(None): "null"}
    return words[hint]


def _stored(kind: type) -> list[dataclasses.Field[Any]]:
    """Return the fields that a file has."""
    fields = dataclasses.fields(kind)
    return [field for field in fields if field.metadata.get("stored", True)]


def _parts(hint: Any) -> Iterator[type]:
    """Yield the types that an annotation consists of."""
    if isinstance(hint, type) and not typing.get_args(hint):
        yield hint
    for argument in typing.get_args(hint):
        yield from _parts(argument)


def _field_docs(kind: type) -> dict[str, str]:
    """Return the docstrings of fields, inherited ones too; one line each, without reST's marks."""
    described: dict[str, str] = {}
    # Bases first, so that a record may describe an inherited field anew.
    for owner in reversed(kind.__mro__):
        if dataclasses.is_dataclass(owner):
            # From the source: docstrings of fields are gone when a program runs.
            (definition,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
            assert isinstance(definition, ast.ClassDef)
            for statement, following in zip(definition.body, definition.body[1:], strict=False):
                if isinstance(statement, ast.AnnAssign) and isinstance(following, ast.Expr):
                    assert isinstance(statement.target, ast.Name)
                    text = ast.literal_eval(following.value)
                    described[statement.target.id] = _plain(text).replace("``", "")
    return described


def _plain(text: str) -> str:
    return " ".join(text.split())
