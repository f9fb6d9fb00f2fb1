"""The first line of a report."""

from __future__ import annotations

import dataclasses

import pytest

import samba_onnx
from models.cache import cached_onnx
from samba_onnx.pef.changes import Bound
from samba_onnx.pef.dimensions import BoundDimension
from samba_onnx.pef.manifest import Call, Manifest
from samba_onnx.pef.stage_records import SectionTime
from samba_onnx.report import Report
from samba_onnx.report.units import second_text
from tests.report.samples import all_on_rdu, detector


def _headline(manifest: Manifest) -> str:
    return Report.from_manifest(manifest).headline


def test_time_comes_first_then_what_fell_back() -> None:
    assert _headline(detector()) == (
        "detector.onnx [batch dynamic] → sn40l: at least 93 µs per run (modelled without 1 node on the CPU), "
        "81 % of it transfers between host and RDU; 7 of 9 nodes (77.8 %) and 100 % of the work on the RDU, "
        "2 fall back to the CPU in 1 place (3 transfers, 202 kB)"
    )


def test_a_model_that_runs_whole() -> None:
    assert _headline(all_on_rdu()) == (
        "mlp.onnx [1x16] → sn40l: 20 µs per run (modelled), all of it transfers between host and RDU; "
        "all 3 nodes on the RDU in 1 section"
    )


def test_shares_never_round_to_all() -> None:
    manifest = detector()
    many = dataclasses.replace(manifest.sections[0], operators={"Conv": 99_998})
    line = _headline(dataclasses.replace(manifest, sections=(many, *manifest.sections[1:])))
    assert "(99.9 %)" in line


def test_no_nodes_have_no_time() -> None:
    manifest = all_on_rdu()
    graph = dataclasses.replace(manifest.graphs[0], calls=(), run_transfers=())
    empty = dataclasses.replace(manifest, sections=(), graphs=(graph,))
    assert _headline(empty).endswith(
        "no nodes are left after conversion: outputs are inputs or constants"
    )


def _on_cpu() -> Manifest:
    manifest = detector()
    graph = dataclasses.replace(
        manifest.graphs[0], calls=(Call(0, 1),), run_transfers=(), boundaries=()
    )
    return dataclasses.replace(manifest, sections=(), graphs=(graph,))


def test_a_model_on_the_cpu_alone() -> None:
    assert _headline(_on_cpu()) == (
        "detector.onnx [batch dynamic] → sn40l: at least 14 µs per run (modelled without 1 node on the CPU), "
        "all of it the CPU; nothing runs on the RDU: all 2 nodes fall back to the CPU"
    )


def test_a_time_that_nobody_can_model_is_none() -> None:
    manifest = _on_cpu()
    (fallback,) = manifest.fallbacks
    unknown = dataclasses.replace(fallback, seconds=0.0, unmodelled=2)
    line = _headline(dataclasses.replace(manifest, fallbacks=(unknown,)))
    assert "→ sn40l: the time per run is not modelled; nothing runs on the RDU" in line


@pytest.mark.parametrize(
    ("nms", "words"),
    [(9e-3, "90 % of it NonMaxSuppression on the CPU"), (4e-3, "99 % of it the CPU")],
)
def test_one_operator_is_named_where_it_takes_most_of_the_cpus_time(nms: float, words: str) -> None:
    manifest = detector()
    (fallback,) = manifest.fallbacks
    first, second = fallback.reasons
    slow = dataclasses.replace(
        fallback,
        reasons=(dataclasses.replace(first, seconds=nms), second),
        seconds=9.92e-3,
        unmodelled=0,
    )
    assert words in _headline(dataclasses.replace(manifest, fallbacks=(slow,)))


def test_what_goes_on_beside_something_else_is_no_share() -> None:
    manifest = all_on_rdu()
    section = dataclasses.replace(
        manifest.sections[0], seconds=30e-6, time=SectionTime(launch=2e-6, compute=28e-6)
    )
    target = dataclasses.replace(manifest.target, overlaps_to_rdu=True, overlaps_to_host=True)
    report = Report.from_manifest(dataclasses.replace(manifest, sections=(section,), target=target))
    time = report.modelled_time
    share = 28e-6 / time.total_seconds
    assert (
        f"{second_text(time.total_seconds)} per run (modelled), {share * 100:.0f} % of it computing"
        in report.headline
    )


def test_the_bound_stands_where_it_is_less() -> None:
    manifest = detector()
    for seconds, ends in ((57e-6, "; all on the RDU it would be 57 µs"), (1.0, "202 kB)")):
        bound = Bound(manifest.graphs[0].name, 2, 100, seconds)
        assert _headline(dataclasses.replace(manifest, bounds=(bound,))).endswith(ends)


def test_assumed_sizes_are_told_apart() -> None:
    manifest = dataclasses.replace(
        all_on_rdu(),
        bound_dimensions=(
            BoundDimension("main", "batch", ("x[0]",), 8, False, "--dim batch=8"),
            BoundDimension("main", "tokens", ("x[1]",), 128, True, "--dim tokens=128"),
            BoundDimension("main", "", ("x[2]",), 1, True, "--input-shape x=?,?,1"),
        ),
    )
    assert _headline(manifest).startswith("mlp.onnx [batch 8; assumed: tokens 128, x[2] 1] → ")


def test_control_characters_are_escaped() -> None:
    manifest = all_on_rdu()
    source = dataclasses.replace(manifest.source, name="\x1b[31mred\n.onnx")
    line = _headline(dataclasses.replace(manifest, source=source))
    assert line.isprintable()
    assert line.startswith("\\x1b[31mred\\n.onnx [1x16] → ")


@pytest.mark.parametrize("rules", [[], ["all"]])
def test_the_time_is_that_of_a_run(rules: list[str]) -> None:
    model = cached_onnx("lstm", "tiny")
    manifest = samba_onnx.analyze(model, no_legalise=rules)
    report = Report.from_manifest(manifest)
    assert f" → sn40l: {second_text(report.modelled_time.total_seconds)} per run" in report.headline


def test_several_sizes_are_counted_once() -> None:
    model = cached_onnx("lstm", "tiny", dynamic=True)
    one = samba_onnx.analyze(model, dims={"batch": 4, "sequence": 8})
    two = samba_onnx.analyze(model, dims={"batch": (1, 4), "sequence": 8})
    (*_, nodes), (*_, counted) = _headline(one).split("; "), _headline(two).split("; ")
    assert "[batch 1 or 4, sequence 8]" in _headline(two)
    assert counted == nodes  # as many nodes, in as many sections
    (*_, forced), (*_, both) = (
        _headline(samba_onnx.analyze(model, dims=dims, no_legalise=["all"])).split(": ")[1:]
        for dims in ({"batch": 4, "sequence": 8}, {"batch": (1, 4), "sequence": 8})
    )
    # Behind the time, which says that there are two graphs.
    assert both.partition("; ")[2] == forced.partition("; ")[2]
