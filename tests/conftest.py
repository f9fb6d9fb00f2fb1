"""What all tests share: threads that do not fight, and counts that are printed at the end."""

from __future__ import annotations

import collections
import os
import signal

import pytest

# Two spinning thread pools in one process starve each other.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# Under a background shell or nohup these are ignored, and children inherit that: the processes that
# tests interrupt would not notice.
for number, action in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, action)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how much of the ONNX backend suite was seen, counts and passed."""
    counts: collections.Counter[str] = collections.Counter()
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            for name, value in getattr(report, "user_properties", ()):
                if name == "backend_suite":
                    counts.update(value)
    if counts:
        terminalreporter.write_line(
            f"ONNX backend suite: {counts['passed']} of the {counts['onnxruntime']} cases that "
            f"onnxruntime passes also pass as a PEF on the emulator ({counts['seen']} cases seen)"
        )


SLOW_FOLDERS = frozenset({"architectures", "generation", "training"})
"""Whole networks, run for minutes: the fast tests of their rooms are in ``export`` and ``sessions``."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is slow as a whole."""
    for item in items:
        if item.path.parent.name in SLOW_FOLDERS:
            item.add_marker(pytest.mark.slow)
