"""One file: what is told, what is logged, and what is left beside the result."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from samba_onnx.data_prep import PreparationOptions, data_prep
from samba_onnx.tools.data_prep.metrics import metrics_text
from samba_onnx.version import __version__
from tests.tools.data_prep.building import write
from tests.tools.data_prep.test_runs import Listener
from tests.tools.data_prep.tokenizers_of_tests import gpt2_like

LINES = ['{"completion": "fox"}', "oops", '{"completion": "the \\ud800 fox"}']
OPTIONS = PreparationOptions(max_seq_length=8, ignore_input_format_error=True)


class Totals(Listener):
    """A reporter that remembers how much there was said to be."""

    def __init__(self) -> None:
        super().__init__()
        self.totals: list[int | None] = []

    def begin(self, step: str, total: int | None = None) -> None:
        super().begin(step, total)
        self.totals.append(total)


def entries(log: Path) -> list[str]:
    """Lines of a log without their times."""
    return [line.split(" ", 2)[2] if line[:2] == "20" else line for line in log.read_text().splitlines()]  # fmt: skip


def test_the_log_says_what_was_done_with_what(tmp_path: Path) -> None:
    source, target = write(tmp_path / "corpus.jsonl", LINES), tmp_path / "out" / "a.hdf5"
    listener = Totals()
    result = data_prep(source, target, gpt2_like(), OPTIONS, listener)
    assert result.output == str(target)
    skipped = tmp_path / "out" / "json_error_log" / "a.log"
    warnings = [
        "bytes or characters that are not UTF-8 in 1 line: U+FFFD stands in their place",
        f"skipped 1 line that could not be read: see {skipped}",
    ]
    assert listener.warnings == warnings
    reason = "this is no JSON: Expecting value: line 1 column 1 (char 0)"
    assert entries(tmp_path / "out" / "logs.log") == [
        f"INFO samba-onnx {__version__} prepares {source} as {target}",
        f"INFO settings: {OPTIONS}",
        f"WARNING line 2 skipped: {reason}",
        *(f"WARNING {warning}" for warning in warnings),
        "INFO metrics",
        *metrics_text({"a": result.metrics}).splitlines(),
    ]


def test_progress_is_told_in_bytes_of_the_file(tmp_path: Path) -> None:
    source, listener = write(tmp_path / "corpus.jsonl", LINES), Totals()
    data_prep(source, None, gpt2_like(), OPTIONS, listener, log_file_path=tmp_path / "my.log")
    size = source.stat().st_size
    assert (listener.steps, listener.totals) == (["tokenizing and packing"], [size])
    assert (listener.size, listener.articles) == (size, 3)
    assert sorted(os.listdir(tmp_path)) == ["corpus.hdf5", "corpus.jsonl", "json_error_log", "my.log"]  # fmt: skip


def test_an_error_is_the_last_that_is_logged(tmp_path: Path) -> None:
    source = write(tmp_path / "corpus.jsonl", LINES)
    with pytest.raises(ValueError, match="oops"):
        data_prep(source, None, gpt2_like(), reporter=Refusing())
    assert entries(tmp_path / "logs.log")[-1] == "ERROR ended by ValueError: oops"
    assert not (tmp_path / "corpus.hdf5").exists()


class Refusing(Listener):
    def begin(self, step: str, total: int | None = None) -> None:
        raise ValueError("oops")
