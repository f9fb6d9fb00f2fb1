"""The report as text, compared whole."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from samba_onnx.pef.manifest import FallbackNode, Manifest
from samba_onnx.report import Report
from samba_onnx.report.layout import broken, render, table
from samba_onnx.report.terminal import summary
from samba_onnx.tools.inspect.inspect_text import details
from tests.report.samples import all_on_rdu, detector

GOLDEN = Path(__file__).with_name("detector.txt")
BRIEF = Path(__file__).with_name("detector_brief.txt")


def test_details_at_80_columns() -> None:
    text = render(details(Report.from_manifest(detector()), None), width=80)
    assert text == GOLDEN.read_text(encoding="utf-8")


def test_the_summary_at_80_columns() -> None:
    text = render(summary(Report.from_manifest(detector())), width=80)
    assert text == BRIEF.read_text(encoding="utf-8")


@pytest.mark.parametrize(("manifest", "most"), [(all_on_rdu(), 15), (detector(), 34)])
def test_a_pipe_gets_few_lines(manifest: Manifest, most: int) -> None:
    assert len(render(summary(Report.from_manifest(manifest))).splitlines()) <= most


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    text = render(details(Report.from_manifest(detector()), None), width=width)
    assert max(len(line) for line in text.splitlines()) <= width


def _with_reason(reason: str) -> Manifest:
    manifest = detector()
    node = FallbackNode("n" * 90, "Op", "", "operator", reason)
    fallback = dataclasses.replace(manifest.fallbacks[0], reasons=(node,))
    return dataclasses.replace(manifest, fallbacks=(fallback,))


def test_a_pipe_gets_reasons_in_one_line() -> None:
    reason = "because " + "very " * 60 + "long"
    text = render(summary(Report.from_manifest(_with_reason(reason))))
    assert f"    {reason}\n" in text
    assert f"    at {'n' * 90}\n" in text


def test_a_narrow_terminal_wraps_and_keeps_every_word() -> None:
    reason = " ".join(f"word{index}" for index in range(60))
    text = render(summary(Report.from_manifest(_with_reason(reason))), width=50)
    assert " ".join(text.split()).count(reason) == 1
    assert text.replace("\n", "").replace(" ", "").count("n" * 90) == 1


def test_a_name_cannot_steer_the_terminal() -> None:
    text = render(summary(Report.from_manifest(_with_reason("\x1b[2J[red]bold[/red] :smile:"))))
    assert "\x1b" not in text
    assert "\\x1b[2J[red]bold[/red] :smile:" in text


def test_color_only_on_request() -> None:
    report = Report.from_manifest(all_on_rdu())
    assert "\x1b[1m" in render(summary(report), width=80, color=True)
    assert "\x1b" not in render(summary(report), width=80)


def test_long_tables_say_how_much_is_left() -> None:
    rows = [(str(index),) for index in range(20)]
    text = render(table((">n",), rows, limit=5), width=80)
    assert text.splitlines()[-1] == "… and 15 more (-v shows all)"
    assert len(text.splitlines()) == 7
    assert len(render(table((">n",), rows), width=80).splitlines()) == 21


def test_one_row_more_than_the_limit_is_shown() -> None:
    rows = [(str(index),) for index in range(6)]
    assert "more" not in render(table((">n",), rows, limit=5), width=80)


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("short", 10, ["short"]),
        ("", 10, [""]),
        ("encoder.layers.3.self_attn_out", 16, ["encoder.layers.", "3.self_attn_out"]),
        ("h → encoder.layers.3", 18, ["h →", "encoder.layers.3"]),
        ("one two three", 8, ["one two", "three"]),
        ("/model/Conv_output_0, y", 12, ["/model/Conv_", "output_0, y"]),
        ("abcdefghij_k", 4, ["abcdefghij_", "k"]),
    ],
)
def test_names_break_between_their_words(text: str, width: int, lines: list[str]) -> None:
    assert broken(text, width) == lines


@pytest.mark.parametrize("width", [20, 33, 80])
def test_a_table_loses_nothing_of_long_names(width: int) -> None:
    names = ["encoder.layers.3.self_attn.out_proj.weight", "a" * 50, "x y z"]
    text = render(table(("name", ">bytes"), [(name, "1 MB") for name in names]), width=width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    shown = "".join(line.replace("1 MB", "").replace(" ", "") for line in lines[1:])
    assert shown == "".join(names).replace(" ", "")
