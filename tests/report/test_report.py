"""What the report adds up, and the line that it starts with."""

from __future__ import annotations

import dataclasses

import pytest

from samba_onnx.pef.manifest import (
    Call,
    Cause,
    Direction,
    FallbackNode,
    Manifest,
    Section,
)
from samba_onnx.report import Report
from tests.report.samples import LATENCY, LINK, detector


@pytest.fixture(scope="module")
def report() -> Report:
    return Report.from_manifest(detector())


def test_coverage(report: Report) -> None:
    coverage = report.coverage
    assert (coverage.rdu_nodes, coverage.cpu_nodes, coverage.cpu_places) == (7, 2, 1)
    assert coverage.rdu_flops == 8_201_000
    assert [row.operator for row in coverage.operators] == [
        "NonMaxSuppression",
        "ai.example::Clip2",
        "Conv",
        "Relu",
        "Softmax",
        "Reshape",
    ]
    conv = coverage.operators[2]
    assert (conv.rdu_nodes, conv.cpu_nodes, conv.rdu_flops) == (3, 0, 8_000_000)


def test_fallbacks_are_grouped_by_reason() -> None:
    manifest = detector()
    fallback = manifest.fallbacks[0]
    twin = dataclasses.replace(fallback.reasons[1], name="clip_again", location="detector.py:7")
    grouped = dataclasses.replace(fallback, reasons=(*fallback.reasons, twin))
    report = Report.from_manifest(dataclasses.replace(manifest, fallbacks=(grouped,)))
    assert [(reason.code, len(reason.nodes)) for reason in report.fallbacks] == [
        ("domain", 2),
        ("operator", 1),
    ]
    assert report.fallbacks[0].operators == {"ai.example::Clip2": 2}
    assert report.fallbacks[0].reasons == (fallback.reasons[1].reason,)
    assert [node.location for node in report.fallbacks[0].nodes] == ["", "detector.py:7"]


def test_one_dynamic_dimension_is_one_reason_for_all_operators() -> None:
    manifest = detector()
    nodes = tuple(
        FallbackNode(f"n{n}", operator, "", "dynamic_shape", f"{operator} is dynamic", "--dim b=1")
        for n, operator in enumerate(["Add", "Mul", "Add"])
    )
    fallback = dataclasses.replace(manifest.fallbacks[0], reasons=nodes)
    (reason,) = Report.from_manifest(dataclasses.replace(manifest, fallbacks=(fallback,))).fallbacks
    assert reason.operators == {"Add": 2, "Mul": 1}
    assert reason.reasons == ("Add is dynamic", "Mul is dynamic")
    assert [node.reason for node in reason.nodes] == [
        "Add is dynamic",
        "Mul is dynamic",
        "Add is dynamic",
    ]


def test_boundaries_know_their_direction(report: Report) -> None:
    assert [(line.direction, line.bytes) for line in report.boundaries] == [
        (Direction.RDU_TO_HOST, 200_000),
        (Direction.HOST_TO_RDU, 2_400),
    ]


def test_transfers_are_added_up_by_cause_and_direction(report: Report) -> None:
    totals = {(line.cause, line.direction): line for line in report.transfers_per_run}
    to_host = totals[Cause.FALLBACK, Direction.RDU_TO_HOST]
    assert (to_host.transfers, to_host.bytes) == (2, 200_000)
    assert to_host.modelled_seconds == pytest.approx(2 * LATENCY + 200_000 / LINK)
    assert sum(line.bytes for line in report.transfers_per_run) == 806_912
    assert [(line.cause, line.bytes) for line in report.transfers_at_load] == [
        (Cause.WEIGHT, 700_000)
    ]


def test_memory_counts_regions_once_and_the_largest_section(report: Report) -> None:
    used = {tier.tier: tier.used_bytes for tier in report.memory}
    assert used == {"sram": 1_300_000, "hbm": 1_504_512, "ddr": 0}


def test_modelled_time_counts_calls(report: Report) -> None:
    manifest = detector()
    graph = manifest.graphs[0]
    repeated = dataclasses.replace(graph, calls=(*graph.calls, Call(3, 2)))
    twice = Report.from_manifest(dataclasses.replace(manifest, graphs=(repeated,)))
    assert report.modelled_time.sections_seconds == pytest.approx(4.001e-6)
    assert twice.modelled_time.sections_seconds == pytest.approx(4.002e-6)
    assert report.modelled_time.total_seconds == pytest.approx(
        4.001e-6 + 14e-6 + 5 * LATENCY + 806_912 / LINK
    )
    assert report.modelled_time.cpu_seconds == 14e-6
    assert report.modelled_time.unmodelled_cpu_nodes == 1
    assert report.modelled_time.host == "bench"


def test_nodes_on_the_cpu_by_choice_are_counted_and_named() -> None:
    manifest = detector()
    (fallback,) = manifest.fallbacks
    first, second = fallback.reasons
    chosen = dataclasses.replace(second, supported=True, code="cheaper")
    moved = dataclasses.replace(fallback, reasons=(first, chosen))
    report = Report.from_manifest(dataclasses.replace(manifest, fallbacks=(moved,)))
    assert report.coverage.cpu_supported_nodes == 1
    assert "2 fall back to the CPU (1 of them to save time) in 1 place" in report.headline
    nodes = [node for group in report.fallbacks for node in group.nodes]
    assert [(node.name, node.supported, node.at_load) for node in nodes] == [
        ("nms", False, False),
        ("clip", True, False),
    ]


@pytest.mark.parametrize(
    ("at_load", "words"),
    [
        ((False, True), "(1 of them once, at load)"),
        ((True, False), "(1 of them to save time, 1 once, at load)"),
        ((True, True), "(2 of them once, at load)"),
    ],
)
def test_nodes_that_are_computed_at_load_are_told_apart(
    at_load: tuple[bool, bool], words: str
) -> None:
    manifest = detector()
    (fallback,) = manifest.fallbacks
    supported = (False, True)
    reasons = tuple(
        dataclasses.replace(node, supported=can, at_load=once)
        for node, can, once in zip(fallback.reasons, supported, at_load, strict=True)
    )
    moved = dataclasses.replace(fallback, reasons=reasons)
    report = Report.from_manifest(dataclasses.replace(manifest, fallbacks=(moved,)))
    assert report.coverage.cpu_load_nodes == sum(at_load)
    assert f"2 fall back to the CPU {words} in 1 place" in report.headline


def test_what_nobody_measured_of_the_host_is_an_assumption(report: Report) -> None:
    assert ("host.node_seconds", 2e-6, "s") in [
        (a.name, a.value, a.unit) for a in report.assumptions
    ]


def test_everything_is_added_up_over_all_graphs(report: Report) -> None:
    """A second graph with the same calls doubles all of it: what is looked at is no graph alone."""
    manifest = detector()
    first = manifest.graphs[0]
    second = dataclasses.replace(first, name="second")
    both = Report.from_manifest(dataclasses.replace(manifest, graphs=(first, second)))
    one, two = report.modelled_time, both.modelled_time
    assert two.sections_seconds == pytest.approx(2 * one.sections_seconds)
    assert two.transfers_seconds == pytest.approx(2 * one.transfers_seconds)
    assert two.total_seconds == pytest.approx(2 * one.total_seconds)
    assert two.load_seconds == pytest.approx(2 * one.load_seconds)
    assert len(both.boundaries) == 2 * len(report.boundaries)
    for totals in ("transfers_per_run", "transfers_at_load"):
        doubled = [2 * line.bytes for line in getattr(report, totals)]
        assert [line.bytes for line in getattr(both, totals)] == doubled
    assert [graph.name for graph in both.graphs] == ["main", "second"]


def test_undocumented_support_keeps_domains(report: Report) -> None:
    assert [(row.operator, row.evidence, row.nodes) for row in report.undocumented_support] == [
        ("ai.example::Gelu", "experimental", 2),
        ("Softmax", "assumed", 1),
    ]


def test_regions_list_the_symbols_that_share_them(report: Report) -> None:
    shared = next(region for region in report.regions if region.name == "activations.0")
    assert shared.symbols == ("scores", "kept")


def test_schedule_names_homes(report: Report) -> None:
    assert [(call.home, call.name) for call in report.graphs[0].schedule] == [
        ("rdu", "detector_0"),
        ("cpu", "detector_cpu_1"),
        ("rdu", "detector_2"),
    ]


def test_several_section_types(report: Report) -> None:
    manifest: Manifest = detector()
    backward = dataclasses.replace(manifest.sections[1], type="BCKWD")
    assert isinstance(backward, Section)
    changed = Report.from_manifest(
        dataclasses.replace(manifest, sections=(manifest.sections[0], backward))
    )
    assert [section.type for section in changed.sections] == ["FWD", "BCKWD"]
