"""Processes that work on architectures, one after another."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Self, cast

from tests.architectures.catalogue import ARCHITECTURES
from tests.architectures.inference import compile_architecture, run_architecture
from tests.architectures.record import Architecture
from tests.architectures.training import train_architecture

_JOBS: Mapping[str, Callable[[Architecture, Path], Any]] = MappingProxyType(
    {"compile": compile_architecture, "run": run_architecture, "train": train_architecture}
)
_ROOT = Path(__file__).parents[2]


class WorkError(Exception):
    """A job failed in the worker; its message is that of the error there."""


class Worker:
    """A process that does jobs; started with the first one, and again if it dies."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            with contextlib.suppress(BrokenPipeError), self._process:
                cast("IO[str]", self._process.stdin).close()
            self._process = None

    def do(self, job: str, name: str) -> dict[str, Any]:
        """Do a job, and return the fields of what it returns.

        Args:
            job: ``compile``, ``run`` or ``train``.
            name: Of the architecture.

        Raises:
            WorkError: It failed.
        """
        process = self._started()
        stdin, stdout = cast("IO[str]", process.stdin), cast("IO[str]", process.stdout)
        stdin.write(f"{job} {name}\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            self.close()
            raise WorkError(f"the process ended with status {process.returncode}")
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise WorkError(answer["failed"])
        return answer

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.architectures.workers", str(self._folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=_ROOT,
                env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
            )
        return self._process


def main(folder: str) -> None:
    """Do the jobs that arrive on the standard input, and answer each with a line of JSON."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what models print goes elsewhere
    for line in sys.stdin:
        job, name = line.split()
        try:
            made = _JOBS[job](ARCHITECTURES[name], Path(folder))
            found = {**asdict(made), "passed": getattr(made, "passed", True)}
        except Exception as error:
            if "TRACEBACK" in os.environ:
                traceback.print_exc()
            found = {"failed": f"{type(error).__name__}: {error}"}
        for path in Path(folder).iterdir() if job != "compile" else ():
            path.unlink()
        answers.write(json.dumps(found) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1])
