"""Operations and bytes of a step, counted in torch: ``python -m benchmarks.work training NAME`` or ``forward NAME BATCH``.

Operations are those of products and convolutions. Bytes are what must move at least: weights, and in training gradients and
the states of optimizers, each read and written; values within a network, which caches may hold, are not counted.
"""

from __future__ import annotations

import functools
import json
import math
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks.machine import Work


@functools.cache
def work(*arguments: str) -> Work:
    """Return the work of a step, counted once in a process of its own.

    Args:
        *arguments: ``training`` and a model, or ``forward``, a model and a batch size.
    """
    command = [sys.executable, "-m", "benchmarks.work", *arguments]
    return Work(**json.loads(subprocess.check_output(command, text=True)))


def main() -> None:
    """Count, and print the fields of a ``Work``."""
    kind, *arguments = sys.argv[1:]
    flops, moved = _training(arguments[0]) if kind == "training" else _forward(*arguments)
    print(json.dumps({"flops": flops, "bytes": moved}))


def _training(name: str) -> tuple[float, float]:
    import torch

    from benchmarks.training_models import TRAININGS
    from benchmarks.training_worker import torch_step

    training = TRAININGS[name]
    model = training.build().train()
    optimizer = training.optimize(torch.optim, model)
    flops = _counted(torch_step(model, optimizer, training.draw()))
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    values = (v for state in optimizer.state.values() for v in state.values())
    states = sum(v.numel() * v.element_size() for v in values if isinstance(v, torch.Tensor))
    return flops, 2.0 * (2 * weights + states)


def _forward(name: str, batch: str) -> tuple[float, float]:
    import models

    example = models.find(name)("full")
    specs = tuple(spec.with_batch(int(batch)) for spec in example.specs)
    example = replace(example, specs=specs)
    inputs = example.inputs
    flops = _counted(lambda: example.module(**inputs))
    return flops, float(sum(p.numel() * p.element_size() for p in example.module.parameters()))


def _counted(step: Callable[[], object]) -> float:
    """Return the operations of a step, with layers of mkldnn taken apart, which the counter does not know."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    gradients = {torch.ops.aten.convolution_backward: _of_gradients}
    counter = FlopCounterMode(display=False, custom_mapping=gradients)
    with warnings.catch_warnings():
        # The context sets flags of other processors, too, and torch warns of each.
        warnings.simplefilter("ignore")
        with torch.backends.mkldnn.flags(enabled=False), counter:
            step()
    return float(counter.get_total_flops())


def _of_gradients(*shapes: Any, **_: object) -> int:
    """Return the operations of a convolution's gradients: as many as its own for input and weight each.

    The counter's own formula takes every group for all of them.
    """
    over, data, weight, *_bias_and_window, transposed, _padding, _groups, mask = shapes
    positions = (data if transposed else over)[2:]
    once = 2 * math.prod(weight) * data[0] * math.prod(positions)
    return int(once * sum(mask[:2]))


if __name__ == "__main__":
    main()
