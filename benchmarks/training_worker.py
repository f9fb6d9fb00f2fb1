"""One side of a training benchmark, in a process of its own.

``python -m benchmarks.training_worker SIDE MODEL THREADS PEF [PRECISION]``. The side ``ours`` compiles the PEF
unless it exists.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from benchmarks.training_models import TRAININGS, Training
from benchmarks.turns import serve


def main() -> None:
    """Prepare one side, and train whenever asked to."""
    side, name, threads = sys.argv[1:4]
    torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    serve(lambda: SIDES[side](TRAININGS[name]))


def eager(training: Training, *, compiled: bool = False) -> Callable[[], float]:
    """Return a step of eager torch, or of ``torch.compile``, that returns the loss."""
    model = training.build().train()
    optimizer = training.optimize(torch.optim, model, foreach=training.foreach)
    batch = training.draw()
    return torch_step(torch.compile(model) if compiled else model, optimizer, batch)


def torch_step(
    forward: Callable[..., Any], optimizer: Optimizer, batch: Mapping[str, Tensor]
) -> Callable[[], float]:
    """Return a step of torch that returns the loss.

    Args:
        forward: Computes the loss first, of the batch.
        optimizer: Updates the parameters.
        batch: Inputs by name, the same for every step.
    """

    def step() -> float:
        result = forward(**batch)
        loss: Tensor = result[0] if isinstance(result, tuple) else result
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        optimizer.step()
        return float(loss.detach())

    return step


def ours(training: Training) -> Callable[[], float]:
    """Return a step as programs make it, that returns the loss.

    It wraps the batch, runs with the hyperparameters and fetches all outputs.
    """
    import samba_onnx as samba

    path = sys.argv[4]
    model = training.build().train()
    batch = training.draw()
    samba.from_torch_model_(model)
    optimizer = training.optimize(samba.optim, model)
    inputs = {name: samba.from_torch_tensor(value, name=name) for name, value in batch.items()}
    if not Path(path).exists():
        precision = sys.argv[5] if len(sys.argv) > 5 else None
        samba.session.compile(
            model, inputs, optimizer, output=path, check=False, precision=precision
        )
    outputs = samba.utils.trace_graph(model, inputs, optimizer, pef=path)
    numbers = {"lr": optimizer.param_groups[0]["lr"]}

    def step() -> float:
        tensors = [samba.from_torch_tensor(value, name=name) for name, value in batch.items()]
        loss, *_ = samba.session.run(tensors, outputs, hyperparam_dict=numbers)
        return float(samba.to_torch(loss))

    return step


SIDES: dict[str, Callable[[Training], Callable[[], float]]] = {
    "ours": ours,
    "eager": eager,
    "compile": lambda training: eager(training, compiled=True),
}
"""By name; each returns a step."""

if __name__ == "__main__":
    main()
