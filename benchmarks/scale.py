"""Compilation at full size, without weights: CPU time, wall time and memory over the number of layers.

Every size is a process of one thread. A ratio is CPU seconds per layer against those of the smallest number of layers; the
exponent is the slope of a straight line through the logarithms of CPU seconds and layers, 1 where time grows linearly. Wall
time is that of a program which others disturb: it is stated, and judged at the largest size alone.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.table import Row

_SIZES = {False: (6, 12, 24, 48, 96), True: (6, 12)}
"""Layers; fewer if it is to be quick."""
_PROGRAMS = {
    "training step of GPT-2, 1600 wide": "sn30/gpt2/o3/1600x6",
    "token of Llama-3-70B on 8 RDUs": "sn40l/llama/token/llama-3-70b",
}
_MEMORY = 4e9
"""Bytes that a compilation may take."""
_SECONDS = 180.0
"""Wall-clock seconds that it may take."""


@dataclass(frozen=True)
class _Run:
    """One compilation."""

    cpu_seconds: float
    seconds: float
    peak: float
    """Bytes of resident memory."""
    sections: int

    def __str__(self) -> str:
        times = f"{self.cpu_seconds:.1f} s of CPU, {self.seconds:.1f} s"
        return f"({times}, {self.peak / 1e9:.2f} GB, {self.sections:,} sections)"


def rows(*, quick: bool) -> Iterator[Row]:
    """Return one row per program, level and number of layers, then the exponent, and time and peak of the largest.

    Args:
        quick: Only the smaller numbers of layers.
    """
    for what, name in _PROGRAMS.items():
        for level in ("o0", "o3"):
            runs = {layers: _measure(name, layers, level) for layers in _SIZES[quick]}
            yield from _rows(f"compile a {what}, {level}", runs)


def _rows(what: str, runs: dict[int, _Run]) -> Iterator[Row]:
    smallest = min(runs)
    base = runs[smallest].cpu_seconds / smallest
    for layers, run in runs.items():
        ratio = run.cpu_seconds / layers / base
        yield Row(f"{what}: a layer of {layers}", f"a layer of {smallest}", ratio, None, str(run))
    times = [(layers, run.cpu_seconds) for layers, run in runs.items()]
    yield Row(f"{what}: exponent of CPU time", "1", exponent(times), 1.05)
    largest = runs[max(runs)]
    yield Row(
        f"{what}: {max(runs)} layers, wall time", "3 minutes", largest.seconds / _SECONDS, 1.0
    )
    yield Row(f"{what}: {max(runs)} layers, peak memory", "4 GB", largest.peak / _MEMORY, 1.0)


def exponent(times: Sequence[tuple[int, float]]) -> float:
    """Return the slope of the line of least squares through the logarithms of pairs.

    Args:
        times: Number of layers and seconds.
    """
    points = [(math.log(layers), math.log(seconds)) for layers, seconds in times]
    x_mean = sum(x for x, _ in points) / len(points)
    y_mean = sum(y for _, y in points) / len(points)
    spread = sum((x - x_mean) ** 2 for x, _ in points)
    return sum((x - x_mean) * (y - y_mean) for x, y in points) / spread


def _measure(name: str, layers: int, level: str) -> _Run:
    command = [sys.executable, "-m", "benchmarks.scale_worker", name, str(layers), level]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise RuntimeError(f"{name} with {layers} layers: {done.stderr.strip()[-300:]}")
    cpu_seconds, seconds, peak, sections = done.stdout.split()
    return _Run(float(cpu_seconds), float(seconds), float(peak), int(sections))
