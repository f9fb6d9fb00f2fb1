"""Counts of the operator database, printed at the end."""

from __future__ import annotations

import collections

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how much of torch's operator database was run."""
    counts: collections.Counter[str] = collections.Counter()
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            for name, value in getattr(report, "user_properties", ()):
                if name == "op_db":
                    counts.update(value)
    if counts:
        text = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
        terminalreporter.write_line(f"torch's operator database, equal to torch: {text}")
