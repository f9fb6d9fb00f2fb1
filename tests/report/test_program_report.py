"""The program in a report: what JSON of version 2 has, and that version 1 is still read."""

from __future__ import annotations

import json
import math
from pathlib import Path

import onnx.parser
import pytest

import samba_onnx
from samba_onnx.errors import UsageError
from samba_onnx.report.comparing import difference
from samba_onnx.report.reading import read_report
from tests.report.samples import detector

FIRST = Path(__file__).with_name("report_schema_1.json").read_bytes()
"""What the last version of schema 1 wrote of the detector."""


@pytest.fixture(scope="module")
def report() -> samba_onnx.Report:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 18]>
        net (float[8, 16, 16] x) => (float[8, 16, 16] y) {
            a = MatMul(x, x)
            b = LpPool <kernel_shape = [1]> (a)
            c = Exp(a)
            d = Add(b, c)
            y = Neg(d)
        }
    """)
    return samba_onnx.Report.from_manifest(samba_onnx.analyze(model, placement="strict"))


def test_nodes_say_where_they_run_and_why(report: samba_onnx.Report) -> None:
    program = report.program
    assert program is not None
    nodes = program.nodes
    assert [node.id for node in nodes] == list(range(5))
    assert {node.operator: node.home for node in nodes} == {
        "MatMul": "rdu", "LpPool": "cpu", "Exp": "rdu", "Add": "rdu", "Neg": "rdu",
    }  # fmt: skip
    (on_cpu,) = (node for node in nodes if node.home == "cpu")
    (fallback,) = report.fallbacks
    assert on_cpu.reason == fallback.nodes[0].reason
    assert (
        sum(node.flops for node in nodes) == report.coverage.rdu_flops + report.coverage.cpu_flops
    )


def test_times_of_nodes_add_up_to_those_of_their_sections(report: samba_onnx.Report) -> None:
    assert report.program is not None
    for section in report.sections:
        seconds = sum(n.modelled_seconds for n in report.program.nodes if n.stage == section.id)
        assert math.isclose(seconds, section.modelled_seconds)


def test_edges_lead_from_writers_to_readers(report: samba_onnx.Report) -> None:
    assert report.program is not None
    names = {node.id: node.operator for node in report.program.nodes}
    edges = {edge.value: edge for edge in report.program.edges}
    assert edges["x"].source is None
    assert {names[target] for target in edges["a"].targets} == {"LpPool", "Exp"}
    assert {name for name, edge in edges.items() if edge.crosses} == {"a", "b"}
    assert edges["a"].bytes == 8 * 16 * 16 * 4
    assert edges["y"].targets == ()


def test_edges_between_stages_are_the_boundaries(report: samba_onnx.Report) -> None:
    assert report.program is not None
    crossing = {(e.source, e.target): e.bytes for e in report.program.stage_edges if e.crosses}
    assert crossing == {(b.before, b.after): b.bytes for b in report.boundaries}


def test_a_file_has_the_program_of_its_analysis(tmp_path: Path) -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 18]>
        net (float[2, 4] x) => (float[2, 4] y) { a = Exp(x) y = Neg(a) }
    """)
    analysed = samba_onnx.Report.from_manifest(samba_onnx.analyze(model))
    with samba_onnx.convert(model, tmp_path / "m.pef") as pef:
        converted = samba_onnx.Report.from_manifest(pef.manifest)
    assert converted.program == analysed.program
    assert converted.program is not None


def test_a_report_may_do_without() -> None:
    assert samba_onnx.Report.from_manifest(detector()).program is None


def test_rows_have_a_line_each(report: samba_onnx.Report) -> None:
    lines = report.to_json().splitlines()
    assert sum('"modelled_seconds"' in line and '"module"' in line for line in lines) == 5


def test_what_is_written_is_read(report: samba_onnx.Report) -> None:
    again = read_report(report.to_json().encode(), "report")
    assert again.program == report.program
    assert again.producer == report.producer


def test_the_first_version_is_read() -> None:
    before = read_report(FIRST, "old")
    after = samba_onnx.Report.from_manifest(detector())
    assert before.producer.text == after.producer.text
    assert before.program is None
    assert not difference(before, after, ("old", "new")).worse


def test_a_later_version_is_refused() -> None:
    later = json.dumps(json.loads(FIRST) | {"schema_version": 3}).encode()
    with pytest.raises(UsageError, match="install a newer one"):
        read_report(later, "report")
