"""Inference by ``samba.session.run`` against the same forward in torch.

Inputs go to the device in every run, and all outputs come back to the host. Time on one thread is
CPU time, on more wall time.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.machine import machine
from benchmarks.table import Row
from benchmarks.turns import Side, ratio
from benchmarks.work import work


@dataclass(frozen=True)
class Forward:
    """A forward of one of the ``models``, and the aims by side."""

    model: str
    batch: int
    threads: int
    aims: Mapping[str, float]


LARGE = {"eager": 0.9, "no_grad": 0.9, "compile": 1.1}
FORWARDS = (
    Forward("logistic_regression", 1, 1, {"eager": 1.0, "no_grad": 1.0}),
    Forward("gpt2", 1, 2, LARGE),
    Forward("resnet50", 1, 2, LARGE),
)
TITLES = {
    "eager": "eager torch",
    "no_grad": "eager torch, no_grad",
    "compile": "torch.compile, no_grad",
}


def rows(folder: Path, *, quick: bool = False, turns: int = 15) -> Iterator[Row]:
    """Yield the ratio of time per run for each model and baseline.

    Args:
        folder: Where PEFs may be written.
        quick: The smallest model only.
        turns: How often the sides take turns.

    Yields:
        One row per model and baseline; none against ``torch.compile`` without a C++ compiler.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for forward in FORWARDS[:1] if quick else FORWARDS:
        with _side("ours", forward, folder) as ours:
            for baseline, aim in forward.aims.items():
                if baseline != "compile" or shutil.which(os.environ.get("CXX", "g++")):
                    yield _row(ours, baseline, aim, forward, folder, turns)


def _row(ours: Side, baseline: str, aim: float, forward: Forward, folder: Path, turns: int) -> Row:
    with _side(baseline, forward, folder) as theirs:
        value, seconds = ratio(ours, theirs, turns)
    threads = "1 thread" if forward.threads == 1 else f"{forward.threads} threads"
    what = f"session.run, batch {forward.batch}, {threads}: {forward.model}"
    note = f"({1e3 * seconds:.3g} ms per run of torch)"
    limit = work("forward", forward.model, str(forward.batch)).seconds(machine(forward.threads))
    return Row(what, TITLES[baseline], value, aim, note, seconds, limit)


def _side(side: str, forward: Forward, folder: Path) -> Side:
    numbers = (str(forward.batch), str(forward.threads))
    pef = str(folder / f"{forward.model}.pef")
    module = "benchmarks.inference_worker"
    return Side(
        ["-m", module, side, forward.model, *numbers, pef], processor_time=forward.threads == 1
    )
