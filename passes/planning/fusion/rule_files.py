"""Files of fusion rules, in the shape of SambaFlow's operator fusion rules, checked by pydantic.

Every key is known or refused with the closest one that is, so that no slip of the pen is without
effect; what is allowed and has no effect here is said in a note.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from samba_onnx.errors import UsageError
from samba_onnx.passes.planning.fusion.patterns import FusionRule, FusionRules, PatternEntry
from samba_onnx.passes.planning.fusion.pytorch_names import operator_names
from samba_onnx.passes.planning.fusion.variants import PatternError, check_pattern, variants
from samba_onnx.safety.files import printable
from samba_onnx.safety.yaml_files import YamlDocument, read_yaml

MOST_RULES: Final = 500
MOST_ENTRIES: Final = 200

_Name = Annotated[str, Field(min_length=1, max_length=200)]
_Names = Annotated[list[_Name], Field(min_length=1, max_length=MOST_ENTRIES)]
_Scalar = str | int | float | bool | None


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class EntryFile(_Strict):
    """One operator of a pattern, as a file states it."""

    op_type: _Name | _Names | None = None
    """PyTorch's or ONNX's name of the operator, or a list of names of which it is any."""
    child: _Name | None = None
    """The entry that reads what it writes."""
    children: _Names | None = None
    """The entries that do, where there are several."""
    required: bool = True
    """Whether the pattern only matches with it."""
    included: bool = True
    """Whether it becomes part of the section; otherwise it only says where the pattern is."""
    match_first_option: _Names | None = None
    """Entries of which it is the first that matches, in the place of an operator."""


class HeuristicFile(BaseModel):
    """A heuristic with parameters, which nobody documents."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    __pydantic_extra__: dict[str, _Scalar | list[_Scalar]]

    name: _Name


class RuleFile(_Strict):
    """One rule, as a file states it."""

    priority: Annotated[int | float, Field(allow_inf_nan=False)]
    """Where several rules match the same operators, the greater one wins."""
    pattern: Annotated[dict[_Name, EntryFile], Field(min_length=1, max_length=MOST_ENTRIES)]
    """The operators, by names of the rule's own."""
    heuristic: Annotated[str, Field(max_length=200)] | HeuristicFile | None = None
    """How the vendor's compiler lays the section out."""


_KEYS: Final = {
    "rule": tuple(RuleFile.model_fields),
    "entry": tuple(EntryFile.model_fields),
}


def read_rules(path: str | os.PathLike[str]) -> FusionRules:
    """Read a file of fusion rules.

    Args:
        path: A file of YAML: rules by name.

    Returns:
        Its rules by priority, of equal ones in the order of the file, with notes on what it says without effect.

    Raises:
        UsageError: It cannot be read, or a rule is malformed; the message names the file, the rule and the
            key, what is expected, and the closest name that is valid.
    """
    path = Path(path)
    document = read_yaml(path, "file of fusion rules")
    try:
        return _rules(document, path.name)
    except _RuleError as error:
        place = ": ".join(printable(part) for part in error.place)
        label = f"file of fusion rules {printable(path)}"
        raise UsageError(f"{label}: {place + ': ' if place else ''}{error}", path=path) from None


class _RuleError(Exception):
    """A rule that cannot be used: what is wrong, without the place."""

    def __init__(self, message: str, *place: str) -> None:
        super().__init__(message)
        self.place = place


def _rules(document: YamlDocument, file: str) -> FusionRules:
    content = document.content
    if not isinstance(content, Mapping) or not content:
        raise _RuleError(
            f"it holds {_kind(content)}; expected rules by name, each with priority and pattern"
        )
    if len(content) > MOST_RULES:
        raise _RuleError(f"it has {len(content):,} rules; expected at most {MOST_RULES}")
    for key, line in document.repeated:
        # A rule that is stated again takes the place of the first, as mappings of YAML do. A key that is
        # stated again within a rule has no such use: one of both is a slip.
        if len(key) > 1:
            raise _RuleError(
                f"{key[-1]!r} is stated again in line {line}: leave one out",
                f"rule {key[0]}", *key[1:-1],
            )  # fmt: skip
    notes = [
        f"{file}: rule {printable(key[0])!r} is stated again in line {line}, and the last one counts"
        for key, line in document.repeated
    ]
    rules = [_rule(name, rule, file) for name, rule in content.items()]
    notes += _notes(rules, file)
    return FusionRules(tuple(sorted(rules, key=lambda rule: -rule.priority)), tuple(notes))


def _notes(rules: Sequence[FusionRule], file: str) -> list[str]:
    """Say what has no effect."""
    notes = []
    heuristics = dict.fromkeys(rule.heuristic for rule in rules if rule.heuristic)
    if heuristics:
        notes.append(
            f"{file}: heuristics lay sections out on the chip and have no effect here: "
            f"{printable(', '.join(heuristics), 300)}"
        )
    notes += [
        f"{file}: rule {printable(rule.name)!r} names {', '.join(rule.unknown)}, which the compiler "
        "writes with other operators: that matches nothing"
        for rule in rules
        if rule.unknown
    ]
    return notes


def _rule(name: Any, content: Any, file: str) -> FusionRule:
    if not isinstance(name, str):
        raise _RuleError(f"{name!r} is {_kind(name)}; expected the name of a rule")
    if not isinstance(content, Mapping):
        raise _RuleError(f"is {_kind(content)}; expected priority and pattern", f"rule {name}")
    try:
        rule = RuleFile.model_validate(content)
    except ValidationError as error:
        raise _refused(name, content, error) from None
    unknown: dict[str, None] = {}
    for key, entry in rule.pattern.items():
        for operator in _operators(entry):
            if _check_operator(operator, name, key):
                unknown[operator] = None
    try:
        entries = {key: _stated(key, entry) for key, entry in rule.pattern.items()}
        options = {
            key: tuple(entry.match_first_option)
            for key, entry in rule.pattern.items()
            if entry.match_first_option
        }
        check_pattern(entries, options)
        patterns = variants(entries, options)
    except PatternError as error:
        raise _RuleError(str(error), f"rule {name}", "pattern", *error.place) from None
    heuristic = _heuristic_text(rule.heuristic)
    return FusionRule(name, rule.priority, patterns, heuristic, file, tuple(unknown))


def _operators(entry: EntryFile) -> tuple[str, ...]:
    if entry.op_type is None:
        return ()
    return (entry.op_type,) if isinstance(entry.op_type, str) else tuple(entry.op_type)


def _check_operator(operator: str, rule: str, entry: str) -> bool:
    """Return whether a rule may name an operator, but no graph has it."""
    names = operator_names()
    # Nobody has a list of the operators of other domains: any of them may be in a graph.
    if "::" in operator:
        return False
    operators = names.known()
    if operator not in operators:
        raise _RuleError(
            f"{printable(operator)!r} is no operator of PyTorch or ONNX that the compiler knows"
            f"{_closest(operator, operators)}",
            f"rule {rule}", "pattern", entry, "op_type",
        )  # fmt: skip
    return names.matches_nothing(operator)


def _stated(name: str, entry: EntryFile) -> PatternEntry:
    """Return an entry of a pattern; one that stands for others has no operator."""
    if entry.children is not None and entry.child is not None:
        raise PatternError("has child and children; expected one of them", name)
    if (entry.op_type is None) == (entry.match_first_option is None):
        raise PatternError("expected op_type, or match_first_option in its place", name)
    children = tuple(entry.children or ([entry.child] if entry.child else ()))
    # An entry that stands for others is no operator: edges are those of the option that is chosen.
    if entry.match_first_option is not None and (
        children or not entry.required or not entry.included
    ):
        raise PatternError("stands for its options: child, required and included are theirs", name)
    return PatternEntry(_operators(entry), children, entry.required, entry.included)


def _heuristic_text(heuristic: str | HeuristicFile | None) -> str:
    """Return a heuristic as text: ``MHA(spatial_split_degree=2)``."""
    if heuristic is None or isinstance(heuristic, str):
        return heuristic or ""
    parameters = heuristic.__pydantic_extra__ or {}
    stated = ", ".join(f"{key}={value}" for key, value in parameters.items())
    return f"{heuristic.name}({stated})" if stated else heuristic.name


_EXPECTED: Final[Mapping[str, str]] = {
    "priority": "a number",
    "pattern": "operators by name",
    "heuristic": "a name, or a mapping with name and parameters",
    "op_type": "the name of an operator, or a list of names",
    "child": "the name of an entry",
    "children": "a list of names of entries",
    "required": "true or false",
    "included": "true or false",
    "match_first_option": "a list of names of entries",
}


def _refused(rule: str, content: Mapping[Any, Any], error: ValidationError) -> _RuleError:
    """Return pydantic's first complaint, with the keys that are there in the place of its words."""
    errors = error.errors(include_url=False, include_context=False)
    # An unknown key tells more than what is missing in its place, and an item of a list more than the list.
    first = max(errors, key=lambda one: (one["type"] == "extra_forbidden", len(one["loc"])))
    location = [str(part) for part in first["loc"]]
    in_entry = location[:1] == ["pattern"] and len(location) > 1
    place = [f"rule {rule}", *(location[:2] if in_entry else [])]
    if first["type"] == "extra_forbidden":
        keys = _KEYS["entry" if in_entry else "rule"]
        message = f"unknown key{_closest(location[-1], keys)}; known: {', '.join(keys)}"
        return _RuleError(message, *place, location[-1])
    # An entry may have the name of a key.
    stated = [part for part in location[2 if in_entry else 0 :] if part in _EXPECTED]
    if not stated:
        return _RuleError(
            f"is {_kind(first['input'])}; expected op_type and child or children", *place
        )
    key = stated[-1]
    place.append(key)
    if key == "heuristic" and isinstance(content.get("heuristic"), Mapping):
        return _RuleError("expected name, and parameters that are texts, numbers or lists", *place)
    if first["type"] == "missing":
        return _RuleError(f"is missing; expected {_EXPECTED[key]}", *place)
    return _RuleError(f"is {_kind(first['input'])}; expected {_EXPECTED[key]}", *place)


def _closest(name: str, names: Collection[str]) -> str:
    """Return what may have been meant, as the end of a sentence."""
    folded = {each.lower(): each for each in sorted(names)}
    close = difflib.get_close_matches(name.lower(), folded, 1)
    return f"; did you mean {folded[close[0]]!r}?" if close else ""


def _kind(value: Any) -> str:
    """Return what a value of YAML is, in words."""
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    if isinstance(value, bool):
        return str(value).lower()
    kind = {str: "text", int: "number", float: "number"}.get(type(value), type(value).__name__)
    return f"{kind} {printable(value, 40)!r}" if isinstance(value, str) else f"{kind} {value!s:.40}"
