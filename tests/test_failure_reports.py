"""What is shown of a failed test."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.failure_reports import FIRST, LAST, shorten, shortened

LOUD = "for i in range(3000): print('line', i)\nraise ValueError('the end')"


def _shown(function: object) -> str:
    """What pytest prints of a function that fails, after its own tests' reports were shortened."""
    assert callable(function)
    with pytest.raises(Exception) as caught:  # noqa: PT011  whatever it raises
        function()
    report = pytest.TestReport(
        "test", ("file.py", 1, "test"), {}, "failed", caught.getrepr(style="long"), "call"
    )
    report.sections.append(("Captured stdout call", "\n".join(f"said {i}" for i in range(3000))))
    shorten(report, caught.value)
    return "\n".join([str(report.longrepr), *(text for _, text in report.sections)])


def _asserting() -> None:
    done = subprocess.run([sys.executable, "-c", LOUD], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _checking() -> None:
    subprocess.run([sys.executable, "-c", LOUD], capture_output=True, check=True)


@pytest.mark.parametrize("function", [_asserting, _checking])
def test_the_end_of_what_a_process_said_is_shown_and_not_all(function: object) -> None:
    shown = _shown(function)
    assert "ValueError: the end" in shown
    assert "said 2999" in shown
    assert "line 2999" in shown
    assert "line 1500" not in shown
    assert "said 1500" not in shown
    assert len(shown.splitlines()) < 500


def test_what_is_short_stays_whole() -> None:
    lines = [str(number) for number in range(FIRST + LAST + 1)]
    assert shortened(lines) == lines
    longer = shortened([*lines, "more"])
    assert longer[FIRST] == "... 2 lines are left out ..."
    assert (longer[0], longer[-1]) == ("0", "more")
