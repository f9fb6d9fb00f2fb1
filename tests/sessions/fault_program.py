"""A training of several replicas in which one does what its command line says: ``HOW PEF``."""

from __future__ import annotations

import os
import signal
import sys
import time

import sambaflow.samba as samba
import torch
import torch.distributed as dist
from torch import nn


class Net(nn.Module):
    """One layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the mean loss of a batch."""
        return nn.functional.cross_entropy(self.layer(x), y)


def say(text: str) -> None:
    """Print a line in one piece, which those of other replicas do not divide."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def fail(how: str) -> None:
    """Do what a replica should not do."""
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how.startswith("stop"):
        os.kill(os.getpid(), signal.SIGSTOP)
    elif how == "raise":
        raise ValueError("no good")
    elif how == "exit":
        os._exit(0)
    elif how == "end":
        sys.exit(0)
    elif how == "hang":
        time.sleep(1000)
    elif how == "orphan":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(1000)


def main(how: str, pef: str) -> None:
    """Compile, or train until a replica fails."""
    if not how.startswith("compile"):
        dist.init_process_group("mpi")
    torch.manual_seed(0)
    batch = 4
    if how == "compile other" or (how == "differ" and dist.get_rank() == 1):
        batch, pef = 8, f"{pef}.other"
    model = Net()
    samba.from_torch_model_(model)
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    x = samba.randn(batch, 6, name="x", batch_dim=0)
    y = samba.randint(3, (batch,), name="y", batch_dim=0)
    if how.startswith("compile"):
        samba.session.compile(model, (x, y), optimizer, output=pef, check=False)
        return
    rank = dist.get_rank()
    samba.session.atexit_register(say, f"handler {rank}")
    samba.utils.trace_graph(model, (x, y), optimizer, pef=pef)
    for step in range(3):
        samba.session.run((x, y), model.output_tensors, data_parallel=True)
        if step == 0:
            # Not after the last step: one that is slow may hear of the failure while it waits in that.
            say(f"pid {os.getpid()}")
    if rank == 1:
        fail(how)
    if how == "stop torch":
        dist.all_reduce(torch.ones(2))
    samba.session.run((x, y), model.output_tensors, data_parallel=True)
    say(f"done {rank}")


if __name__ == "__main__":
    if sys.argv[1].startswith("abexit "):
        samba.session.use_abexit(main, sys.argv[1].removeprefix("abexit "), sys.argv[2])
    main(sys.argv[1], sys.argv[2])
