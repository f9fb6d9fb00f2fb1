"""Threads that share a session: servers, training beside reading, loaders with callbacks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import samba_onnx as samba
from samba_onnx.errors import NotTracedError
from samba_onnx.runtime.device import Device
from samba_onnx.sessions import SambaSession
from samba_onnx.sessions.shortcuts import Shortcut
from samba_onnx.sessions.turns import TURN
from tests.runtime.test_forks import in_child, refusal
from tests.runtime.test_threads import THREADS, forever, in_threads
from tests.sessions.conftest import Compiled
from tests.sessions.test_runner import draw

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.fixture(autouse=True)
def hasty_threads() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Large(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(128, 128) for _ in range(4)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(x).tanh()
        return result


def own(outputs: Any) -> list[torch.Tensor]:
    return [output.torch() for output in outputs]


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
def test_a_server_answers_each_request_with_its_own_result(
    session: SambaSession, compiled: Compiled, tmp_path: Path, large: bool
) -> None:
    if large:
        torch.manual_seed(0)
        model = Large()
        samba.from_torch_model_(model)
        x = samba.randn(64, 128, name="x")
        path = session.compile(model, (x,), inference=True, output=tmp_path / "l.pef", check=False)
        outputs = samba.utils.trace_graph(model, (x,), pef=path)
        requests = [[samba.randn(64, 128, name="x")] for _ in range(THREADS)]
    else:
        outputs = compiled.trace()
        requests = [draw(compiled, seed) for seed in range(THREADS)]
    alone = [own(session.run(request, outputs)) for request in requests]
    answers = in_threads(
        lambda number: [session.run(requests[number], outputs) for _ in range(10 if large else 150)]
    )
    for expected, kept in zip(alone, answers, strict=True):
        for result in kept:
            for tensor, wanted in zip(own(result), expected, strict=True):
                assert torch.equal(tensor, wanted)


def test_a_shortcut_is_taken_in_turn(
    session: SambaSession, compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody may use the device between the copy of the inputs and that of the outputs."""
    outputs = compiled.trace()
    inputs = draw(compiled)
    for _ in range(3):
        session.run(inputs, outputs)
    taken: list[bool] = []
    run = Shortcut.run

    def looked_at(*arguments: Any) -> Any:
        (entered,) = in_threads(lambda _: TURN.mutex.acquire(blocking=False), count=1)
        taken.append(entered)
        return run(*arguments)

    monkeypatch.setattr(Shortcut, "run", looked_at)
    session.run(inputs, outputs)
    assert taken == [False]


def training(folder: Path, session: SambaSession) -> tuple[torch.nn.Module, Any, Any, Any]:
    torch.manual_seed(1)
    model = torch.nn.Linear(6, 6, bias=True)
    samba.from_torch_model_(model)

    class Loss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x).pow(2).mean()

    program = Loss()
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    x = samba.randn(4, 6, name="x")
    path = session.compile(program, (x,), optimizer, output=folder / "t.pef", check=False)
    outputs = samba.utils.trace_graph(program, (x,), optimizer, pef=path)
    return program, x, outputs, optimizer


def test_a_module_is_fetched_as_of_one_step(session: SambaSession, tmp_path: Path) -> None:
    """Weights and bias that are fetched belong to the same step, whoever trains meanwhile."""
    steps = 40
    program, x, outputs, _ = training(tmp_path, session)
    names = [p.sn_name for p in program.parameters()]

    def state() -> tuple[bytes, ...]:
        return tuple(t.torch().numpy().tobytes() for t in session.get_tensors_by_name(names))

    begin = {name: value.clone() for name, value in program.state_dict().items()}
    known = [state()]
    for _ in range(steps):
        session.run([x], outputs)
        known.append(state())
    with torch.no_grad():
        for name, value in program.state_dict().items():
            value.copy_(begin[name])
    session.to_rdu(program)

    def work(number: int) -> list[tuple[bytes, ...]]:
        if number == 0:
            for _ in range(steps):
                session.run([x], outputs)
            return []
        fetched = []
        for _ in range(20):
            if number % 2:
                fetched.append(state())
            else:
                with TURN.mutex:
                    session.to_cpu(program, inplace=True)
                    values = tuple(p.data.numpy().tobytes() for p in program.parameters())
                fetched.append(values)
        return fetched

    for fetched in in_threads(work):
        assert set(fetched) <= set(known)
    assert state() == known[-1]


def test_values_and_gradient_of_a_tensor_are_of_one_step(
    session: SambaSession, tmp_path: Path
) -> None:
    program, x, outputs, _ = training(tmp_path, session)
    weight = next(iter(program.parameters()))
    session.run([x], outputs)
    weight.cpu()
    reads: list[str] = []
    store = samba.tensor.DEVICE.store(weight.sn_region_name)
    read = type(store).read

    def looked_at(self: Any, place: str) -> torch.Tensor:
        (entered,) = in_threads(lambda _: TURN.mutex.acquire(blocking=False), count=1)
        reads.append(place if not entered else "nobody's turn")
        return read(self, place)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(store), "read", looked_at)
        weight.cpu()
    assert reads == [weight.sn_region_name, weight.sn_grad_name]


def test_tracing_again_waits_for_runs(session: SambaSession, compiled: Compiled) -> None:
    outputs = compiled.trace()
    requests = [draw(compiled, seed) for seed in range(THREADS)]
    alone = [own(session.run(request, outputs)) for request in requests]

    def work(number: int) -> None:
        if number == 0:
            for _ in range(5):
                compiled.trace()
            return
        for _ in range(40):
            result = own(session.run(requests[number], outputs))
            assert all(map(torch.equal, result, alone[number]))

    in_threads(work)


def test_a_run_after_a_reset_is_refused_clearly(session: SambaSession, compiled: Compiled) -> None:
    outputs = compiled.trace()
    inputs = draw(compiled)
    session.run(inputs, outputs)

    def work(number: int) -> None:
        if number == 0:
            session.reset()
            return
        with pytest.raises(NotTracedError, match="trace_graph"):
            forever(lambda: session.run(inputs, outputs))

    in_threads(work)


def test_a_materializer_may_use_the_device(session: SambaSession, compiled: Compiled) -> None:
    outputs = compiled.trace()
    features, shift = draw(compiled)
    expected = own(session.run([features, shift], outputs))

    def materializer(_: samba.SambaTensor) -> torch.Tensor:
        session.run(compiled.inputs, outputs)
        return features.torch()

    lazy = samba.SambaTensor(shape=features.shape, name="features", materializer=materializer)
    found = own(session.run([lazy, shift], outputs))
    assert all(map(torch.equal, found, expected))


class Served(Dataset[Any]):
    """A data set whose items are computed on the device: fine in threads, refused in forks."""

    def __init__(self, session: SambaSession, inputs: Any, outputs: Any) -> None:
        self._arguments = session, inputs, outputs

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        session, inputs, outputs = self._arguments
        result: torch.Tensor = session.run(inputs, outputs)[0].torch()
        return result


def test_workers_of_a_loader(session: SambaSession, compiled: Compiled) -> None:
    outputs = compiled.trace()
    inputs = draw(compiled)
    expected = own(session.run(inputs, outputs))[0]
    data = Served(session, inputs, outputs)
    assert all(torch.equal(item[0], expected) for item in DataLoader(data, num_workers=0))
    loader = DataLoader(data, num_workers=1, multiprocessing_context="fork")
    with pytest.raises(Exception, match=r"the device belongs to process .*'spawn'"):
        next(iter(loader))
    assert torch.equal(own(session.run(inputs, outputs))[0], expected)


def test_a_forked_process_traces_anew(session: SambaSession, compiled: Compiled) -> None:
    outputs = compiled.trace()
    inputs = draw(compiled)
    expected = own(session.run(inputs, outputs))
    for _ in range(2):
        session.run(inputs, outputs)
    weight = compiled.model.outer.weight
    parent = os.getpid()

    def refused(use: Any) -> bool:
        return in_child(use).startswith(refusal(parent))

    assert refused(lambda: session.run(inputs, outputs))
    assert refused(lambda: session.run(list(inputs), outputs[0]))
    assert refused(lambda: weight.sn_data)
    assert refused(lambda: weight.cpu())
    assert refused(lambda: session.to_cpu(compiled.model))
    assert refused(lambda: session.get_tensors([weight]))
    assert refused(lambda: session.transfers.count)

    def anew() -> bool:
        traced = compiled.trace()
        return all(map(torch.equal, own(session.run(inputs, traced)), expected))

    assert in_child(anew) == "True"


def test_devices_of_a_session_share_its_turns(session: SambaSession, compiled: Compiled) -> None:
    compiled.trace()
    device = session._program.device
    assert isinstance(device, Device)
    assert device.lock.mutex is TURN.mutex
