"""What the commands show: on a terminal in colours, in a pipe without, and the same figures as in the log."""

from __future__ import annotations

import re

from samba_onnx.report.layout import render
from samba_onnx.tools.data_prep.data_text import decoded_text, metrics_table
from samba_onnx.tools.data_prep.decoding import DecodedSequence, Stretch
from samba_onnx.tools.data_prep.metrics import Metrics, metrics_text
from tests.tools.data_prep.test_metrics import COUNTS

SEQUENCES = (
    DecodedSequence(
        7,
        (
            Stretch("prompt", 10, "a\x1b["),
            Stretch("completion", 2, "[b] " * 10),
            Stretch("separator", 1, "<|end|>"),
            Stretch("padding", 113, ""),
        ),
    ),
    DecodedSequence(8, (Stretch("prompt", 4, "c"),)),
)
PLAIN = """\
Sequence 7
  prompt       10  a\\x1b[
  completion    2  [b] [b] [b] [b] [b]
                   [b] [b] [b] [b] [b]
  separator     1  <|end|>
  padding     113
Sequence 8
  prompt  4  c
"""
STYLES = {
    "Sequence": "1",
    "  prompt": "36",
    "  completion": "32",
    "  separator": "1;35",
    "  padding": "2",
}


def test_the_table_is_that_of_the_log() -> None:
    metrics = {"train": COUNTS, "dev": Metrics()}
    table = render(metrics_table("8 articles", metrics))
    logged = [line.rstrip() for line in metrics_text(metrics).splitlines()]
    assert table.splitlines() == ["8 articles", "", *logged]
    lines = render(metrics_table("8 articles", metrics), width=80, color=True).splitlines()
    assert lines[0] == "\x1b[1m8 articles\x1b[0m"
    assert re.sub(r"\x1b\[1m[^\x1b]*\x1b\[0m", "", lines[2]) == ""
    assert "\x1b" not in "".join(lines[3:])


def test_a_stretch_is_a_row_in_the_colour_of_its_type() -> None:
    coloured = render(decoded_text(SEQUENCES), width=40, color=True)
    assert [line.rstrip() for line in re.sub(r"\x1b\[[\d;]*m", "", coloured).splitlines()] == PLAIN.splitlines()  # fmt: skip
    for line in coloured.splitlines():
        styles = re.findall(r"\x1b\[([\d;]+)m([^\x1b]*)\x1b\[0m", line)
        name = styles[0][1].rstrip()
        for style, _ in styles:
            # Of a row that goes on in the next line, that has the text alone.
            assert style == STYLES.get(re.sub(" [78]$", "", name), "32"), line
        assert len(styles) == (1 if name.startswith(("Sequence", "[b]")) else 2)


def test_in_a_pipe_a_stretch_is_a_line() -> None:
    assert render(decoded_text(SEQUENCES)).splitlines()[2] == "  completion    2  " + " ".join(["[b]"] * 10)  # fmt: skip
