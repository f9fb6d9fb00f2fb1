"""The steps that optimizers make on the device, counted against torch's own optimizers that make the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn

from samba_onnx.errors import UsageError
from samba_onnx.optim import (
    SGD,
    Adam,
    AdamW,
    OptimizerKind,
    OptimizerRecord,
    derive,
    optimizer_record,
)
from samba_onnx.sessions.optimizer_steps import (
    NO_SCALARS,
    OptimizerSteps,
    check_records,
    device_steps,
    fetch_state,
    send_state,
)
from tests.tensor.memory_store import attached

Options = dict[str, Any]
RULES: dict[str, tuple[Any, Any, list[Options]]] = {
    # Ours, torch's, and the groups: SGD counts the steps of those that have momentum.
    "adamw": (AdamW, torch.optim.AdamW, [{"lr": 0.01}, {"lr": 0.02, "betas": (0.8, 0.9)}]),
    "sgd": (SGD, torch.optim.SGD, [{"lr": 0.1, "momentum": 0.9}, {"lr": 0.2, "momentum": 0.0}]),
}


class Pair:
    """One of each rule, compiled, and torch's optimizers of as many parameters."""

    def __init__(self, *, host: bool) -> None:
        self.records: list[OptimizerRecord] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        self.torchs: list[torch.optim.Optimizer] = []
        self.initial: list[list[Options]] = []
        for number, (ours, torchs, groups) in enumerate(RULES.values()):
            weights = [nn.Parameter(torch.ones(2)) for _ in groups]
            filled = [
                {"params": [w], **options} for w, options in zip(weights, groups, strict=True)
            ]
            optimizer = ours(filled, lr=0.5)
            names = {f"w{number}{place}": weight for place, weight in enumerate(weights)}
            self.records.append(optimizer_record(optimizer, names=names, index=number))
            self.optimizers.append(optimizer)
            twins = [nn.Parameter(torch.ones(2)) for _ in groups]
            self.torchs.append(
                torchs([{"params": [w], **o} for w, o in zip(twins, groups, strict=True)], lr=0.5)
            )
        self.steps = OptimizerSteps(self.records, self.optimizers if host else ())

    def step(self) -> None:
        """Let torch's optimizers make a step."""
        for optimizer in self.torchs:
            for group in optimizer.param_groups:
                group["params"][0].grad = torch.ones(2)
            optimizer.step()

    def counts(self) -> list[tuple[int, ...]]:
        """Return what the state of each group of torch's optimizers stands for."""
        adam, sgd = self.torchs
        return [
            tuple(int(adam.state[g["params"][0]].get("step", 0)) for g in adam.param_groups),
            tuple(self._buffers(g) for g in sgd.param_groups),
        ]

    def _buffers(self, group: Options) -> int:
        """Steps that a buffer of momentum 0.9 sums up, of gradients that are all 1."""
        buffer = self.torchs[1].state[group["params"][0]].get("momentum_buffer")
        sums = [0.0]
        while buffer is not None and sums[-1] < float(buffer[0]) - 1e-6:
            sums.append(0.9 * sums[-1] + 1)
        return len(sums) - 1

    def scalars(self, later: int = 0) -> dict[str, float]:
        """Return the scalars of a step so many after the next one."""
        return {
            name: value
            for record, counts in zip(self.records, self.counts(), strict=True)
            for name, value in derive(record, {}, [one + 1 + later for one in counts]).items()
        }


@pytest.fixture(params=[True, False], ids=["with the host's", "alone"])
def pair(request: pytest.FixtureRequest) -> Pair:
    return Pair(host=request.param)


def test_steps_are_counted_as_torch_counts_them(pair: Pair) -> None:
    steps = pair.steps
    assert steps.argins({}, step=False) is NO_SCALARS
    for _ in range(3):
        assert steps.counts == pair.counts()
        scalars = steps.argins({}, step=True)
        assert scalars == pair.scalars()
        assert steps.argins({}, step=True) is scalars
        steps.keep()
        steps.stepped()
        pair.step()
    assert steps.counts == pair.counts() == [(3, 3), (3, 0)]
    assert steps.rounded == [0, 0]
    assert steps.steps_of() == {"optimizer0": 3, "optimizer1": 0}
    if pair.steps._optimizers:
        # Who asks the optimizer itself gets the same, also of a group that came later.
        pair.optimizers[0].add_param_group({"params": [nn.Parameter(torch.ones(1))]})
        assert [*map(device_steps, pair.optimizers)] == [(3, 3, 0), (3, 0)]


def test_a_run_of_mini_batches_makes_a_step_for_each(pair: Pair) -> None:
    scalars = pair.steps.argins({}, step=True, batches=3)
    singles = []
    for _ in range(3):
        singles.append(pair.scalars())
        pair.step()
    assert scalars == {name: [one[name] for one in singles] for name in singles[0]}
    pair.steps.stepped(3)
    assert pair.steps.counts == pair.counts()
    assert pair.steps.argins({}, step=True) == pair.scalars()
    assert pair.steps.argins({}, step=True, batches=1) == {
        name: [value] for name, value in pair.scalars().items()
    }


def test_what_a_run_sets_stays_set_once_it_succeeded(pair: Pair) -> None:
    key = next(key for key in pair.steps.keys if "lr" in key)
    assert pair.steps.understands(key)
    assert not pair.steps.understands("nothing")
    before = pair.steps.argins({}, step=True)
    changed = pair.steps.argins({key: 0.125}, step=True)
    assert changed != before
    # A run that failed sets nothing.
    assert pair.steps.argins({}, step=True) == before
    pair.steps.argins({key: 0.125}, step=True)
    pair.steps.keep()
    again = pair.steps.argins({key: 0.125}, step=True)
    assert again == changed
    assert pair.steps.argins({key: 0.125}, step=True) is again
    assert pair.steps.argins({}, step=True) == changed


def test_the_last_one_who_sets_a_rate_wins() -> None:
    pair = Pair(host=True)
    key = next(key for key in pair.steps.keys if "lr" in key)
    pair.steps.argins({key: 0.125}, step=True)
    pair.steps.keep()
    ran = pair.steps.argins({}, step=True)
    for group in pair.optimizers[1].param_groups:
        group["lr"] = 0.75
    scheduled = pair.steps.argins({}, step=True)
    names = {name for name, value in scheduled.items() if value != ran[name]}
    assert names
    assert all(name.startswith("optimizer1__") for name in names)
    assert 0.75 in scheduled.values()


def test_steps_that_round_are_those_of_sgd(pair: Pair) -> None:
    pair.steps.count_roundings()
    pair.steps.argins({}, step=True)
    pair.steps.stepped()
    pair.steps.stepped(2)
    assert pair.steps.rounded == [0, 3]
    assert pair.steps.steps_of() == {"optimizer0": 3, "optimizer1": 3}


def test_another_replicas_state_stands_for_its_steps(pair: Pair) -> None:
    pair.steps.resume_from([(7, 5), (2, 0)], [4, 6])
    assert pair.steps.counts == [(7, 5), (2, 0)]
    assert pair.steps.rounded == [0, 6]
    assert pair.steps.steps_of() == {"optimizer0": 7, "optimizer1": 6}


def test_what_the_host_has_is_what_the_device_resumes_from(pair: Pair) -> None:
    pair.steps.stepped(2)
    for optimizer in pair.optimizers:
        for group in optimizer.param_groups:
            group["params"][0].grad = torch.ones(2)
        optimizer.step()
    pair.step()
    pair.steps.resume()
    # The optimizers on the host made one step; where there are none, nothing tells of another state.
    assert pair.steps.counts == (pair.counts() if pair.steps._optimizers else [(2, 2), (2, 0)])


def test_an_optimizer_without_groups_makes_no_steps() -> None:
    steps = OptimizerSteps([OptimizerRecord(OptimizerKind.ADAM, "optimizer0", ())])
    assert steps.argins({}, step=True) == {}
    steps.stepped()
    assert steps.steps_of() == {"optimizer0": 0}


def described(*optimizers: Any) -> Sequence[OptimizerRecord]:
    weight = nn.Parameter(torch.ones(2))
    return [
        optimizer_record(kind([weight], lr=0.1, **options), names={"w": weight}, index=number)
        for number, (kind, options) in enumerate(optimizers)
    ]


PLAIN = (SGD, {})
OTHERS = {
    "a kind": ([(Adam, {})], "with Adam; it was traced with SGD:"),
    "how many": ([PLAIN, PLAIN], "with SGD, SGD; it was traced with SGD:"),
    "none": ([], "with no optimizer; it was traced with SGD:"),
    "a choice": (
        [(SGD, {"maximize": True, "momentum": 0.9, "nesterov": True})],
        r"with SGD\(maximize, nesterov\); it was traced with SGD:",
    ),
    "a norm": ([(SGD, {"max_grad_norm": 1.0})], r"with SGD\(max_grad_norm\); it was traced with SGD:"),
}  # fmt: skip


@pytest.mark.parametrize(("compiled", "complaint"), OTHERS.values(), ids=OTHERS.keys())
def test_other_optimizers_than_those_that_were_compiled_are_refused(
    compiled: list[Any], complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        check_records(described(*compiled), described(PLAIN))
    check_records(described(*compiled), [])
    check_records(described((SGD, {"momentum": 0.5})), described(PLAIN))


def test_state_goes_to_the_device_and_back_by_the_names_of_parameters() -> None:
    """torch's own parameters have no names; what the device has may go where the state is, or beside it."""
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adam([weight], lr=0.1)
    assert device_steps(optimizer) == (0,)
    for _ in range(2):
        weight.grad = torch.ones(2)
        optimizer.step()
    before = optimizer.state[weight]["exp_avg"]
    values = before.clone()
    places = {f"w__{key}": torch.zeros(2) for key in ("exp_avg", "exp_avg_sq")}
    with attached(**places) as store:
        send_state(optimizer, {"w": weight})
        assert device_steps(optimizer) == (2,)
        assert torch.equal(store.places["w__exp_avg"], values)
        before.zero_()
        fetch_state(optimizer, {"w": weight}, inplace=False)
        assert not before.any()
        assert torch.equal(optimizer.state[weight]["exp_avg"], values)
        optimizer.state[weight]["exp_avg"] = before
        fetch_state(optimizer, {"w": weight}, inplace=True)
        assert torch.equal(before, values)
