"""A repeated run and a first one: equal tensors, equal copies, and equal errors for every kind of wrong input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import samba_onnx as samba
from samba_onnx.errors import InputError, SambaError, UsageError
from samba_onnx.sessions import SambaSession
from tests.sessions.test_shortcuts import conjugate, taken

X = torch.tensor([[1.0, -2.0, 3.0], [0.5, 0.25, -1.0]])
Y = torch.tensor([1, 0])
LR = {"lr": 0.125}
Given = dict[str, Any]

REFUSED: dict[str, tuple[type[SambaError], Given, Given]] = {
    "another shape": (InputError, {"x": X[:1]}, LR),
    "another dtype": (InputError, {"x": X.double()}, LR),
    "a class that is too large": (InputError, {"y": torch.tensor([1, 4])}, LR),
    "a negative class": (InputError, {"y": torch.tensor([-1, 0])}, LR),
    "a wide integer": (InputError, {"y": torch.tensor([2**40, 0])}, LR),
    "an unknown name": (InputError, {"z": X}, LR),
    "a tensor without memory": (UsageError, {"x": torch.empty(2, 3, device="meta")}, LR),
    "a sparse tensor": (UsageError, {"x": X.to_sparse()}, LR),
    "a number that is none": (UsageError, {}, {"lr": "much"}),
    "a wrong input and a wrong number": (InputError, {"x": X[:1]}, {"lr": "much"}),
}
ACCEPTED: dict[str, Given] = {
    "plain": {},
    "a class that is ignored": {"y": torch.tensor([-100, 2])},
    "transposed": {"x": torch.empty(3, 2).copy_(X.T).T},
    "negative": {"x": conjugate(X)},
    "integers of another width": {"y": Y.int()},
}


class Losses(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self.layer(x)
        return torch.nn.functional.cross_entropy(logits, y), logits


class Program:
    """A traced model that is trained."""

    def __init__(self, session: SambaSession, path: Path) -> None:
        torch.manual_seed(5)
        self.session, model = session, Losses()
        samba.from_torch_model_(model)
        self.optimizer = samba.optim.SGD(model.parameters(), lr=0.125)
        if not path.exists():
            inputs = self.tensors({})
            session.compile(model, inputs, self.optimizer, output=path, check=False)
        self.model = model
        self.outputs = samba.utils.trace_graph(
            model, self.tensors({}), self.optimizer, pef=str(path)
        )

    def tensors(self, changes: Given) -> list[Any]:
        values = {"x": X, "y": Y, **changes}
        return [samba.from_torch_tensor(value, name=name) for name, value in values.items()]

    def step(self, changes: Given, numbers: Any = LR) -> list[torch.Tensor]:
        results = self.session.run(self.tensors(changes), self.outputs, hyperparam_dict=numbers)
        return [result.torch().detach().clone() for result in results]

    def weights(self) -> list[torch.Tensor]:
        return [parameter.sn_data.clone() for parameter in self.model.parameters()]  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("repeated") / "losses.pef"


def refusal(program: Program, changes: Given, numbers: Any) -> tuple[type, str, int, list[Any]]:
    """Return the error of a run, and what it left behind: runs in the ledger, and weights."""
    runs = program.session.transfers
    count = len(runs)
    with pytest.raises(SambaError) as caught:
        program.step(changes, numbers)
    return type(caught.value), str(caught.value), len(runs) - count, program.weights()


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(map(torch.equal, one, other))


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_inputs_are_refused_alike(session: SambaSession, path: Path, name: str) -> None:
    kind, changes, numbers = REFUSED[name]
    program = Program(session, path)
    first = refusal(program, changes, numbers)
    assert first[0] is kind
    assert first[2] == 0
    # With a rate of 0, the weights are those of before.
    for _ in range(3):
        program.step({}, {"lr": 0.0})
    repeated = refusal(program, changes, numbers)
    assert repeated[:3] == first[:3]
    assert same(repeated[3], first[3])
    # What was refused is no part of what comes after it.
    expected = Program(session, path).step({})
    assert same(Program(session, path).step({}), expected)


@pytest.mark.parametrize("name", ACCEPTED)
def test_tensors_and_copies_are_alike(session: SambaSession, path: Path, name: str) -> None:
    """Of several steps made again by a program that had repeated others before."""
    changes = ACCEPTED[name]

    def steps(program: Program) -> tuple[list[list[torch.Tensor]], list[Any]]:
        session.transfers.reset()
        results = [program.step(changes) for _ in range(3)]
        moved = [(one.symbol, one.bytes, one.cause, one.call) for one in session.transfers]
        return [*results, program.weights()], moved

    first, first_copies = steps(Program(session, path))
    program = Program(session, path)
    for _ in range(3):
        program.step({}, {"lr": 0.0})
    repeated, repeated_copies = steps(program)
    assert all(map(same, repeated, first))
    assert repeated_copies == first_copies


def test_integers_are_looked_at_without_leaving_the_short_way(
    session: SambaSession, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program(session, path)
    for _ in range(3):
        program.step({})
    answers = taken(monkeypatch)
    for labels in (Y, torch.tensor([3, -100])):
        program.step({"y": labels})
    assert answers == [True, True]
    with pytest.raises(InputError, match="input 'y' holds 4"):
        program.step({"y": torch.tensor([4, 0])})
    assert True not in answers[2:]
