"""What two processes of ``torchrun`` train, and what one process of torch makes of the joined batch.

``torchrun --nproc-per-node 2 -m tests.sessions.replica_program FOLDER`` runs every scenario; replica
N leaves its parameters and more in ``FOLDER/SCENARIO.N``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

STEPS = 6
BATCH = 8
"""Samples of each replica."""


class Net(nn.Module):
    """Layers of several kinds, with one that is not trained and one that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(2, 4, 3)
        self.frozen = nn.Linear(64, 32)
        self.frozen.requires_grad_(requires_grad=False)
        self.twice = nn.Linear(32, 32)
        self.norm = nn.LayerNorm(32)
        self.outer = nn.Linear(32, 5)

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        """Return the mean loss of a batch."""
        x = self.frozen(torch.tanh(self.convolution(x)).flatten(1))
        x = self.norm(torch.tanh(self.twice(torch.tanh(self.twice(x)))))
        return nn.functional.cross_entropy(self.outer(x), label)


def one_optimizer(optim: Any, model: Net) -> list[Optimizer]:
    """Return AdamW for all."""
    return [optim.AdamW(model.parameters(), lr=0.01, betas=(0.9, 0.99), weight_decay=0.1)]


def two_optimizers(optim: Any, model: Net) -> list[Optimizer]:
    """Return one for one layer, and one for the others."""
    last = set(model.outer.parameters())
    rest = [one for one in model.parameters() if one not in last]
    return [
        optim.SGD(list(last), lr=0.1, momentum=0.9),
        optim.AdamW(rest, lr=0.01, betas=(0.9, 0.99), weight_decay=0.0),
    ]


@dataclass(frozen=True)
class Scenario:
    """A way to train."""

    optimizers: Callable[[Any, Net], list[Optimizer]] = one_optimizer
    runs: tuple[tuple[str, ...], ...] = ((),)
    """Section types of the runs that make a step; the first ones run for each batch."""
    batches: int = 1
    """Batches of a step, whose gradients add up."""
    norm: float | None = None
    """``max_grad_norm`` of the last optimizer."""
    dtype: torch.dtype = torch.float32
    """Type of parameters and inputs."""
    rounding: str | None = None
    """``stochastic_rounding`` of ``compile``."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """Of ``session.run``."""


SCENARIOS = {
    "normal": Scenario(),
    "inorder": Scenario(arguments={"data_parallel_mode": "inorder"}),
    "optimal": Scenario(arguments={"data_parallel_mode": "optimal"}),
    "rdu": Scenario(arguments={"reduce_on_rdu": True}),
    "two": Scenario(two_optimizers, norm=0.05, arguments={"reduce_on_rdu": True}),
    "apart": Scenario(two_optimizers, (("FWD", "BCKWD"), ("GRADNORM", "OPT")), norm=0.05),
    "bfloat16": Scenario(dtype=torch.bfloat16, arguments={"data_parallel_mode": "optimal"}),
    "rounded": Scenario(two_optimizers, dtype=torch.bfloat16, rounding="steps,gradients"),
    "added": Scenario(
        one_optimizer,
        (("fwd", "bckwd"), ("reduce", "opt", "zerograd")),
        batches=3,
        arguments={"reduce_on_rdu": True, "data_parallel_mode": "inorder"},
    ),
}
"""By name."""


def batches(scenario: Scenario, replicas: int) -> list[dict[str, Tensor]]:
    """Return the batches of all replicas, joined."""
    generator = torch.Generator().manual_seed(5)
    count = STEPS * scenario.batches
    x = torch.randn(count, BATCH * replicas, 2, 6, 6, generator=generator).to(scenario.dtype)
    label = torch.randint(5, (count, BATCH * replicas), generator=generator)
    return [{"x": one, "label": other} for one, other in zip(x, label, strict=True)]


def part(batch: dict[str, Tensor], rank: int) -> dict[str, Tensor]:
    """Return what a replica gets of a batch."""
    return {name: value[rank * BATCH : (rank + 1) * BATCH] for name, value in batch.items()}


def prepared(scenario: Scenario, seed: int) -> tuple[Net, list[Optimizer], dict[str, Any]]:
    """Return model, optimizers and inputs for ``compile`` and ``trace_graph``."""
    import samba_onnx as samba

    torch.manual_seed(seed)
    model = Net().train().to(scenario.dtype)
    samba.from_torch_model_(model)
    optimizers = scenario.optimizers(samba.optim, model)
    if scenario.norm is not None:
        optimizers[-1].max_grad_norm = scenario.norm  # type: ignore[attr-defined]
    first = part(batches(scenario, 2)[0], 0)
    inputs = {name: samba.from_torch_tensor(value, name=name) for name, value in first.items()}
    return model, optimizers, inputs


def compile_all(folder: Path) -> None:
    """Compile every scenario: one PEF, whatever the number of replicas."""
    import samba_onnx as samba

    for name, scenario in SCENARIOS.items():
        model, optimizers, inputs = prepared(scenario, 0)
        samba.session.compile(
            model,
            inputs,
            optimizers,
            output=folder / f"{name}.pef",
            config_dict={"gradient_accumulation": scenario.batches > 1},
            check=False,
            stochastic_rounding=scenario.rounding,
        )


def eager(scenario: Scenario, replicas: int) -> dict[str, Tensor]:
    """Return the parameters that torch trains in one process on the joined batches."""
    torch.manual_seed(0)
    model = Net().train().to(scenario.dtype)
    optimizers = scenario.optimizers(torch.optim, model)
    for number, batch in enumerate(batches(scenario, replicas), 1):
        model(**batch).backward()
        if number % scenario.batches:
            continue
        if scenario.norm is not None:
            clipped = optimizers[-1].param_groups[0]["params"]
            nn.utils.clip_grad_norm_(clipped, scenario.norm)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return {name: value.detach() for name, value in model.named_parameters()}


def train(scenario: Scenario, rank: int, replicas: int, pef: str) -> dict[str, Any]:
    """Return what one replica has in the end; each begins with other weights."""
    import samba_onnx as samba

    samba.session.reset()
    model, optimizers, inputs = prepared(scenario, rank)
    outputs = samba.utils.trace_graph(model, inputs, optimizers, pef=pef)
    step, transfers = scenario.runs, []
    if scenario.batches > 1:
        samba.session.run(data_parallel=True, section_types=["ZEROGRAD"])
    for number, batch in enumerate(batches(scenario, replicas), 1):
        before = len(samba.session.transfers)
        tensors = {
            name: samba.from_torch_tensor(value, name=name)
            for name, value in part(batch, rank).items()
        }
        for types in step if number % scenario.batches == 0 else step[:-1]:
            samba.session.run(
                tensors if types == step[0] else None,
                outputs if types == step[0] else (),
                data_parallel=True,
                section_types=types,
                **scenario.arguments,
            )
        transfers.append(samba.session.transfers.records[before:])
    samba.session.to_cpu(model, optimizers)
    return {
        "parameters": {n: samba.to_torch(p).detach() for n, p in model.named_parameters()},
        "states": [one.state_dict()["state"] for one in optimizers],
        "transfers": [
            [(move.direction.value, move.bytes) for move in some if move.cause == "reduce"]
            for some in transfers
        ],
    }


def main() -> None:
    """Train all scenarios as one of several replicas."""
    import torch.distributed as dist

    folder = Path(sys.argv[1])
    dist.init_process_group("gloo")
    rank, replicas = dist.get_rank(), dist.get_world_size()
    for name, scenario in SCENARIOS.items():
        torch.save(
            train(scenario, rank, replicas, str(folder / f"{name}.pef")), folder / f"{name}.{rank}"
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
