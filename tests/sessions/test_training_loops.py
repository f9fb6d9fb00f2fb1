"""Training loops, whose steps take as little as possible around what is computed: they are the steps
that the long way makes, to the bit, and they leave nothing behind."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import samba_onnx as samba
from samba_onnx.errors import UsageError
from samba_onnx.sessions import SambaSession
from samba_onnx.sessions.shortcuts import Shortcut
from tests.sessions.test_shortcuts import taken

STEPS = 8
WRONG: tuple[dict[str, Any], ...] = (
    {"lr": float("nan")},
    {"lr": -1.0},
    {"p": 2.0},
    {"lr": "much"},
)
EPOCH = 60_000
"""Batches of one: as many as there are digits to train on."""


class Model(nn.Module):
    """A loss, with a dropout before it."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(6, 5)
        self.dropout = nn.Dropout(0.25)
        self.last = nn.Linear(5, 3)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.last(self.dropout(torch.relu(self.hidden(x))))
        return nn.functional.cross_entropy(logits, y), logits


Optimize = Callable[[Any], torch.optim.Optimizer]
Turn = Callable[[int, torch.optim.Optimizer], dict[str, Any]]

OPTIMIZERS: dict[str, Optimize] = {
    "SGD": lambda ps: samba.optim.SGD(ps, lr=0.1, momentum=0.9, dampening=0.1),
    "AdamW": lambda ps: samba.optim.AdamW([{"params": [p]} for p in ps], lr=0.01),
}


def _nothing(step: int, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    return {}


def _same(step: int, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    return {"hyperparam_dict": {"lr": 0.05, "weight_decay": 0}}


def _schedule(step: int, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    return {"hyperparam_dict": {"lr": 0.1 / (1 + step // 2)}}


def _on_the_host(step: int, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    optimizer.param_groups[0]["lr"] = 0.1 / (1 + step // 2)
    return {}


def _in_place(step: int, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    rate = optimizer.param_groups[0]["lr"]
    if not isinstance(rate, Tensor):
        optimizer.param_groups[0]["lr"] = torch.tensor(0.1)
    else:
        rate *= 0.5
    return {}


def _rates(step: int, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    return {"hyperparam_dict": {"p": 0.5 * (step % 2)}, "train": step % 3 > 0}


def _by_parts(step: int, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    return {"section_types": (["FWD", "BCKWD"], ["OPT"], [])[step % 3]}


TURNS: tuple[Turn, ...] = (
    _nothing,
    _same,
    _schedule,
    _on_the_host,
    _in_place,
    _rates,
    _by_parts,
)


@pytest.fixture(scope="module", params=OPTIMIZERS)
def pef(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, str]:
    """Name of an optimizer, and the PEF of the model with it."""
    model, optimizer = _made(request.param)
    path = tmp_path_factory.mktemp("loops") / "model.pef"
    return request.param, samba.session.compile(model, _inputs(0), optimizer, output=path)


def _made(kind: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = Model().train()
    samba.from_torch_model_(model)
    return model, OPTIMIZERS[kind](model.parameters())


def _inputs(step: int) -> tuple[samba.SambaTensor, ...]:
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(4, 6, generator=generator)
    y = torch.randint(0, 3, (4,), generator=generator)
    return samba.from_torch_tensor(x, name="x"), samba.from_torch_tensor(y, name="y")


def _trained(session: SambaSession, pef: tuple[str, str], turn: Turn) -> list[Any]:
    """All that a loop brings and leaves: outputs, weights, states, scalars and copies."""
    kind, path = pef
    session.reset()
    model, optimizer = _made(kind)
    outputs = samba.utils.trace_graph(model, _inputs(0), optimizer, pef=path)
    session.transfers.reset()
    results: list[Any] = []
    for step in range(STEPS):
        made = session.run(_inputs(step), outputs, **turn(step, optimizer))
        results += [one.torch().clone() for one in made]
    registers = session._program.required_device().registers.items()
    results.append({name: register.host.item() for name, register in registers.items()})
    results.append([list(session.transfers), session._program.required_device().ledger.runs])
    session.to_cpu(model, optimizer)
    results += [parameter.data.clone() for parameter in model.parameters()]
    results.append(optimizer.state_dict())
    return results


def _assert_same(one: Any, other: Any) -> None:
    if isinstance(one, Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        _assert_same(list(one.values()), list(other.values()))
    elif isinstance(one, Sequence) and not isinstance(one, str):
        assert len(one) == len(other)
        for part, counterpart in zip(one, other, strict=True):
            _assert_same(part, counterpart)
    else:
        assert one == other


@pytest.mark.parametrize("turn", TURNS)
def test_repeated_steps_are_those_of_the_long_way(
    session: SambaSession,
    pef: tuple[str, str],
    turn: Turn,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = taken(monkeypatch)
    quick = _trained(session, pef, turn)
    assert any(answers)
    monkeypatch.setattr(Shortcut, "sources", lambda *_: None)
    _assert_same(quick, _trained(session, pef, turn))


@pytest.mark.parametrize("pef", ["AdamW"], indirect=True)
def test_a_refused_number_leaves_nothing_behind(
    session: SambaSession, pef: tuple[str, str]
) -> None:
    kind, path = pef
    model, optimizer = _made(kind)
    outputs = samba.utils.trace_graph(model, _inputs(0), optimizer, pef=path)
    same: dict[str, Any] = {"hyperparam_dict": {"lr": 0.05, "p": 0.0}}
    for _ in range(4):
        session.run(_inputs(0), outputs, **same)
    before = session._program.hyperparameters.values.copy()
    copies = len(session.transfers)
    for wrong in WRONG:
        for _ in range(2):
            with pytest.raises(UsageError):
                session.run(_inputs(0), outputs, hyperparam_dict=wrong)
    optimizer.param_groups[0]["lr"] = float("inf")
    for _ in range(2):
        with pytest.raises(UsageError, match="on the host"):
            session.run(_inputs(0), outputs, **same)
    assert session._program.hyperparameters.values == before
    assert len(session.transfers) == copies
    optimizer.param_groups[0]["lr"] = 0.05
    session.run(_inputs(0), outputs, **same)


@pytest.mark.parametrize("pef", ["AdamW"], indirect=True)
def test_a_register_that_was_written_is_set_again(
    session: SambaSession, pef: tuple[str, str]
) -> None:
    kind, path = pef
    model, optimizer = _made(kind)
    outputs = samba.utils.trace_graph(model, _inputs(0), optimizer, pef=path)
    for _ in range(3):
        session.run(_inputs(0), outputs, hyperparam_dict={"lr": 0.05})
    device = session._program.required_device()
    name = next(name for name in device.registers.items() if name.endswith(("lr", "step_size")))
    device.write(name, 0.0)  # type: ignore[arg-type]
    session.run(_inputs(0), outputs, hyperparam_dict={"lr": 0.05})
    assert device.read(name) != 0


@pytest.mark.parametrize("pef", ["AdamW"], indirect=True)
def test_a_switch_is_told_of_between_repeated_runs(
    session: SambaSession, pef: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    kind, path = pef
    model, optimizer = _made(kind)
    outputs = samba.utils.trace_graph(model, _inputs(0), optimizer, pef=path)
    for _ in range(4):
        session.run(_inputs(0), outputs)
    model.eval()
    session.run(_inputs(0), outputs)
    assert "is in eval() now" in caplog.text


def _grown(step: Callable[[], object], times: int) -> tuple[int, dict[str, int]]:
    """How many objects of Python's there are more after some steps, and how many bytes by the line that took them."""
    step()
    gc.collect()
    before = tracemalloc.take_snapshot()
    objects = len(gc.get_objects())  # with those of the snapshot
    for _ in range(times):
        step()
    gc.collect()
    more = len(gc.get_objects()) - objects
    changes = tracemalloc.take_snapshot().compare_to(before, "lineno")
    return more, {str(each.traceback): each.size_diff for each in changes}


@pytest.mark.parametrize("pef", ["AdamW"], indirect=True)
@pytest.mark.parametrize("turn", [_schedule, pytest.param(_by_parts, marks=pytest.mark.slow)])
def test_steps_leave_no_objects(session: SambaSession, pef: tuple[str, str], turn: Turn) -> None:
    kind, path = pef
    model, optimizer = _made(kind)
    outputs = samba.utils.trace_graph(model, _inputs(0), optimizer, pef=path)
    batch = [tensor.torch() for tensor in _inputs(0)]

    def steps() -> float:
        loss = 0.0
        for index in range(6):
            x, y = (samba.from_torch_tensor(t, name=n) for t, n in zip(batch, "xy", strict=True))
            results = session.run([x, y], outputs, **turn(index, optimizer))
            loss += float(samba.to_torch(results[0]))
        return loss

    gc.freeze()  # what was there before is not counted again with every round
    tracemalloc.start()
    try:
        # What Python keeps for later is made in the first round, and something else of the process
        # may be made in another; what leaks does so in each, at one line.
        rounds = [_grown(steps, 60) for _ in range(3)]
    finally:
        tracemalloc.stop()
    assert min(objects for objects, _ in rounds) < 10
    # Where kinds of runs alternate, the ledger has a reference for each. The interpreter keeps up to 80 freed
    # dicts, lists and tuples each for later, of about 64 bytes; 360 objects of a leak are 20 kB and more.
    sizes = [size for _, size in rounds]
    kept = {line: min(size.get(line, 0) for size in sizes) for line in sizes[0]}
    leaks = {line: size for line, size in kept.items() if size > 0 and "tracemalloc" not in line}
    assert sum(leaks.values()) < 360 * 8 + 12_000, leaks


def test_an_epoch_of_batches_of_one_takes_no_memory(session: SambaSession, tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    model = nn.Linear(784, 10)
    criterion = nn.CrossEntropyLoss()

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = model

        def forward(self, image: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
            logits = self.layer(image)
            return criterion(logits, label), logits

    classifier = Classifier()
    samba.from_torch_model_(classifier)
    optimizer = samba.optim.SGD(classifier.parameters(), lr=0.0015, weight_decay=3e-4)
    image, label = torch.randn(64, 1, 784), torch.randint(0, 10, (64, 1))

    def batch(index: int) -> list[samba.SambaTensor]:
        pairs = ((image[index % 64].clone(), "image"), (label[index % 64].clone(), "label"))
        return [samba.from_torch_tensor(value, name=name, batch_dim=0) for value, name in pairs]

    path = session.compile(classifier, batch(0), optimizer, output=tmp_path / "logreg.pef")
    outputs = samba.utils.trace_graph(classifier, batch(0), optimizer, pef=path)
    peaks = []
    total = 0.0
    for index in range(EPOCH):
        loss, _ = session.run(batch(index), outputs, hyperparam_dict={"lr": 0.0015})
        total += float(samba.to_torch(loss))
        if index % 20_000 == 4_000:
            gc.collect()
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    assert total > 0
    ledger = session._program.required_device().ledger
    assert ledger.runs == EPOCH
    moved = sum(one.bytes for one in ledger.transfers if one.call is not None)
    assert moved == EPOCH * (784 * 4 + 8 + 4 + 40)
    # Kibibytes: a leak of 32 bytes per step would be 1750 of them.
    assert peaks[-1] - peaks[0] < 1024, peaks
