"""Records come from trees exactly as they are annotated, or not at all."""

from __future__ import annotations

import dataclasses
import enum
import json
from typing import Any

import pytest
from pydantic import ConfigDict, TypeAdapter, ValidationError

from samba_onnx.pef.decoding import MismatchError, from_tree, to_tree
from samba_onnx.pef.manifest import Manifest
from tests.pef.builders import manifest, weights_layout


class Colour(enum.StrEnum):
    RED = "red"


@dataclasses.dataclass(frozen=True)
class Inner:
    size: int


@dataclasses.dataclass(frozen=True)
class Outer:
    flag: bool
    part: float
    colour: Colour
    shape: tuple[int | str | None, ...] | None
    inner: Inner | None
    many: tuple[Inner, ...]
    counts: dict[str, int]


TREE: dict[str, Any] = {
    "flag": True,
    "part": 0.5,
    "colour": "red",
    "shape": [1, "n", None],
    "inner": {"size": 3},
    "many": [{"size": 4}, {"size": 5}],
    "counts": {"a": 1},
}
RECORD = Outer(True, 0.5, Colour.RED, (1, "n", None), Inner(3), (Inner(4), Inner(5)), {"a": 1})


def test_there_and_back() -> None:
    assert from_tree(Outer, TREE) == RECORD
    assert to_tree(RECORD) == TREE
    assert from_tree(Outer, {**TREE, "inner": None, "shape": None}).inner is None


@pytest.mark.parametrize(
    ("name", "value", "place"),
    [
        ("flag", 1, "flag"),
        ("part", 1, "part"),
        ("part", True, "part"),
        ("part", "0.5", "part"),
        ("part", float("inf"), "part"),
        ("part", float("nan"), "part"),
        ("colour", "RED", "colour"),
        ("colour", ["red"], "colour"),
        ("shape", [True], "shape.0"),
        ("shape", [1, 2.0], "shape.1"),
        ("shape", "12", "shape"),
        ("inner", {}, "inner"),
        ("inner", {"size": 3, "more": 1}, "inner"),
        ("inner", [3], "inner"),
        ("many", None, "many"),
        ("many", [{"size": 4}, {"size": False}], "many.1.size"),
        ("counts", {"a": 1, "b": "2"}, "counts.b"),
        ("counts", [["a", 1]], "counts"),
    ],
)
def test_other_values_are_refused_with_their_place(name: str, value: Any, place: str) -> None:
    with pytest.raises(MismatchError) as refusal:
        from_tree(Outer, {**TREE, name: value})
    assert str(refusal.value).startswith(f"'{place}': ")
    assert len(str(refusal.value).splitlines()) == 1


def test_missing_and_unknown_fields_are_refused() -> None:
    with pytest.raises(MismatchError, match="'top level': field 'flag' is missing"):
        from_tree(Outer, {k: v for k, v in TREE.items() if k != "flag"})
    with pytest.raises(MismatchError, match="field 'more' is unknown"):
        from_tree(Outer, {**TREE, "more": 1})
    with pytest.raises(MismatchError, match="expected an object, not a list"):
        from_tree(Outer, [TREE])


def test_whole_numbers_become_fractions_on_request_only() -> None:
    part = from_tree(Outer, {**TREE, "part": 2}, whole=True).part
    assert (part, type(part)) == (2.0, float)
    for wrong in (True, "2"):
        with pytest.raises(MismatchError):
            from_tree(Outer, {**TREE, "part": wrong}, whole=True)


def test_whatever_pydantic_refuses_in_a_manifest_is_refused() -> None:
    """Put other values in every place of a manifest and compare with a validator of another make."""
    # By name: aliases are the names that fields have in reports.
    config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, populate_by_name=True)
    adapter = TypeAdapter(tuple[Manifest], config=config)
    tree = to_tree(manifest(weights_layout()))
    compared = 0
    for holder, key in list(_places(tree)):
        kept = holder[key]
        for other in (None, True, 7, 0.5, float("inf"), "x", [], {}, [None], {"x": None}):
            holder[key] = other
            try:
                (theirs,) = adapter.validate_json(json.dumps([tree]))
            except ValidationError:
                with pytest.raises(MismatchError):
                    from_tree(Manifest, tree, whole=True)
            else:
                assert from_tree(Manifest, tree, whole=True) == theirs
            compared += 1
        holder[key] = kept
    assert compared > 1000


def _places(tree: Any) -> Any:
    """Yield every place of a tree; of a list only the first element's."""
    keys = list(tree) if isinstance(tree, dict) else range(min(len(tree), 1))
    for key in keys:
        yield tree, key
        if isinstance(tree[key], dict | list):
            yield from _places(tree[key])
