"""One side of a data-parallel benchmark: two processes of one thread each, on one machine.

``python -m benchmarks.data_parallel_worker SIDE MODEL PEF`` starts the second one itself, with the same
words and the port at which they meet, and tells it of every step. The side ``normal``, like those of the
other modes, compiles the PEF unless it exists; ``normal:o0`` with a section for each operator, as ``alone:o0``
does, which is one process.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist

from benchmarks.training_models import TRAININGS, Training
from benchmarks.training_worker import torch_step
from benchmarks.turns import serve

MODES = ("normal", "inorder", "optimal")
ALONE = "alone"
Step = Callable[[], float]


def main() -> None:
    """Prepare one side, and train whenever asked to."""
    side, name, pef = sys.argv[1:4]
    mode, _, level = side.partition(":")
    torch.set_num_threads(1)
    if len(sys.argv) == 5:
        step = _prepared(side, name, pef, 1, int(sys.argv[4]))
        for _ in sys.stdin:
            step()
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    if mode in (ALONE, *MODES) and not Path(pef).exists():
        _compile(TRAININGS[name], pef, level or "o3")
    if mode == ALONE:
        serve(lambda: _prepared(side, name, pef, 0, port))
        return
    with _second(side, name, pef, port) as tell:
        serve(lambda: _together(tell, _prepared(side, name, pef, 0, port)))


def ddp(training: Training) -> Step:
    """Return a step of ``DistributedDataParallel`` that returns the loss."""
    model = torch.nn.parallel.DistributedDataParallel(
        training.build().train(), gradient_as_bucket_view=True
    )
    optimizer = training.optimize(torch.optim, model, foreach=training.foreach)
    return torch_step(model, optimizer, training.draw())


def ours(training: Training, pef: str, mode: str) -> Step:
    """Return a step as programs make it, that returns the loss."""
    import samba_onnx as samba

    model = training.build().train()
    batch = training.draw()
    samba.from_torch_model_(model)
    optimizer = training.optimize(samba.optim, model)
    inputs = {name: samba.from_torch_tensor(value, name=name) for name, value in batch.items()}
    outputs = samba.utils.trace_graph(model, inputs, optimizer, pef=pef)
    numbers = {"lr": optimizer.param_groups[0]["lr"]}

    def step() -> float:
        tensors = [samba.from_torch_tensor(value, name=name) for name, value in batch.items()]
        loss, *_ = samba.session.run(
            tensors,
            outputs,
            hyperparam_dict=numbers,
            data_parallel=True,
            reduce_on_rdu=True,
            data_parallel_mode=mode,
        )
        return float(samba.to_torch(loss))

    return step


def _prepared(side: str, name: str, pef: str, rank: int, port: int) -> Step:
    torch.manual_seed(rank)
    mode, size = side.partition(":")[0], 1 if side.startswith(ALONE) else 2
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=size)
    training = TRAININGS[name]
    if mode == ALONE:
        return ours(training, pef, MODES[0])
    return ours(training, pef, mode) if mode in MODES else ddp(training)


def _compile(training: Training, pef: str, level: str) -> None:
    import samba_onnx as samba

    model, batch = training.build().train(), training.draw()
    samba.from_torch_model_(model)
    optimizer = training.optimize(samba.optim, model)
    inputs = {name: samba.from_torch_tensor(value, name=name) for name, value in batch.items()}
    samba.session.compile(model, inputs, optimizer, output=pef, level=level, check=False)


@contextmanager
def _second(side: str, name: str, pef: str, port: int) -> Iterator[Callable[[], None]]:
    """Start the second process, and yield what lets it make a step."""
    command = [sys.executable, "-m", "benchmarks.data_parallel_worker", side, name, pef, str(port)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert process.stdin is not None
    pipe = process.stdin

    def tell() -> None:
        pipe.write(b"\n")
        pipe.flush()

    try:
        yield tell
    finally:
        process.kill()
        process.wait()


def _together(tell: Callable[[], None], step: Step) -> Step:
    def both() -> float:
        tell()
        return step()

    return both


if __name__ == "__main__":
    main()
