"""What each of several processes does: it loads a checkpoint as all of them do, and trains from there.

``torchrun --nproc-per-node 3 -m tests.sambaflow.replicas_program FOLDER`` leaves what replica N has
in ``FOLDER/end.N``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist

import samba_onnx as samba
from samba_onnx.errors import UsageError
from samba_onnx.sambaflow.samba.utils.checkpoint import load_sharded_checkpoint
from tests.sambaflow.test_checkpoint import X, reference

STEPS = 4


def batches(replicas: int) -> torch.Tensor:
    """Return the batches of all replicas, joined, for each step."""
    generator = torch.Generator().manual_seed(2)
    return torch.randn(STEPS, len(X) * replicas, X.shape[1], generator=generator)


def main() -> None:
    """Train as one of the replicas."""
    folder = Path(sys.argv[1])
    dist.init_process_group("gloo")
    rank, replicas = dist.get_rank(), dist.get_world_size()
    network = reference(rank)
    samba.from_torch_model_(network)
    optimizer = samba.optim.SGD(network.parameters(), lr=0.1)
    inputs = (samba.from_torch_tensor(X, name="x"),)
    pef = str(folder / "m.pef")
    outputs = samba.utils.trace_graph(network, inputs, optimizer, pef=pef)

    def step(number: int) -> None:
        own = batches(replicas)[number].chunk(replicas)[rank]
        samba.session.run(
            [samba.from_torch_tensor(own, name="x")],
            outputs,
            data_parallel=True,
            reduce_on_rdu=number % 2 == 1,
            data_parallel_mode=("normal", "inorder", "optimal")[number % 3],
        )

    step(0)
    load_sharded_checkpoint(network, folder / ("saved" if rank else "other"))
    refusal = ""
    try:
        step(1)
    except UsageError as error:
        refusal = str(error)
    load_sharded_checkpoint(network, folder / "saved")
    samba.session.transfers.reset()
    for number in range(STEPS):
        step(number)
    records = samba.session.transfers.records
    samba.session.to_cpu(network)
    end = {
        "refusal": refusal,
        "parameters": {n: samba.to_torch(p).detach() for n, p in network.named_parameters()},
        "transfers": [
            (m.symbol, m.bytes, m.direction.value) for m in records if m.cause == "reduce"
        ],
    }
    torch.save(end, folder / f"end.{rank}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
