"""Data-parallel training steps of two processes against ``DistributedDataParallel`` of torch on gloo.

Both sides have two processes of one thread each, on one machine, with the same model, batch and optimizer.
A step is what ``benchmarks.training`` measures, with the reduction of all gradients. Sides take turns, and
wall times are compared, for it is waiting that overlap saves.

Modes differ by a percent or two at most, where a process that has run for a minute is as much faster than one
that has just started. So both sides of such a pair are started anew, several times, and the table has a control:
``normal`` against itself, measured in the same way, whose upper quartile is what a mode that is no slower stays
below.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.table import Row
from benchmarks.turns import Side, ratio, restarted_ratios

MODELS = ("gpt2_small", "resnet18")
LEVELS = ("o3", "o1")
"""At o3 backward and optimizer of these models are a section each; at o1 there is something to overlap."""


def rows(folder: Path, *, quick: bool = False, turns: int = 9) -> Iterator[Row]:
    """Yield ratios of time per step.

    Args:
        folder: Where PEFs may be written.
        quick: The first model and level only.
        turns: How often the sides take turns.

    Yields:
        For each model, a row against torch, and for each level one of the control and one for each mode
        that overlaps, against the plainest.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in MODELS[: 1 if quick else None]:
        what = f"data-parallel step, 2 processes: {name}"
        with _side("normal", name, folder) as normal, _side("ddp", name, folder) as torch:
            value, seconds = ratio(normal, torch, turns, turn_seconds=1.0)
        note = f"({1e3 * seconds:.3g} ms per step of torch)"
        yield Row(what, "DistributedDataParallel", value, 1.0, note)
        for level in LEVELS[: 1 if quick else None]:
            yield from _modes(name, level, folder, turns)


def _modes(name: str, level: str, folder: Path, turns: int) -> Iterator[Row]:
    what = f"data-parallel step, 2 processes: {name} at {level}"
    control = _ratios("normal", name, level, folder, turns)
    low, middle, high = statistics.quantiles(control, n=4)
    note = f"(the middle half: {low:.3g} to {high:.3g})"
    yield Row(f"{what}, control", "normal", middle, None, note)
    for mode in ("inorder", "optimal"):
        low, middle, upper = statistics.quantiles(_ratios(mode, name, level, folder, turns), n=4)
        note = f"(the middle half: {low:.3g} to {upper:.3g})"
        yield Row(f"{what}, {mode}", "normal", middle, round(max(1.0, high), 3), note)


def _ratios(mode: str, name: str, level: str, folder: Path, turns: int) -> list[float]:
    """Return the ratios of all turns of a mode against ``normal``."""
    ours, theirs = (partial(_side, f"{each}:{level}", name, folder) for each in (mode, "normal"))
    return restarted_ratios(ours, theirs, 2 * turns)


def _side(side: str, name: str, folder: Path) -> Side:
    module = "benchmarks.data_parallel_worker"
    level = side.partition(":")[2] or "o3"
    return Side(["-m", module, side, name, str(folder / f"{name}.{level}.pef")])
