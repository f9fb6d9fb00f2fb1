"""One side of an inference benchmark, in a process of its own.

``python -m benchmarks.inference_worker SIDE MODEL BATCH THREADS PEF``. The side ``ours`` compiles the
PEF.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

import models
from benchmarks.turns import serve
from models.example import Example


def main() -> None:
    """Prepare one side, and run it whenever asked to."""
    side, name, batch, threads = sys.argv[1:5]
    torch.set_num_threads(int(threads))
    example = models.find(name)("full")
    specs = tuple(spec.with_batch(int(batch)) for spec in example.specs)
    serve(lambda: SIDES[side](replace(example, specs=specs)))


def ours(example: Example) -> Callable[[], object]:
    """Return a run of ``samba.session.run`` with inputs and outputs on the host."""
    import samba_onnx as samba

    path = sys.argv[5]
    model = example.module
    samba.from_torch_model_(model)
    inputs = {n: samba.from_torch_tensor(t, name=n) for n, t in example.inputs.items()}
    samba.session.compile(model, inputs, output=path, check=False)
    outputs = samba.utils.trace_graph(model, inputs, pef=path)
    given = list(inputs.values())
    return lambda: samba.session.run(given, outputs)


def eager(example: Example) -> Callable[[], Tensor]:
    """Return the module as it is called by default, with what autograd notes for a backward."""
    inputs = example.inputs
    return lambda: example.module(**inputs)


def without_gradients(example: Example) -> Callable[[], Tensor]:
    """Return the module under ``torch.no_grad()``."""
    inputs = example.inputs

    def step() -> Tensor:
        with torch.no_grad():
            result: Tensor = example.module(**inputs)
        return result

    return step


def compiled(example: Example) -> Callable[[], Tensor]:
    """Return what ``torch.compile`` makes of the module, under ``torch.no_grad()``."""
    example.module.compile()
    return without_gradients(example)


SIDES: dict[str, Callable[[Example], Callable[[], object]]] = {
    "ours": ours,
    "eager": eager,
    "no_grad": without_gradients,
    "compile": compiled,
}
"""By name; each returns a step."""

if __name__ == "__main__":
    main()
