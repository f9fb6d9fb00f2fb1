"""The JSON document and its schema."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from samba_onnx.report import Report
from samba_onnx.report.documents import json_schema, to_json
from samba_onnx.report.report_records import record
from samba_onnx.report.schemas import documents
from tests.report.samples import all_on_rdu, detector
from tests.versions import needs

DOCS = Path(__file__).parents[2] / "docs"
SCHEMA = DOCS / "report.schema.json"
REFRESH = "python -m samba_onnx.report.schemas docs"
DOCUMENTS = documents()


@needs("pydantic", "2.13")  # older ones leave out what docstrings say
@pytest.mark.parametrize("name", DOCUMENTS)
def test_documented_schema_is_up_to_date(name: str) -> None:
    documented = json.loads((DOCS / f"{name}.schema.json").read_text())
    assert documented == json_schema(DOCUMENTS[name]), f"refresh it: {REFRESH}"


@needs("pydantic", "2.13")
@pytest.mark.parametrize("document", DOCUMENTS.values())
def test_schema_describes_every_field(document: type) -> None:
    schema = json_schema(document)
    for name, definition in ((document.__name__, schema), *schema.get("$defs", {}).items()):
        assert definition["description"], name
        for field, content in definition.get("properties", {}).items():
            assert content["description"], f"{name}.{field}"


@pytest.mark.parametrize("manifest", [detector(), all_on_rdu()], ids=["detector", "all_on_rdu"])
def test_documents_fit_the_schema(manifest: object) -> None:
    document = json.loads(Report.from_manifest(manifest).to_json())  # type: ignore[arg-type]
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))


@pytest.mark.parametrize(
    "change", [{"schema_version": "1"}, {"sections": [{}]}, {"extra": 1}, {"coverage": None}]
)
def test_schema_refuses_other_documents(change: dict[str, object]) -> None:
    document = json.loads(Report.from_manifest(detector()).to_json()) | change
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, json.loads(SCHEMA.read_text()))


def test_sizes_and_times_carry_their_unit() -> None:
    """A number of bytes or seconds says so in its name."""
    document = json.loads(Report.from_manifest(detector()).to_json())
    assert document["memory"][0]["capacity_bytes"] == 520_000_000
    assert document["modelled_time"]["total_seconds"] > 0
    assert document["coverage"]["rdu_flops"] == 8_201_000


def test_json_survives_broken_text_and_numbers() -> None:
    @record
    class Odd:
        text: str
        number: float

    document = to_json(Odd("\udc80 µ", float("nan")))
    assert document.isascii()
    assert json.loads(document) == {"text": "\udc80 µ", "number": None}
