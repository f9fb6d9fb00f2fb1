"""JSON trees to frozen dataclasses and back, by their annotations, without any coercion.

Nothing is guessed: a flag is no number, a number no fraction, every field is there, and no other; only a
field that is ``MAY_BE_MISSING`` is there exactly where it is not empty.
pydantic would take a tenth of a second to prepare what is prepared here in a few milliseconds.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final

__all__ = [
    "MAY_BE_MISSING", "NOT_REPORTED", "NOT_STORED", "UNWRITTEN", "MismatchError", "from_tree", "reported_as",
    "to_tree",
]  # fmt: skip

NOT_STORED: Final = types.MappingProxyType[str, Any]({"stored": False})
"""Metadata of a field that is in memory only, and has a default: no tree has it."""
MAY_BE_MISSING: Final = types.MappingProxyType[str, Any]({"may_be_missing": True})
"""Metadata of a field that a tree has exactly where it is not empty: one that came to a format later, so
that what was written before reads the same, to the byte. Its default is empty."""

# The words of these two are pydantic's, which makes the schemas of reports and reads them: `exclude`, `alias`.
NOT_REPORTED: Final = types.MappingProxyType[str, Any]({"exclude": True})
"""Metadata of a field that documents of reports leave out; it has a default where they are read, too."""
UNWRITTEN: Final = types.MappingProxyType[str, Any]({**NOT_STORED, **NOT_REPORTED})
"""Metadata of a field that only its program sees: neither a file nor a document has it."""

Decoder = Callable[[Any], Any]
_NAMES = {
    bool: "true or false",
    dict: "an object",
    float: "a fraction",
    int: "a whole number",
    list: "a list",
    str: "a string",
    types.NoneType: "null",
}


class MismatchError(Exception):
    """A value of a tree is not what its annotation says."""

    def __init__(self, problem: str) -> None:
        """Start at the value itself; every level around it adds its step."""
        super().__init__(problem)
        self.steps: list[str | int] = []

    def __str__(self) -> str:
        """Return place and problem on one line."""
        place = ".".join(str(step) for step in reversed(self.steps)) or "top level"
        return f"{place[:200]!r}: {self.args[0]}"


def reported_as(name: str) -> Mapping[str, Any]:
    """Return the metadata of a field that has another name in documents of reports.

    A manifest says once what its numbers are of; a document says it in the name of each.
    """
    return types.MappingProxyType({"alias": name})


def from_tree(kind: Any, tree: Any, *, whole: bool = False) -> Any:
    """Make a record of what ``json.loads`` returns.

    Args:
        kind: A dataclass whose fields are annotated with str, int, float, bool, enumerations,
            dataclasses, ``tuple[x, ...]``, ``dict[str, x]``, and unions of these with None.
        tree: The tree.
        whole: Accept whole numbers where fractions are expected, and make fractions of them.

    Returns:
        The record.

    Raises:
        MismatchError: A value is of another type, missing, unknown, infinite or not a number.
    """
    # Decoders are made once per type and kept: of a manifest with many symbols, asking the
    # annotations each time would take most of the time.
    return _decoder(kind, whole)(tree)


def to_tree(value: Any) -> Any:
    """Return a record as what ``json.dumps`` takes; nothing is checked."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, tuple):
        return [to_tree(item) for item in value]
    if isinstance(value, dict):
        return {key: to_tree(item) for key, item in value.items()}
    kind: Any = type(value)
    names = _fields(kind)
    if names is None:
        # Plain values of JSON; what is none is noticed when the text is written.
        return value
    tree = {name: to_tree(getattr(value, name)) for name in names}
    for name in _may_be_missing(kind):
        # Empty and missing mean the same, and only one of them may be written.
        if not tree[name]:
            del tree[name]
    return tree


@functools.cache
def _fields(kind: Any) -> tuple[str, ...] | None:
    if not dataclasses.is_dataclass(kind):
        return None
    return tuple(
        field.name for field in dataclasses.fields(kind) if field.metadata.get("stored", True)
    )


@functools.cache
def _may_be_missing(kind: Any) -> frozenset[str]:
    fields = dataclasses.fields(kind)
    return frozenset(field.name for field in fields if field.metadata.get("may_be_missing"))


@functools.cache
def _decoder(kind: Any, whole: bool) -> Decoder:
    if dataclasses.is_dataclass(kind):
        return _record(kind, whole)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        return _list(_decoder(arguments[0], whole))
    if origin is dict:
        return _object(_decoder(arguments[1], whole))
    if origin in (types.UnionType, typing.Union):
        return _union(arguments, whole)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _member(kind)
    # Fractions alone may be written as whole numbers, if the caller says so.
    return _fraction(whole) if kind is float else _exact(frozenset({kind}))


def _record(kind: Any, whole: bool) -> Decoder:
    hints = typing.get_type_hints(kind)
    decoders = {name: _decoder(hints[name], whole) for name in _fields(kind) or ()}
    may_be_missing = _may_be_missing(kind)
    # An empty field that is there would be a second text of the same record.
    decoders |= {name: _not_empty(decoders[name]) for name in may_be_missing}

    def decode(tree: Any) -> Any:
        # `type` and not isinstance: subclasses do not come from JSON, and bool is one of int.
        if type(tree) is not dict:
            raise _unexpected(tree, dict)
        missing = decoders.keys() - tree.keys()
        # One comparison of sizes finds unknown fields, without a set for every record.
        if missing - may_be_missing or len(tree) + len(missing) != len(decoders):
            raise _other_fields(tree, decoders, may_be_missing)
        values: dict[str, Any] = {}
        # The loop's variable outlives the loop, so that an error knows the field without a try for
        # each.
        name = ""
        try:
            for name, decoder in decoders.items():
                if name in missing:
                    continue
                values[name] = decoder(tree[name])
        except MismatchError as error:
            error.steps.append(name)
            raise
        return kind(**values)

    return decode


def _not_empty(decoder: Decoder) -> Decoder:
    def decode(tree: Any) -> Any:
        if not tree:
            raise MismatchError("an empty field is left out here")
        return decoder(tree)

    return decode


def _list(decoder: Decoder) -> Decoder:
    def decode(tree: Any) -> tuple[Any, ...]:
        if type(tree) is not list:
            raise _unexpected(tree, list)
        items: list[Any] = []
        try:
            for item in tree:
                items.append(decoder(item))  # noqa: PERF401  (an error needs the number so far)
        except MismatchError as error:
            error.steps.append(len(items))
            raise
        return tuple(items)

    return decode


def _object(decoder: Decoder) -> Decoder:
    def decode(tree: Any) -> dict[str, Any]:
        if type(tree) is not dict:
            raise _unexpected(tree, dict)
        items: dict[str, Any] = {}
        key = ""
        try:
            for key, item in tree.items():
                if type(key) is not str:
                    raise _unexpected(key, str)
                items[key] = decoder(item)
        except MismatchError as error:
            error.steps.append(key)
            raise
        return items

    return decode


def _union(arguments: tuple[Any, ...], whole: bool) -> Decoder:
    if all(argument in _NAMES and argument is not float for argument in arguments):
        return _exact(frozenset(arguments))
    # A union is of plain types, or of one record and None; more could not be told apart without
    # guessing.
    (inner,) = (argument for argument in arguments if argument is not types.NoneType)
    decoder = _decoder(inner, whole)
    return lambda tree: None if tree is None else decoder(tree)


def _member(kind: type[enum.Enum]) -> Decoder:
    members = {member.value: member for member in kind}

    def decode(tree: Any) -> enum.Enum:
        if type(tree) is not str:
            raise _unexpected(tree, str)
        if tree not in members:
            raise MismatchError(f"expected one of {', '.join(members)}")
        return members[tree]

    return decode


def _fraction(whole: bool) -> Decoder:
    def decode(tree: Any) -> float:
        if whole and type(tree) is int:
            tree = float(tree)
        if type(tree) is not float:
            raise _unexpected(tree, float)
        # Python's JSON reads NaN and Infinity, although JSON has neither.
        if not math.isfinite(tree):
            raise MismatchError("expected a finite number")
        return tree

    return decode


def _exact(kinds: frozenset[type]) -> Decoder:
    def decode(tree: Any) -> Any:
        if type(tree) not in kinds:
            raise _unexpected(tree, *kinds)
        return tree

    return decode


def _unexpected(tree: Any, *kinds: type) -> MismatchError:
    expected = " or ".join(sorted(_NAMES[kind] for kind in kinds))
    return MismatchError(f"expected {expected}, not {_NAMES.get(type(tree), type(tree).__name__)}")


def _other_fields(
    tree: dict[Any, Any], decoders: dict[str, Decoder], may_be_missing: frozenset[str]
) -> MismatchError:
    missing = [name for name in decoders if name not in tree and name not in may_be_missing]
    if missing:
        return MismatchError(f"field {missing[0]!r} is missing")
    # Cut, for a hostile file may have a field with a name of many MB.
    unknown = next(name for name in tree if name not in decoders)
    return MismatchError(f"field {str(unknown)[:100]!r} is unknown")
