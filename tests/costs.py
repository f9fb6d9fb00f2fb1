"""What tests cost: processor seconds of a row of each dear function, measured, and kept in ``costs.tsv``.

Which tests the default command runs, and which rows of large tables CI takes, follows from it: no test says so itself.
``python -m tests.costs [PATH ...]`` runs tests, measures them and writes the file anew; functions that did not run keep their row.
"""

from __future__ import annotations

import collections
import contextlib
import math
import os
import resource
import subprocess
import sys
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

FILE = Path(__file__).with_suffix(".tsv")

DEAR = 0.05
"""Seconds of a row from which on the default command leaves a function out: 94 % of the rows cost less, and a seventh of the time."""

REPRESENTATIVE = 2.0
"""Seconds that the one dear row which the default command runs of a file may take."""

TABLE = 10.0
"""Seconds that CI spends on the rows of one function."""


class Cost(NamedTuple):
    """Processor seconds of a function's rows."""

    mean: float
    most: float
    """Of one row: the first one that runs makes the fixtures that all share."""


def function_of(node: str) -> str:
    """Return the function of a test's row.

    Args:
        node: As pytest names a test, ``tests/test_x.py::test_a[row]``.
    """
    return node.split("[", maxsplit=1)[0]


def read_costs(file: Path = FILE) -> dict[str, Cost]:
    """Return what the functions cost that are dear."""
    rows = (line.split("\t") for line in file.read_text().splitlines())
    return {function: Cost(float(mean), float(most)) for function, mean, most in rows}


def write_costs(costs: Mapping[str, Cost], file: Path = FILE) -> None:
    """Write the functions that are dear, with two digits: more would differ in every measurement."""
    rows = (
        f"{function}\t{cost.mean:.2g}\t{cost.most:.2g}\n"
        for function, cost in sorted(costs.items())
        if cost.mean >= DEAR or cost.most > REPRESENTATIVE
    )
    file.write_text("".join(rows))


def slow_rows(nodes: Iterable[str], costs: Mapping[str, Cost]) -> set[str]:
    """Return the tests that the default command leaves to CI: those of dear functions, but for one of each file.

    That one is the first row of the file's cheapest dear function: a file that is broken as a whole is seen at once.
    """
    dear = collections.defaultdict[str, list[str]](list)
    for node in nodes:
        if function_of(node) in costs:
            dear[node.split("::")[0]].append(node)
    slow = set[str]()
    for rows in dear.values():
        cheapest = min(rows, key=lambda node: costs[function_of(node)].most)
        affordable = costs[function_of(cheapest)].most <= REPRESENTATIVE
        slow.update(node for node in rows if not affordable or node != cheapest)
    return slow


def rows_beyond(nodes: Iterable[str], costs: Mapping[str, Cost]) -> set[str]:
    """Return the rows that CI leaves out, so that no table costs more than `TABLE`: the others lie evenly in it."""
    tables = collections.defaultdict[str, list[str]](list)
    for node in nodes:
        tables[function_of(node)].append(node)
    beyond = set[str]()
    for function, rows in tables.items():
        mean = costs[function].mean if function in costs else 0.0
        every = math.ceil(mean * len(rows) / TABLE)
        beyond.update(node for place, node in enumerate(rows) if every and place % every)
    return beyond


def _processor_seconds() -> float:
    """Return what this process and all that it started have used, whether they ended or wait for their next job."""
    used = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    total = sum(one.ru_utime + one.ru_stime for one in used)
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total


class Meter:
    """A plugin of pytest that measures the tests of a run, in whichever process they run."""

    def __init__(self) -> None:
        self._started = 0.0
        self._seconds = dict[str, float]()
        self._skipped = set[str]()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        """Note when a test began, with its fixtures."""
        self._started = _processor_seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Let the last report of a test carry its seconds: reports are what comes back from other processes."""
        report = yield
        if call.when == "teardown":
            report.user_properties.append(("processor", _processor_seconds() - self._started))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the seconds of a test that ran; one that was skipped says nothing of what it costs."""
        if report.skipped:
            self._skipped.add(report.nodeid)
        for name, value in report.user_properties:
            if (
                name == "processor"
                and isinstance(value, float)
                and report.nodeid not in self._skipped
            ):
                self._seconds[report.nodeid] = value

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write what the functions cost that ran; what did not run keeps its row."""
        if hasattr(session.config, "workerinput"):
            return
        rows = collections.defaultdict[str, list[float]](list)
        for node, seconds in self._seconds.items():
            rows[function_of(node)].append(seconds)
        measured = {one: Cost(sum(each) / len(each), max(each)) for one, each in rows.items()}
        write_costs({**read_costs(), **measured})


if os.environ.get("SAMBA_TESTS_MEASURE"):
    # pytest takes an instance's hooks only from a plugin that registers it.
    def pytest_configure(config: pytest.Config) -> None:
        """Measure in this process."""
        config.pluginmanager.register(Meter())


if __name__ == "__main__":
    arguments = sys.argv[1:] or ["-m", "not exhaustive"]
    command = [sys.executable, "-m", "pytest", "-n", "2", "-p", "tests.costs", *arguments]
    sys.exit(subprocess.run(command, env={**os.environ, "SAMBA_TESTS_MEASURE": "1"}).returncode)
