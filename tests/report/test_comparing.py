"""What two reports differ in, and whether the second one is worse."""

from __future__ import annotations

import dataclasses
import json

import pytest

from samba_onnx.errors import UsageError
from samba_onnx.pef.manifest import Manifest
from samba_onnx.pef.stage_records import SectionTime
from samba_onnx.report import Report
from samba_onnx.report.comparing import amount_text, difference
from samba_onnx.report.difference import DifferenceReport
from samba_onnx.report.difference_text import difference_text
from samba_onnx.report.layout import render
from samba_onnx.report.reading import read_report
from tests.report.samples import detector

NAMES = ("a.pef", "b.pef")


def compared(before: Manifest, after: Manifest, **options: float) -> DifferenceReport:
    left, right = Report.from_manifest(before), Report.from_manifest(after)
    return difference(left, right, NAMES, **options)


def without_fallbacks(manifest: Manifest) -> Manifest:
    """What a compiler would say that runs the CPU's part on the RDU, in one more section."""
    (fallback,) = manifest.fallbacks
    first = manifest.sections[0]
    section = dataclasses.replace(
        first, id=fallback.id, name="nms", operators=fallback.operators, seconds=1e-9
    )
    graph = manifest.graphs[0]
    kept = tuple(move for move in graph.run_transfers if move.cause != "fallback")
    graph = dataclasses.replace(graph, run_transfers=kept, boundaries=())
    sections = (*manifest.sections, section)
    return dataclasses.replace(manifest, fallbacks=(), sections=sections, graphs=(graph,))


def test_a_report_does_not_differ_from_itself() -> None:
    answer = compared(detector(), detector())
    assert not answer.worse
    assert answer.headline == "a.pef → b.pef: no figure that counts differs"
    lists = (answer.circumstances, answer.fallbacks, answer.boundaries, answer.operators)
    assert not any((*lists, answer.sections, answer.passes))
    assert render(difference_text(answer)) == answer.headline + "\n"


def test_what_moves_to_the_rdu_is_named_with_the_reason_it_had() -> None:
    answer = compared(detector(), without_fallbacks(detector()))
    assert not answer.worse
    assert answer.headline.startswith("a.pef → b.pef: better: cpu nodes 2 nodes → 0 nodes")
    assert {(one.change, one.instead) for one in answer.fallbacks} == {("gone", "on the RDU")}
    assert all(one.reason_before and not one.reason_after for one in answer.fallbacks)
    figures = {figure.name: figure for figure in answer.figures}
    assert (figures["boundaries"].before, figures["boundaries"].after) == (2, 0)
    assert all(one.bytes_after == one.boundaries_after == 0 for one in answer.boundaries)
    assert [one.name for one in answer.sections] == ["nms"]
    assert "now on the RDU" in render(difference_text(answer))


def test_what_moves_to_the_cpu_is_worse() -> None:
    answer = compared(without_fallbacks(detector()), detector())
    assert answer.worse
    assert answer.headline.startswith("a.pef → b.pef: worse: cpu nodes 0 nodes → 2 nodes (new)")
    assert {(one.change, one.instead) for one in answer.fallbacks} == {("new", "on the RDU")}
    assert all(one.cpu_nodes_after > one.cpu_nodes_before for one in answer.operators)


def test_a_report_from_before_times_had_parts_is_read() -> None:
    report = Report.from_manifest(detector())
    document = json.loads(report.to_json())
    for section in document["sections"]:
        del section["dominant"], section["time_parts"]
    del document["modelled_time"]["parts"], document["modelled_time"]["validation"]
    older = read_report(json.dumps(document).encode(), "older.json")
    assert older.sections[0].time_parts == {}
    assert not difference(older, report, ("older.json", "b.pef")).worse


def test_other_models_of_times_are_no_riddle() -> None:
    time = SectionTime(launch=1e-6, compute=1e-6)
    first, *others = detector().sections
    timed = dataclasses.replace(first, time=time, seconds=time.seconds)
    known = dataclasses.replace(detector(), sections=(timed, *others))
    assert compared(detector(), known).circumstances == (
        "modelled times: at peak rates → with launches and efficiencies",
    )


def test_a_little_more_time_may_be_allowed() -> None:
    manifest = detector()
    slower = dataclasses.replace(
        manifest,
        sections=tuple(dataclasses.replace(s, seconds=s.seconds * 1.01) for s in manifest.sections),
    )
    answer = compared(manifest, slower)
    assert answer.worse
    assert [figure.name for figure in answer.figures if figure.worse] == ["modelled_seconds"]
    assert not compared(manifest, slower, allowed_percent=1.0).worse
    assert not compared(slower, manifest).worse


def test_figures_are_in_words() -> None:
    figures = compared(detector(), detector()).figures
    ones = {amount_text(1, figure.unit) for figure in figures}
    assert ones == {
        *("1 node", "1 place", "1 boundary", "1 transfer", "1 section", "1 region"),
        *("1 B", "1.0 s", "1 FLOP"),
    }
    assert amount_text(2, "boundaries") == "2 boundaries"
    assert amount_text(4_089_184_256, "FLOP") == "4.1 GFLOP"


def test_another_name_for_the_same_node_is_no_move() -> None:
    manifest = detector()
    (fallback,) = manifest.fallbacks
    reasons = tuple(dataclasses.replace(node, name=f"{node.name}_2") for node in fallback.reasons)
    renamed = dataclasses.replace(
        manifest, fallbacks=(dataclasses.replace(fallback, reasons=reasons),)
    )
    assert compared(manifest, renamed).fallbacks == ()
    first = dataclasses.replace(fallback.reasons[0], reason="it is of another type")
    changed = dataclasses.replace(
        manifest,
        fallbacks=(dataclasses.replace(fallback, reasons=(first, *fallback.reasons[1:])),),
    )
    (change,) = compared(manifest, changed).fallbacks
    assert (change.change, change.reason_after) == ("reason", "it is of another type")


def test_circumstances_say_in_what_the_conversions_differ() -> None:
    other = dataclasses.replace(detector(), level="o0")
    assert compared(detector(), other).circumstances == ("level: o3 → o0",)


def test_a_report_is_read_back_as_it_was_written() -> None:
    report = Report.from_manifest(detector())
    assert read_report(report.to_json().encode(), "r.json") == report
    with pytest.raises(UsageError, match=r"r\.json: is no report of this version: headline"):
        read_report(b"{}", "r.json")
    with pytest.raises(UsageError, match="Invalid JSON"):
        read_report(b"{", "r.json")
