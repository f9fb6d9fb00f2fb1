"""Which reports may be held against each other."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import samba_onnx
from models.cache import cached_onnx
from samba_onnx.errors import UsageError
from samba_onnx.report import Report
from samba_onnx.report.accepted_limits import Baseline
from samba_onnx.report.comparability import different, different_text
from samba_onnx.report.program.program_records import ProducerReport
from samba_onnx.report.reading import read_report
from tests.report.samples import detector


def _report(model: Path, **options: object) -> Report:
    dims = {"batch": 1, "sequence": 4} | options.pop("dims", {})  # type: ignore[operator]
    return Report.from_manifest(samba_onnx.analyze(model, dims=dims, **options))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def model() -> Path:
    return cached_onnx("lstm", "tiny", dynamic=True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dims": {"batch": 8}}, "sizes tokens 1x4 → tokens 8x4"),
        ({"dims": {"sequence": 2}}, "sizes tokens 1x4 → tokens 1x2"),
        ({"precision": "bf16"}, "precision fp32 → bf16"),
        ({"target": "sn30"}, "target sn40l → sn30"),
        ({"level": "o0"}, "level o3 → o0"),
        ({"n_chips": 2, "dims": {"batch": 1}}, "RDUs 1 → 2"),
    ],
)
def test_a_baseline_names_the_condition_that_differs(
    model: Path, options: dict[str, object], words: str
) -> None:
    before, after = _report(model), _report(model, **options)
    assert words in different_text(different(before, after))
    for one, other in ((before, after), (after, before)):
        with pytest.raises(UsageError, match=r"not comparable .* --allow-different"):
            Baseline("released.json", one).refuse_different(other)
        Baseline("released.json", one, allows_different=True).refuse_different(other)


def test_the_version_of_the_tool_is_a_condition() -> None:
    report = Report.from_manifest(detector())
    older = dataclasses.replace(report, producer=ProducerReport("samba-onnx", "0.0.1"))
    assert different_text(different(older, report)) == "version samba-onnx 0.0.1 → samba-onnx 0.1.0"
    assert not different(older, report, but=["version"])


def test_inputs_may_be_called_otherwise(model: Path) -> None:
    report = _report(model)
    (graph,) = report.graphs
    renamed = [dataclasses.replace(value, name="ids") for value in graph.inputs]
    graphs = (dataclasses.replace(graph, inputs=tuple(renamed)),)
    assert not different(report, dataclasses.replace(report, graphs=graphs))


def test_a_report_of_an_older_version_states_neither_precision_nor_version() -> None:
    report = Report.from_manifest(detector())
    older = dataclasses.replace(report, precision="", producer=ProducerReport("", ""))
    assert not different(older, report)
    # As its document is read: fields that it lacks have these values.
    assert read_report(older.to_json().encode(), "old.json") == older


def test_one_size_is_not_several(model: Path) -> None:
    one, two = _report(model), _report(model, dims={"batch": (1, 8)})
    assert "sizes" in different(one, two)
    assert "sizes" in different(two, one)
    assert not different(two, two)
