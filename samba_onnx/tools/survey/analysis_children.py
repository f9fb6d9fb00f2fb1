"""Analyses of many models, each in a process of its own with limits, several at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from samba_onnx.cli.compile_options import variables
from samba_onnx.cli.display import write_file
from samba_onnx.compiling.settings_files import SETTINGS_VARIABLE
from samba_onnx.report.units import byte_text
from samba_onnx.safety.files import printable
from samba_onnx.safety.sandbox import child_environment, memory_for_a_child
from samba_onnx.safety.system import cause_of_death, kill_group, note_missing_protections

POLL_SECONDS = 0.05
_LONGEST = 500
_FAILED = ".failed.json"


@dataclass(frozen=True)
class Analysis:
    """One model to be analyzed for one target."""

    model: str
    """The model, as ``samba-port analyze`` takes it."""
    target: str
    """The target, as ``samba-port analyze`` takes it."""
    report: Path
    """Where the report in JSON belongs."""

    @property
    def failure(self) -> Path:
        """Where the error belongs if there is no report."""
        return self.report.with_suffix(_FAILED)

    @property
    def is_done(self) -> bool:
        """Whether there is a report."""
        return self.report.is_file()

    def error(self) -> str | None:
        """Return the error of a failure that is recorded; None if none is."""
        try:
            return str(json.loads(self.failure.read_bytes())["error"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def fail(self, error: str) -> None:
        """Record a failure.

        Args:
            error: Why there is no report, in one line.

        Raises:
            OutputError: The record cannot be written.
        """
        record = {"model": self.model, "target": self.target, "error": error}
        write_file(str(self.failure), (json.dumps(record, indent=2) + "\n").encode())


@dataclass(frozen=True)
class ChildLimits:
    """What analyses may take."""

    jobs: int
    """How many run at a time; 0 for one on each core."""
    seconds: float
    """Wall-clock time of each."""
    memory_bytes: int | None
    """Private memory of each; None for an even share of what is free."""

    def of_this_machine(self) -> ChildLimits:
        """Return the limits with what is not stated taken from this machine; no memory is no limit then."""
        count, size = self.jobs or os.cpu_count() or 1, self.memory_bytes
        if size is None:
            # An even share: analyses that run at once must not push each other out of memory.
            share = memory_for_a_child()
            size = None if share is None else share // count
        return ChildLimits(count, self.seconds, size)


def run_analyses(
    analyses: Sequence[Analysis],
    options: Sequence[str],
    limits: ChildLimits,
    progress: Callable[[int], None],
) -> None:
    """Analyze models; each leaves a report, or the record of its failure.

    Whatever ends this function, an interrupt included, ends the processes that still run.

    Args:
        analyses: What to analyze, in this order.
        options: Options that every ``samba-port analyze`` gets.
        limits: How many run at a time, and what each may take.
        progress: Called with the number of those that ended, after each.

    Raises:
        OutputError: The record of a failure cannot be written.
    """
    note_missing_protections()
    limits = limits.of_this_machine()
    waiting = deque(analyses)
    running: list[_Child] = []
    try:
        while waiting or running:
            while waiting and len(running) < limits.jobs:
                running.append(_Child(waiting.popleft(), options, limits))
            for child in [one for one in running if one.has_ended()]:
                running.remove(child)
                child.settle()
                progress(len(analyses) - len(waiting) - len(running))
            if running:
                time.sleep(POLL_SECONDS)
    finally:
        for child in running:
            child.kill()


class _Child:
    """A process that analyzes one model."""

    def __init__(self, analysis: Analysis, options: Sequence[str], limits: ChildLimits) -> None:
        self._analysis = analysis
        self._seconds = limits.seconds
        self._deadline = time.monotonic() + limits.seconds
        self._is_late = False
        size = limits.memory_bytes
        allowed = "" if size is None else f": --memory allows it {byte_text(size)}"
        self._scarcity = f"memory ran out{allowed}"
        self._noise: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by settle and kill
        cores = os.cpu_count() or 1
        # What the command line, variables and files of settings state together is in the options already.
        inherited, stated_elsewhere = child_environment(), variables()
        environment = {k: v for k, v in inherited.items() if k not in stated_elsewhere}
        environment[SETTINGS_VARIABLE] = "none"
        # All analyses together have as many threads as there are cores; what the user set stays.
        environment.setdefault("OMP_NUM_THREADS", str(max(cores // limits.jobs, 1)))
        # Processor time of all threads: only a last resort, in case this process is stopped.
        bounds = (os.getpid(), limits.memory_bytes or 0, int(limits.seconds * cores) + 10)
        # -P: a module in the user's folder must not be taken for one of the standard library.
        program = [sys.executable, "-P", "-m", "samba_onnx.cli.limited", *map(str, bounds)]
        stated = ["--target", analysis.target, "--json", str(analysis.report), "-q", *options]
        self._process = subprocess.Popen(
            [*program, "analyze", *stated, "--", analysis.model],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._noise,
            env=environment,
            # A group of its own, so that whatever it starts ends with it.
            start_new_session=True,
        )

    def has_ended(self) -> bool:
        """Return whether the process is gone; end it if its time is up."""
        if self._process.poll() is None and time.monotonic() > self._deadline:
            self._is_late = True
            self._end()
        return self._process.returncode is not None

    def settle(self) -> None:
        """Record the failure, or drop the record of an earlier one."""
        with self._noise:
            if self._process.returncode == 0 and self._analysis.is_done:
                self._analysis.failure.unlink(missing_ok=True)
                return
            error = self._error()
        self._analysis.fail(error)

    def kill(self) -> None:
        """End the process and all that it started."""
        self._end()
        self._noise.close()

    def _end(self) -> None:
        kill_group(self._process)
        self._process.wait()

    def _error(self) -> str:
        """Return why there is no report, in one line."""
        if self._is_late:
            return f"it took longer than {self._seconds:g} s and was stopped"
        self._noise.seek(0)
        lines = self._noise.read().decode("utf-8", "replace").splitlines()
        start = "samba-port analyze: "
        said = [line.removeprefix(start) for line in lines if line.startswith(start)]
        # What the command says goes before what libraries wrote on the way.
        if said:
            message = said[-1].removeprefix("error: ").removeprefix(f"{self._analysis.model}: ")
            return printable(message, _LONGEST)
        code = self._process.returncode
        last = next((line for line in reversed(lines) if line.strip()), "")
        if last:
            return printable(f"it ended with status {code}: {last}", _LONGEST)
        name, _ = cause_of_death(code)
        how = f"was killed ({name})" if name else f"died (status {code})"
        return f"its process {how} without a message, most likely because {self._scarcity}"
