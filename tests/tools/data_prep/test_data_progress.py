"""The bar of data preparation, by a clock of its own."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from samba_onnx.tools.data_prep import data_progress
from samba_onnx.tools.data_prep.data_progress import DataProgress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A terminal, and a time that tests set."""
    clock = SimpleNamespace(now=100.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(data_progress, "time", clock)
    monkeypatch.setattr(data_progress, "REFRESH_SECONDS", 0.25)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    return clock


def shown(progress: DataProgress) -> Any:
    """The only step that is shown."""
    assert progress._progress is not None
    (task,) = progress._progress.tasks
    return task.description, task.completed, task.total, task.fields["rate"]


def test_a_bar_is_updated_now_and_then(clock: SimpleNamespace) -> None:
    with DataProgress("command") as progress:
        clock.now = 200.0
        progress.begin("splitting", 1000)
        assert shown(progress) == ("splitting", 0, 1000, "")
        progress.advance(10, 3)  # no time has passed
        assert shown(progress) == ("splitting", 10, 1000, "3,000 articles/s")
        clock.now = 202.0
        progress.advance(240, 2997)
        assert shown(progress) == ("splitting", 250, 1000, "1,500 articles/s")
        clock.now = 202.125
        progress.advance(100, 1000)
        assert shown(progress) == ("splitting", 250, 1000, "1,500 articles/s")
        clock.now = 202.25
        progress.advance(50, 500)
        assert shown(progress) == ("splitting", 400, 1000, "2,000 articles/s")
        clock.now = 202.375
        progress.advance(50, 500)


def test_a_step_takes_the_place_of_the_one_before(clock: SimpleNamespace) -> None:
    with DataProgress("command") as progress:
        progress.advance(5, 5)  # before any step
        progress.begin("splitting", 1000)
        progress.advance(70, 7)
        clock.now = 110.0
        progress.begin("[b]packing")
        assert shown(progress) == ("[b]packing", 0, None, "")
        clock.now = 112.0
        progress.advance(30, 8)
        assert shown(progress) == ("[b]packing", 30, None, "4 articles/s")


def test_a_bar_says_what_how_much_and_how_fast(
    capfd: pytest.CaptureFixture[str], clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)  # that of capfd
    with DataProgress("command") as progress:
        progress.begin("[b]packing", 1000)
        clock.now = 102.0
        progress.advance(250, 8)
        assert progress._progress is not None
        progress._progress.refresh()
    printed = capfd.readouterr()
    assert printed.out == ""
    last = re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", printed.err).strip().splitlines()[-1]
    assert re.fullmatch(
        r"\S \[b\]packing [\u2501\u2578\u257a]{24} 0\.2/1\.0 kB \S+( \S+)? 4 articles/s \S+ left",
        last.strip(),
    )
    assert printed.err.endswith("\x1b[2K")  # the line of the bar is empty again
    assert progress._progress is None


@pytest.mark.parametrize("how", ["quiet", "no terminal", "no stream"])
def test_without_a_terminal_there_is_no_bar(
    how: str,
    capfd: pytest.CaptureFixture[str],
    clock: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: how != "no terminal")
    if how == "no stream":
        monkeypatch.setattr(sys, "stderr", None)
    with DataProgress("command", how == "quiet") as progress:
        progress.begin("splitting", 10)
        clock.now = 300.0
        progress.advance(5, 5)
        assert progress._progress is None
    assert capfd.readouterr() == ("", "")


def test_warnings_are_written_unless_nothing_may_be(capfd: pytest.CaptureFixture[str]) -> None:
    DataProgress("command", True).warn("look\nhere")
    DataProgress("command", True, True).warn("nobody hears")
    assert capfd.readouterr() == ("", "command: look here\n")
