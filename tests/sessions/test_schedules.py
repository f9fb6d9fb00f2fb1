"""What is set on optimizers on the host counts on the device: torch's schedulers against torch.optim."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer, lr_scheduler, swa_utils

import samba_onnx as samba
from samba_onnx.errors import UsageError
from samba_onnx.sessions import SESSION, SambaSession

STEPS: Final = 9
# Nine steps of a layer of twelve weights, in another order of operations.
TOLERANCE: Final = {"rtol": 1e-5, "atol": 1e-6}

Make = Callable[[Optimizer], Any]


def _in_sequence(optimizer: Optimizer) -> Any:
    parts = [
        lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3),
        lr_scheduler.ExponentialLR(optimizer, 0.7),
    ]
    return lr_scheduler.SequentialLR(optimizer, parts, milestones=[4])


def _in_a_chain(optimizer: Optimizer) -> Any:
    parts = [
        lr_scheduler.ConstantLR(optimizer, 0.1, total_iters=4),
        lr_scheduler.ExponentialLR(optimizer, 0.9),
    ]
    return lr_scheduler.ChainedScheduler(parts)


SCHEDULERS: Final[Mapping[str, Make]] = {
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda step: 1 / (1 + step)),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda step: 0.8),
    "StepLR": lambda o: lr_scheduler.StepLR(o, 3, 0.1),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 5], 0.3),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, 0.25, total_iters=4),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, 0.1, total_iters=5),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.7),
    "SequentialLR": _in_sequence,
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 4, 0.001),
    "ChainedScheduler": _in_a_chain,
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, factor=0.2, patience=1),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.001, 0.1, step_size_up=3),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.2, total_steps=STEPS + 1),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 5, 2.0),
    "SWALR": lambda o: swa_utils.SWALR(o, swa_lr=0.3, anneal_epochs=4),
}
OPTIMIZERS: Final[Mapping[str, Callable[..., Any]]] = {
    "SGD": lambda library, parameters: library.SGD(parameters, lr=0.05, momentum=0.8),
    "AdamW": lambda library, parameters: library.AdamW(
        parameters, lr=0.02, betas=(0.8, 0.95), weight_decay=0.1
    ),
}
TABLE: Final = [
    pytest.param(
        scheduler, kind, marks=() if kind == list(OPTIMIZERS)[number % 2] else pytest.mark.slow
    )
    for number, scheduler in enumerate(SCHEDULERS)
    for kind in OPTIMIZERS
]


class Layer(nn.Module):
    """A layer and its cross entropy."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.layer(x), y)


class Twins:
    """A model on the device and the same in torch, fed with the same batches."""

    def __init__(self, kind: str, path: str) -> None:
        torch.manual_seed(0)
        self.model = Layer()
        self.twin = copy.deepcopy(self.model)
        samba.from_torch_model_(self.model)
        self.optimizer = OPTIMIZERS[kind](samba.optim, self.model.parameters())
        self.twin_optimizer = OPTIMIZERS[kind](torch.optim, self.twin.parameters())
        batch = (samba.SambaTensor(torch.randn(5, 4), name="x"),)
        batch += (samba.SambaTensor(torch.randint(3, (5,)), name="y"),)
        if not Path(path).exists():
            SESSION.compile(self.model, batch, self.optimizer, output=path)
        self.outputs = samba.utils.trace_graph(self.model, batch, self.optimizer, pef=path)

    def step(self, **options: Any) -> tuple[Tensor, Tensor]:
        """Make a step on both; returns both losses."""
        x, y = torch.randn(5, 4), torch.randint(3, (5,))
        inputs = (samba.SambaTensor(x, name="x"), samba.SambaTensor(y, name="y"))
        (loss,) = SESSION.run(inputs, self.outputs, **options)
        self.twin_optimizer.zero_grad()
        expected = self.twin(x, y)
        expected.backward()
        self.twin_optimizer.step()
        return samba.to_torch(loss), expected.detach()

    def check(self) -> None:
        SESSION.to_cpu(self.model)
        for one, other in zip(self.model.parameters(), self.twin.parameters(), strict=True):
            torch.testing.assert_close(one.data, other.data, **TOLERANCE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the PEFs are: one per kind of optimizer, compiled by the first who needs it."""
    return tmp_path_factory.mktemp("schedules")


@pytest.fixture
def twins(request: pytest.FixtureRequest, folder: Path, session: SambaSession) -> Twins:
    kind = request.param
    return Twins(kind, str(folder / f"{kind}.pef"))


def test_the_table_has_every_scheduler_of_torch() -> None:
    everything = {
        name
        for module in (lr_scheduler, swa_utils)
        for name, one in vars(module).items()
        if inspect.isclass(one)
        and issubclass(one, lr_scheduler.LRScheduler)
        and not name.startswith("_")
    }
    assert set(SCHEDULERS) == everything - {"LRScheduler"}


@pytest.mark.parametrize(("scheduler", "twins"), TABLE, indirect=["twins"])
def test_schedules_are_those_of_torch(scheduler: str, twins: Twins) -> None:
    schedules = [SCHEDULERS[scheduler](o) for o in (twins.optimizer, twins.twin_optimizer)]
    rates = set()
    for _ in range(STEPS):
        losses = twins.step()
        torch.testing.assert_close(*losses, **TOLERANCE)
        for schedule, loss in zip(schedules, losses, strict=True):
            metric = (loss.new_tensor(1.0),) if scheduler == "ReduceLROnPlateau" else ()
            schedule.step(*metric)
        rates.add(twins.optimizer.param_groups[0]["lr"])
    assert len(rates) > 1
    twins.check()


@pytest.mark.parametrize("twins", ["SGD"], indirect=True)
def test_the_last_one_who_sets_a_rate_wins(twins: Twins) -> None:
    def both(rate: float) -> None:
        for group in (*twins.optimizer.param_groups, *twins.twin_optimizer.param_groups):
            group["lr"] = rate

    twins.step()
    both(0.5)
    twins.step()
    twins.twin_optimizer.param_groups[0]["lr"] = 0.125
    twins.step(hyperparam_dict={"lr": 0.125})
    twins.step()  # a run's setting persists
    both(0.03)
    twins.step()
    twins.check()


@pytest.mark.parametrize("twins", ["AdamW"], indirect=True)
def test_all_that_a_step_reads_may_be_set(twins: Twins) -> None:
    twins.step()
    for group in (*twins.optimizer.param_groups, *twins.twin_optimizer.param_groups):
        group.update(lr=-0.01, betas=(0.5, 0.7), eps=1e-4, weight_decay=0.3)
    twins.step()
    twins.step()
    twins.check()


@pytest.mark.parametrize("twins", ["SGD"], indirect=True)
def test_state_that_is_loaded_on_the_host_brings_its_rate(twins: Twins) -> None:
    twins.step()
    for optimizer in (twins.optimizer, twins.twin_optimizer):
        state = optimizer.state_dict()
        state["param_groups"][0]["lr"] = 0.7
        optimizer.load_state_dict(state)
    twins.step()
    twins.check()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"nesterov": True}, "nesterov of SGD is True now, but it was compiled otherwise"),
        ({"maximize": True}, "maximize of SGD is True now"),
        ({"lr": float("nan")}, "lr of an optimizer is nan on the host"),
        ({"params": []}, "the groups of SGD have other parameters"),
    ],
)
@pytest.mark.parametrize("twins", ["SGD"], indirect=True)
def test_what_no_run_can_change_is_refused(
    twins: Twins, setting: dict[str, Any], message: str
) -> None:
    group = twins.optimizer.param_groups[0]
    before = dict(group)
    group.update(setting)
    with pytest.raises(UsageError, match=message):
        twins.step()
    group.update(before)
    twins.step()


@pytest.mark.parametrize("twins", ["AdamW"], indirect=True)
def test_a_beta_of_one_is_refused(twins: Twins) -> None:
    twins.optimizer.param_groups[0]["betas"] = (1.0, 0.9)
    with pytest.raises(UsageError, match=r"beta1 of an optimizer is 1\.0 .* from 0 to below 1"):
        twins.step()


@pytest.mark.parametrize("twins", ["AdamW"], indirect=True)
def test_a_largest_norm_cannot_be_set_where_none_was_compiled(twins: Twins) -> None:
    twins.optimizer.max_grad_norm = 1.0
    with pytest.raises(UsageError, match="compiled without one"):
        twins.step()


class Deep(nn.Module):
    """Two layers, for optimizers and groups of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.outer(torch.tanh(self.inner(x))), y)


def _groups(library: Any, model: Deep) -> list[Optimizer]:
    groups = [{"params": model.inner.parameters(), "lr": 0.1}, {"params": model.outer.parameters()}]
    return [library.SGD(groups, lr=0.01)]


def _two_kinds(library: Any, model: Deep) -> list[Optimizer]:
    return [
        library.SGD(model.inner.parameters(), lr=0.1, momentum=0.9, nesterov=True),
        library.Adam(model.outer.parameters(), lr=0.01, betas=(0.9, 0.99)),
    ]


def _tensor_rate(library: Any, model: Deep) -> list[Optimizer]:
    rate: Any = torch.tensor(0.05)
    return [library.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.99), weight_decay=0.1)]


@pytest.mark.parametrize("library", [samba.optim, torch.optim], ids=["samba", "torch"])
@pytest.mark.parametrize(
    ("make", "schedule"),
    [
        (_groups, lambda o: lr_scheduler.OneCycleLR(o, [0.3, 0.05], total_steps=STEPS)),
        (_two_kinds, lambda o: lr_scheduler.ExponentialLR(o, 0.6)),
        (_tensor_rate, lambda o: lr_scheduler.StepLR(o, 2, 0.5)),
    ],
)
def test_groups_and_optimizers_follow_schedules_of_their_own(
    library: Any, make: Any, schedule: Make, session: SambaSession, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = Deep()
    twin = copy.deepcopy(model)
    samba.from_torch_model_(model)
    optimizers, references = make(library, model), make(torch.optim, twin)
    example = (samba.randn(5, 4, name="x"), samba.randint(3, (5,), name="y"))
    path = session.compile(model, example, optimizers, output=tmp_path / "m.pef")
    outputs = samba.utils.trace_graph(model, example, optimizers, pef=path)
    schedules = [schedule(one) for one in (*optimizers, *references)]
    for _ in range(STEPS - 1):
        x, y = torch.randn(5, 4), torch.randint(3, (5,))
        session.run(samba.from_named_dict({"x": x, "y": y}), outputs)
        for reference in references:
            reference.zero_grad()
        twin(x, y).backward()
        for one in (*references, *schedules):
            one.step()
    session.to_cpu(model)
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(one.data, other.data, **TOLERANCE)
