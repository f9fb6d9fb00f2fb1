"""The manifest's schema and page say what the records say, field by field."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from docs.generators.pef import PAGE, page
from samba_onnx.pef.decoding import to_tree
from samba_onnx.report.manifest_schema import manifest_records, manifest_schema
from tests.pef.builders import manifest, weights_layout
from tests.versions import needs

SCHEMA = Path(__file__).parents[2] / "docs" / "manifest.schema.json"


def _tree() -> dict[str, Any]:
    tree: dict[str, Any] = json.loads(json.dumps(to_tree(manifest(weights_layout()))))
    return tree


@needs("pydantic", "2.13")  # older ones leave out what docstrings say
def test_the_documented_schema_is_up_to_date() -> None:
    refresh = "refresh it: python -m samba_onnx.report.schemas docs"
    assert json.loads(SCHEMA.read_text()) == manifest_schema(), refresh


def test_the_page_is_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(text), "refresh it: python -m docs.generators.pef"


UNWRITTEN = {"PassSummary": {"seconds"}, "Manifest": {"stage_graphs"}}
"""Fields that are in memory only."""


@pytest.mark.parametrize("name", manifest_records())
def test_every_field_is_described(name: str) -> None:
    """The names come from the dataclasses themselves, and from what is written of one; not from the page's generator."""
    record = manifest_records()[name]
    section = (
        PAGE.read_text(encoding="utf-8").partition(f"\n### {name}\n")[2].partition("\n### ")[0]
    )
    rows = [line.split("|") for line in section.splitlines() if line.startswith("| `")]
    described = {row[1].strip(" `"): row[3].strip() for row in rows}
    fields = {field.name for field in dataclasses.fields(record)}
    assert set(described) == fields - UNWRITTEN.get(name, set())
    assert all(described.values())
    definition = json.loads(SCHEMA.read_text())
    definition = definition if name == "Manifest" else definition["$defs"][name]
    assert set(definition["properties"]) == set(described)
    assert all(content["description"] for content in definition["properties"].values())


def test_a_manifest_fits() -> None:
    jsonschema.validate(_tree(), json.loads(SCHEMA.read_text()))


def _without_level(tree: dict[str, Any]) -> None:
    del tree["level"]


def _unknown(tree: dict[str, Any]) -> None:
    tree["symbols"][0]["more"] = 1


def _text_for_number(tree: dict[str, Any]) -> None:
    tree["regions"][0]["bytes"] = "4800"


def _other_kind(tree: dict[str, Any]) -> None:
    tree["symbols"][0]["kind"] = "toy"


@pytest.mark.parametrize("change", [_without_level, _unknown, _text_for_number, _other_kind])
def test_what_the_reader_refuses_does_not_fit(change: Any) -> None:
    tree = _tree()
    change(tree)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(tree, json.loads(SCHEMA.read_text()))
