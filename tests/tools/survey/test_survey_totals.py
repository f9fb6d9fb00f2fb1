"""A survey adds up reports; the reports are made up."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from pathlib import Path

import jsonschema
import pytest

from samba_onnx.pef.changes import Bound
from samba_onnx.report import Report
from samba_onnx.report.change_reports import ChangeReport
from samba_onnx.report.documents import to_json
from samba_onnx.report.layout import render
from samba_onnx.tools.survey.survey_report import SurveyReport
from samba_onnx.tools.survey.survey_text import survey_text
from samba_onnx.tools.survey.survey_totals import Survey, csv_text
from tests.report.samples import all_on_rdu, detector

DOCS = Path(__file__).parents[3] / "docs"


def _change(operator: str, seconds: float) -> ChangeReport:
    return ChangeReport("main", "operator", operator, ("n",), (), 2, 100, seconds, f"no {operator}")


def _detector(*changes: ChangeReport) -> Report:
    report = Report.from_manifest(detector())
    bound = Bound("main", 2, 604_512, 40e-6)
    return dataclasses.replace(report, changes=changes, bounds=(bound,))


@pytest.fixture
def survey() -> SurveyReport:
    survey = Survey(("sn30", "sn40l"))
    whole = Report.from_manifest(all_on_rdu())
    suppress, unique = "NonMaxSuppression", "Unique"
    survey.add(
        "a.onnx", "sn40l", "a.json", _detector(_change(suppress, 3e-6), _change(unique, 5e-6))
    )
    survey.add("b.onnx", "sn40l", "b.json", _detector(_change(suppress, 4e-6)))
    survey.add("a.onnx", "sn30", "c.json", _detector())
    survey.add("c.onnx", "sn40l", "d.json", whole)
    survey.fail("d.onnx", "sn40l", "e.json", "no such model")
    return survey.report()


def test_headline_and_totals(survey: SurveyReport) -> None:
    assert survey.headline == (
        "4 models: 0 of 1 run whole on sn30, 1 of 3 run whole on sn40l, 1 analysis failed"
    )
    first, second = survey.targets
    assert (first.target, first.analyzed, first.failed, first.whole) == ("sn30", 1, 0, 0)
    assert (second.analyzed, second.failed, second.whole) == (3, 1, 1)
    figures = [one.figures for one in survey.entries if one.target == "sn40l" and one.figures]
    assert second.nodes == sum(one.nodes for one in figures) > 0
    assert second.bytes == sum(one.bytes for one in figures)
    assert second.modelled_seconds == sum(one.modelled_seconds for one in figures)


def test_figures_are_those_of_the_report(survey: SurveyReport) -> None:
    """Written down from the manifest of the sample: seven nodes on the RDU, two on the CPU."""
    figures = survey.entries[0].figures
    assert figures is not None
    assert (figures.nodes, figures.rdu_nodes, figures.cpu_nodes) == (9, 7, 2)
    assert (figures.fallbacks, figures.transfers) == (1, 5)
    assert figures.bytes == 602_112 + 40_000 + 160_000 + 2_400 + 2_400
    assert figures.bound_seconds == 40e-6
    assert figures.unmodelled_cpu_nodes == 1
    whole = survey.entries[3].figures
    assert whole is not None
    assert whole.bound_seconds == whole.modelled_seconds


def test_fallbacks_count_models_and_nodes_of_each_target(survey: SurveyReport) -> None:
    rows = [(row.target, row.operator, row.models, row.nodes) for row in survey.fallbacks]
    assert rows == [
        ("sn40l", "NonMaxSuppression", ("a.onnx", "b.onnx"), 2),
        ("sn40l", "ai.example::Clip2", ("a.onnx", "b.onnx"), 2),
        ("sn30", "NonMaxSuppression", ("a.onnx",), 1),
        ("sn30", "ai.example::Clip2", ("a.onnx",), 1),
    ]
    assert "depends on the values" in survey.fallbacks[0].reason


def test_what_helps_most_over_the_whole_set_comes_first(survey: SurveyReport) -> None:
    """Of one model alone, the other change would."""
    first, second = survey.changes
    assert (first.operator, first.models, first.nodes) == (
        "NonMaxSuppression",
        ("b.onnx", "a.onnx"),
        2,
    )
    assert (first.transfers_saved, first.bytes_saved) == (4, 200)
    assert first.seconds_saved == pytest.approx(7e-6, rel=1e-12)
    assert (second.operator, second.seconds_saved) == ("Unique", 5e-6)
    assert first.advice == "no NonMaxSuppression"


def test_text_fits_a_terminal(survey: SurveyReport) -> None:
    text = render(survey_text(survey), width=80)
    assert max(map(len, text.splitlines())) <= 80
    for word in ("Fallbacks", "Change first", "Failed", "no such model", "no Unique"):
        assert word in text
    blocks = text.split("\n\n")
    assert blocks[2].startswith("sn40l: ")
    names = [line.split()[0] for line in blocks[2].splitlines() if ".onnx" in line]
    assert names == ["a.onnx", "b.onnx", "c.onnx"]
    assert len(render(survey_text(survey, 1)).splitlines()) < len(text.splitlines())


def test_csv_and_json_hold_every_entry(survey: SurveyReport) -> None:
    rows = list(csv.DictReader(io.StringIO(csv_text(survey))))
    assert [row["model"] for row in rows] == [entry.model for entry in survey.entries]
    assert (rows[0]["cpu_nodes"], rows[0]["bytes"]) == ("2", "806912")
    assert (rows[-1]["state"], rows[-1]["error"], rows[-1]["nodes"]) == (
        "failed",
        "no such model",
        "",
    )
    schema = json.loads((DOCS / "survey.schema.json").read_text())
    jsonschema.validate(json.loads(to_json(survey)), schema)
