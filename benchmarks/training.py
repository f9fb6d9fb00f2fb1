"""Training steps of ``samba.session.run`` against eager torch and ``torch.compile``.

Each side runs in a process of its own, and the processes take turns; the ratio is taken turn by
turn. On one thread it is the ratio of CPU times, which other work on the machine hardly disturbs;
on more threads of wall times. A step is a whole turn of a program's loop: the batch is wrapped by
``from_torch_tensor`` and goes to the device, FWD, BCKWD and OPT run with the hyperparameters, and
all outputs come to the host; in torch forward, backward and ``optimizer.step()``, with
``foreach=True`` but for a model of two parameters, which are updated more quickly one by one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from benchmarks.machine import machine
from benchmarks.table import Row, geometric_mean
from benchmarks.turns import Side, ratio
from benchmarks.work import work

MODELS = (
    "lenet",
    "resnet18",
    "resnet50",
    "mobilenet_v2",
    "mobilenet_v3",
    "efficientnet_b0",
    "convnext_atto",
    "unet",
    "wavenet",
    "gpt2_small",
    "bert_small",
    "vit_small",
    "gru",
)
"""Those of the geometric mean."""
RECURRENT = ("lstm", "lstm_128")
TINY = "logistic_regression"
"""At batch size 1, as the vendor's first example: what is around the operators is what takes long."""
QUICK = (TINY, "lenet", "lstm")
AIM = 0.8
COMPILED_AIM = 1.0
LARGE = ("gpt2", "gpt2_batch4")
"""Those whose peak memory is measured."""


def rows(folder: Path, *, quick: bool = False, turns: int = 9) -> Iterator[Row]:
    """Yield ratios of time per step, and of peak memory.

    Args:
        folder: Where PEFs may be written.
        quick: Three small models on one thread only, no ``torch.compile`` and no memory.
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
        for name in QUICK if quick else (TINY, *MODELS, *RECURRENT):
            for row in _steps(name, threads, baselines, folder, turns):
                if name in MODELS and row.baseline == "eager torch":
                    ratios.append(row.ratio or 1.0)
                yield row
        if not quick:
            what = f"training step, {_threads(threads)}: geometric mean"
            yield Row(what, "eager torch", geometric_mean(ratios), AIM)
    if not quick:
        yield from _memory(folder)


def _steps(
    name: str, threads: int, baselines: list[str], folder: Path, turns: int
) -> Iterator[Row]:
    pef = folder / f"{name}.pef"
    with _side("ours", name, threads, pef) as ours:
        for baseline in baselines:
            what = f"training step, {_threads(threads)}: {name}"
            aim = AIM if baseline == "eager" else COMPILED_AIM
            with _side(baseline, name, threads, pef) as theirs:
                value, seconds = ratio(ours, theirs, turns)
            note = f"({1e3 * seconds:.3g} ms per step of torch"
            if name in RECURRENT:
                note += f"; {ours.preparation:.1f} s from the module to the first step"
            note += ")"
            limit = work("training", name).seconds(machine(threads))
            yield Row(what, _TITLES[baseline], value, aim, note, seconds, limit)


def _side(side: str, name: str, threads: int, pef: Path) -> Side:
    module = "benchmarks.training_worker"
    return Side(["-m", module, side, name, str(threads), str(pef)], processor_time=threads == 1)


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
    with _side(side, name, 2, pef) as process:
        process.time(2)
        return process.peak()


def _threads(threads: int) -> str:
    return "1 thread" if threads == 1 else f"{threads} threads"
