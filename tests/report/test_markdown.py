"""Reports as Markdown, and what a job of GitHub is told."""

from __future__ import annotations

import dataclasses

from samba_onnx.pef.manifest import Manifest
from samba_onnx.report import Report
from samba_onnx.report.markdown import github_annotations, markdown_text
from samba_onnx.report.units import second_text
from tests.report.samples import all_on_rdu, detector


def test_the_first_lines_are_a_mark_and_the_headline() -> None:
    report = Report.from_manifest(all_on_rdu())
    mark, empty, headline, *rest = markdown_text(report).splitlines()
    assert mark == "<!-- samba-port mlp.onnx sn40l -->"
    assert empty == ""
    assert headline.startswith("**mlp.onnx \\[1x16\\] → sn40l: 20 µs per run (modelled)")
    assert second_text(report.modelled_time.total_seconds) in headline
    assert "### Why nodes fall back to the CPU" not in rest


def test_tables_have_as_many_cells_as_columns() -> None:
    text = markdown_text(Report.from_manifest(detector()))
    blocks = [block for block in text.split("\n\n") if block.startswith("|")]
    assert len(blocks) == 3  # facts, fallbacks, sections
    for block in blocks:
        counts = {line.replace("\\|", "").count("|") for line in block.splitlines()}
        assert len(counts) == 1, block


def _hostile() -> Manifest:
    manifest = detector()
    (fallback,) = manifest.fallbacks
    first, second = fallback.reasons
    evil = "<img src=x onerror=alert(1)> | @everyone `x` [a](javascript:b)\nnew"
    bad = dataclasses.replace(first, name=evil, reason=evil, hint=evil, location="")
    moved = dataclasses.replace(fallback, reasons=(bad, second), name=evil)
    source = dataclasses.replace(manifest.source, name=f"--> {evil}")
    return dataclasses.replace(manifest, fallbacks=(moved,), source=source)


def test_names_are_text_and_nothing_else() -> None:
    text = markdown_text(Report.from_manifest(_hostile()))
    for word in ("<img", "](javascript", "`x`"):
        for place in range(len(text)):
            if text.startswith(word, place):
                assert text[place - 1] == "\\", text[place - 20 : place + 20]
    assert text.count("-->") == 1
    assert "@" not in text


def test_annotations_are_of_the_users_lines_and_at_most_ten() -> None:
    report = Report.from_manifest(detector())
    assert github_annotations(report, "analyze") == [
        "::warning file=detector.py,line=41,title=falls back to the CPU::sn40l has no NonMaxSuppression: "
        "its result depends on the values of its inputs"
    ]
    manifest = detector()
    (fallback,) = manifest.fallbacks
    node = fallback.reasons[0]
    many = tuple(dataclasses.replace(node, location=f"a,b.py:{line}") for line in range(30))
    report = Report.from_manifest(
        dataclasses.replace(manifest, fallbacks=(dataclasses.replace(fallback, reasons=many),))
    )
    lines = github_annotations(report, "analyze")
    assert len(lines) == 10
    assert lines[0].startswith("::warning file=a%2Cb.py,line=0,")


def test_what_the_target_could_run_is_no_fault_of_a_line() -> None:
    manifest = detector()
    (fallback,) = manifest.fallbacks
    first, second = fallback.reasons
    chosen = dataclasses.replace(second, location="detector.py:50", supported=True)
    moved = dataclasses.replace(fallback, reasons=(first, chosen))
    report = Report.from_manifest(dataclasses.replace(manifest, fallbacks=(moved,)))
    (line,) = github_annotations(report, "analyze")
    assert "line=41" in line
