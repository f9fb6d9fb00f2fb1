"""Data-parallel training steps of two processes against ``DistributedDataParallel`` of torch on gloo.

Both sides have two processes of one thread each, on one machine, with the same model, batch and optimizer.
A step is what ``benchmarks.training`` measures, with the reduction of all gradients. Sides take turns, and
wall times are compared, for it is waiting that overlap saves.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.table import Row
from benchmarks.turns import Side, ratio

MODELS = ("gpt2_small", "resnet18")


def rows(folder: Path, *, quick: bool = False, turns: int = 9) -> Iterator[Row]:
    """Yield ratios of time per step.

    Args:
        folder: Where PEFs may be written.
        quick: The first model only.
        turns: How often the sides take turns.

    Yields:
        For each model, one row against torch, and one for each mode against the plainest.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in MODELS[: 1 if quick else None]:
        what = f"data-parallel step, 2 processes: {name}"
        with _side("normal", name, folder) as normal:
            with _side("ddp", name, folder) as torch:
                value, seconds = ratio(normal, torch, turns, turn_seconds=1.0)
            note = f"({1e3 * seconds:.3g} ms per step of torch)"
            yield Row(what, "DistributedDataParallel", value, 1.0, note)
            for mode in ("inorder", "optimal"):
                with _side(mode, name, folder) as other:
                    value, _ = ratio(other, normal, turns, turn_seconds=1.0)
                yield Row(f"{what}, {mode}", "normal", value, 1.0)


def _side(side: str, name: str, folder: Path) -> Side:
    module = "benchmarks.data_parallel_worker"
    return Side(["-m", module, side, name, str(folder / f"{name}.pef")])
