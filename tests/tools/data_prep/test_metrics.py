"""Counts that are added up, and the figures in words that a run shows of them."""

from __future__ import annotations

import dataclasses

from samba_onnx.tools.data_prep.metrics import Metrics, metrics_text

COUNTS = Metrics(
    articles=8,
    sequences=1234,
    input_tokens=4000,
    prompt_tokens=1001,
    completion_tokens=2003,
    separator_tokens=11,
    padding_tokens=1996,
    articles_dropped=13,
    articles_truncated=17,
    tokens_dropped_from_packing=500,
    tokens_dropped_from_all_prompt=300,
    lines_skipped=19,
    lines_replaced=23,
)
TABLE = """\
                                   train  dev
Sequences                          1,234    0
Articles                               8    0
Input tokens                       4,000    0
Dataset tokens                     5,000    0
Prompt tokens                      1,001    0
Completion tokens                  2,003    0
Separators among them                 11    0
Padding tokens                     1,996    0
Average completion length         250.38    -
Average prompt length             125.12    -
Data utilization                 75.10 %    -
Articles dropped by packing           13    0
Articles truncated by packing         17    0
Tokens dropped by packing            500    0
Dropped from packing             12.50 %    -
Dropped from all prompt           7.50 %    -
Sequence utilization             60.08 %    -
Sequence completion utilization  40.06 %    -
Lines skipped                         19    0"""


def test_every_count_is_added_to_its_own() -> None:
    total = COUNTS + COUNTS + Metrics()
    assert dataclasses.astuple(total) == tuple(2 * n for n in dataclasses.astuple(COUNTS))


def test_metadata_has_nine_of_them() -> None:
    assert COUNTS.described() == {
        "input_tokens": 4000,
        "output_tokens": 5000,
        "prompt_tokens": 1001,
        "completion_tokens": 2003,
        "padding_tokens": 1996,
        "sequences": 1234,
        "articles": 8,
        "tokens_dropped_from_packing": 500,
        "tokens_dropped_from_all_prompt": 300,
    }


def test_a_table_has_a_column_for_each_kind_of_file() -> None:
    """Where there is nothing to divide by, no figure is made up."""
    text = metrics_text({"train": COUNTS, "dev": Metrics()})
    lines = [line.rstrip() for line in text.splitlines()]
    assert lines == [line.rstrip() for line in TABLE.splitlines()]
    alone = metrics_text({"train": COUNTS}).splitlines()
    assert alone == [line[:-5] for line in text.splitlines()]


def test_a_figure_of_one_is_a_figure() -> None:
    one = Metrics(articles=1, input_tokens=1, completion_tokens=1)
    figures = dict(one.rows())
    assert figures["Average completion length"] == "1.00"
    assert figures["Data utilization"] == figures["Sequence utilization"] == "100.00 %"
