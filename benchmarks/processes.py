"""Commands as whole processes: CPU time and peak memory by the operating system's own account."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Usage:
    """What one command used, its child processes included."""

    cpu_seconds: float
    wall_seconds: float
    peak_bytes: int
    """Largest resident set of any one process."""


def measure(command: Sequence[str], *, repeat: int = 1) -> Usage:
    """Run a command and return the median of what its runs used.

    Args:
        command: The command and its arguments; what it prints is thrown away.
        repeat: How often to run it.

    Returns:
        Medians over the runs, figure by figure.

    Raises:
        RuntimeError: The command fails; the message carries the end of its error output.
    """
    runs = [_once(command) for _ in range(repeat)]
    return Usage(
        statistics.median(run.cpu_seconds for run in runs),
        statistics.median(run.wall_seconds for run in runs),
        int(statistics.median(run.peak_bytes for run in runs)),
    )


def python(code: str, *arguments: str) -> list[str]:
    """Return the command that runs ``code`` in this interpreter.

    Args:
        code: A program, as for ``python -c``.
        arguments: What it finds in ``sys.argv[1:]``.

    Returns:
        The command.
    """
    return [sys.executable, "-c", code, *arguments]


def _once(command: Sequence[str]) -> Usage:
    begin = time.perf_counter()
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        tail = errors.decode(errors="replace").strip()[-300:]
        raise RuntimeError(f"{command[:4]} ended with {process.returncode}: {tail}")
    return Usage(
        usage.ru_utime + usage.ru_stime, time.perf_counter() - begin, usage.ru_maxrss * 1024
    )
