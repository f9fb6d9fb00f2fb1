"""Training steps of ``samba.session.run`` against eager torch and ``torch.compile``.

Each side runs in a process of its own, and the processes take turns; the ratio is taken turn by
turn. On one thread it is the ratio of CPU times, which other work on the machine hardly disturbs;
on more threads of wall times. A step is inputs to the device, FWD, BCKWD, OPT and the loss to the
host; in torch forward, backward and ``optimizer.step()`` with ``foreach=True``.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.table import Row, geometric_mean

MODELS = ("lenet", "resnet18", "gpt2_small", "bert_small")
"""Those of the geometric mean."""
RECURRENT = "lstm"
QUICK = ("lenet", RECURRENT)
AIM = 0.85
AIMS: Mapping[str, float] = {"resnet18": 1.0, RECURRENT: 1.5}
LARGE = ("gpt2", "gpt2_batch4")
"""Those whose peak memory is measured."""


def rows(folder: Path, *, quick: bool = False, turns: int = 9) -> Iterator[Row]:
    """Yield ratios of time per step, and of peak memory.

    Args:
        folder: Where PEFs may be written.
        quick: Two small models on one thread only, no ``torch.compile`` and no memory.
        turns: How often the sides take turns.

    Yields:
        One row per model, number of threads and baseline.
    """
    folder.mkdir(parents=True, exist_ok=True)
    baselines = ["eager"]
    if not quick and shutil.which(os.environ.get("CXX", "g++")):
        baselines.append("compile")
    for threads in (1,) if quick else (1, 2):
        ratios: list[float] = []
        for name in QUICK if quick else (*MODELS, RECURRENT):
            for row in _steps(name, threads, baselines, folder, turns):
                if name in MODELS and row.baseline == "eager torch":
                    ratios.append(row.ratio or 1.0)
                yield row
        if not quick:
            what = f"training step, {_threads(threads)}: geometric mean"
            yield Row(what, "eager torch", geometric_mean(ratios), AIM)
    if not quick:
        yield from _memory(folder)


class TrainingProcess:
    """One side, waiting for its turn."""

    def __init__(self, side: str, model: str, threads: int, pef: Path) -> None:
        """Start the side, and wait until it has made one step."""
        module = "benchmarks.training_worker"
        command = [sys.executable, "-m", module, side, model, str(threads), str(pef)]
        # Threads that wait must not take the cores away from the other side.
        environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self._clock = 1 if threads == 1 else 0
        self.seconds = self._answer()[1]
        """CPU time of preparing and the first step."""

    def time(self, steps: int) -> float:
        """Return the seconds that some steps take: CPU time on one thread, else wall time."""
        return self._ask(str(steps))[self._clock]

    def peak(self) -> float:
        """Return the peak of resident memory so far, in bytes."""
        return self._ask("peak")[0]

    def _ask(self, line: str) -> list[float]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> list[float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a worker died with {self._process.wait()}")
        return [float(number) for number in line.split()]

    def __enter__(self) -> TrainingProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def _steps(
    name: str, threads: int, baselines: list[str], folder: Path, turns: int
) -> Iterator[Row]:
    pef = folder / f"{name}.pef"
    with TrainingProcess("ours", name, threads, pef) as ours:
        for baseline in baselines:
            what = f"training step, {_threads(threads)}: {name}"
            aim = AIMS.get(name) if baseline == "eager" else None
            with TrainingProcess(baseline, name, threads, pef) as theirs:
                ratio, seconds = _ratio(ours, theirs, turns)
            note = f"({1e3 * seconds:.1f} ms per step of torch)"
            yield Row(what, _TITLES[baseline], ratio, aim, note)


def _ratio(
    ours: TrainingProcess, theirs: TrainingProcess, turns: int, turn_seconds: float = 0.4
) -> tuple[float, float]:
    ours.time(2)
    once = theirs.time(2) / 2
    steps = max(1, round(turn_seconds / once))
    pairs = [(ours.time(steps), theirs.time(steps)) for _ in range(turns)]
    seconds = statistics.median(their for _, their in pairs) / steps
    return statistics.median(our / their for our, their in pairs), seconds


def _memory(folder: Path) -> Iterator[Row]:
    """Yield peak memory of whole processes, which have made three steps."""
    for name in LARGE:
        pef = folder / f"{name}.pef"
        # The first one compiles.
        peaks = {title: _peak(side, name, pef) for title, side in _MEMORY_SIDES}
        theirs = peaks["eager torch"]
        note = f"({theirs / 1e9:.2f} GB of torch)"
        for title in ("compiled in the process", "compiled before"):
            what = f"peak memory of training {name}, {title}"
            aim = 1.0 if title == "compiled before" else None
            yield Row(what, "eager torch", peaks[title] / theirs, aim, note)


_TITLES = {"eager": "eager torch", "compile": "torch.compile"}
_MEMORY_SIDES = (
    ("compiled in the process", "ours"),
    ("compiled before", "ours"),
    ("eager torch", "eager"),
)


def _peak(side: str, name: str, pef: Path) -> float:
    with TrainingProcess(side, name, 2, pef) as process:
        process.time(2)
        return process.peak()


def _threads(threads: int) -> str:
    return "1 thread" if threads == 1 else f"{threads} threads"
