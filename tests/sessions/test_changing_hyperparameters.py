"""Hyperparameters of runs that differ from those of the compiled optimizer, and their state."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import samba_onnx as samba
from samba_onnx.errors import UsageError
from samba_onnx.sessions import SambaSession
from tests.sessions.test_training import TOLERANCE, Regression, named

SCHEDULE: list[dict[str, Any]] = [
    {"lr": 0.1},
    {"momentum": 0.9},
    {"weight_decay": 0.1},
    {"momentum": 0.0},
    {"momentum": 0.5, "dampening": 0.3},
    {"weight_decay": 0.0, "lr": 0.02},
]


def draw() -> tuple[Tensor, Tensor]:
    return torch.randn(4, 6), torch.randint(3, (4,))


def traced(
    session: SambaSession,
    folder: Path,
    kind: Any,
    trace: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[Regression, Any, Regression]:
    torch.manual_seed(0)
    model = Regression()
    twin = copy.deepcopy(model)
    samba.from_torch_model_(model)
    optimizer = kind(model.parameters(), lr=0.0, **options)
    inputs = (samba.randn(4, 6, name="x"), samba.randint(3, (4,), name="y"))
    path = session.compile(model, inputs, optimizer, output=folder / "train.pef")
    samba.utils.trace_graph(model, inputs, optimizer, pef=path, **(trace or {}))
    return model, optimizer, twin


def step(twin: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> None:
    optimizer.zero_grad()
    twin(x, y)[0].backward()
    optimizer.step()


def compare(model: nn.Module, twin: nn.Module) -> None:
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(one.data, other.data, **TOLERANCE)


def test_sgd_takes_any_number_at_any_step(session: SambaSession, tmp_path: Path) -> None:
    model, optimizer, twin = traced(session, tmp_path, samba.optim.SGD)
    reference = torch.optim.SGD(twin.parameters(), lr=0.0)
    for changes in SCHEDULE:
        x, y = draw()
        reference.param_groups[0].update(changes)
        step(twin, reference, x, y)
        session.run(named(x, y), [], changes)
    session.to_cpu(model, optimizer)
    compare(model, twin)
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        buffer, expected = (
            state[parameter]["momentum_buffer"]
            for state, parameter in ((optimizer.state, one), (reference.state, other))
        )
        torch.testing.assert_close(buffer, expected, **TOLERANCE)


def test_without_momentum_there_is_no_state_as_in_torch(
    session: SambaSession, tmp_path: Path
) -> None:
    model, optimizer, _ = traced(session, tmp_path, samba.optim.SGD)
    session.run(named(*draw()), [], {"lr": 0.1})
    session.to_cpu(model, optimizer)
    assert not optimizer.state
    session.run(named(*draw()), [], {"momentum": 0.5})
    session.to_cpu(model, optimizer)
    assert len(optimizer.state) == len(list(model.parameters()))


def test_switches_are_refused_in_one_line(session: SambaSession, tmp_path: Path) -> None:
    traced(session, tmp_path, samba.optim.SGD)
    for key in ("nesterov", "maximize"):
        with pytest.raises(UsageError, match=f"{key} is True, but .* make SGD with {key}=True"):
            session.run(named(*draw()), [], {key: True})
    with pytest.raises(UsageError, match="compiled with SGD without it: make the optimizer with"):
        session.run(named(*draw()), [], {"max_grad_norm": 1.0})
    session.run(named(*draw()), [], {"nesterov": False, "amsgrad": True, "lr": 0.1})


@pytest.mark.parametrize("options", [{"amsgrad": True}, {"maximize": True}, {"max_grad_norm": 1.0}])
def test_another_rule_is_refused_when_tracing(
    session: SambaSession, tmp_path: Path, options: dict[str, Any]
) -> None:
    model, _, _ = traced(session, tmp_path, samba.optim.AdamW)
    other = samba.optim.AdamW(model.parameters(), **options)
    inputs = (samba.randn(4, 6, name="x"), samba.randint(3, (4,), name="y"))
    with pytest.raises(UsageError, match=f"AdamW; it was traced with AdamW.{next(iter(options))}"):
        samba.utils.trace_graph(model, inputs, other, pef=str(tmp_path / "train.pef"))


def test_everything_can_be_fetched_before_the_first_run(
    session: SambaSession, tmp_path: Path
) -> None:
    model, optimizer, twin = traced(session, tmp_path, samba.optim.AdamW)
    session.to_cpu(model)
    session.to_cpu(model, [optimizer])
    session.to_cpu_(model, optimizer)
    compare(model, twin)
    assert all(parameter.grad is None for parameter in model.parameters())
    session.run(named(*draw()), [], {"lr": 0.1})
    session.to_cpu(model)
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("way", ["tensors", "to_device", "to_rdu"])
def test_states_are_sent_by_whoever_asked_to(
    session: SambaSession, tmp_path: Path, way: str
) -> None:
    options = {"momentum": 0.9, "dampening": 0.5}
    model, optimizer, twin = traced(
        session, tmp_path, samba.optim.SGD, {"transfer_device": False}, **options
    )
    assert all(state.materializer_provided for state in session.optim_dict.values())
    assert not any(state.torch_tensor().any() for state in session.optim_dict.values())
    if way == "tensors":
        for tensor in session._traced_tensors():
            if tensor.has_data:
                tensor.rdu()
        for tensor in session.optim_dict.values():
            tensor.rdu()
    elif way == "to_device":
        session.to_device()
    else:
        session.to_rdu(model, [optimizer])
    reference = torch.optim.SGD(twin.parameters(), lr=0.1, **options)
    for _ in range(3):
        x, y = draw()
        step(twin, reference, x, y)
        session.run(named(x, y), [], {"lr": 0.1})
    session.to_cpu(model)
    compare(model, twin)


def test_a_resumed_state_goes_on_after_transfer_device_is_false(
    session: SambaSession, tmp_path: Path
) -> None:
    model, optimizer, twin = traced(session, tmp_path, samba.optim.AdamW)
    reference = torch.optim.AdamW(twin.parameters(), lr=0.01, betas=(0.9, 0.997), weight_decay=0.0)
    inputs = (samba.randn(4, 6, name="x"), samba.randint(3, (4,), name="y"))
    for index in range(4):
        x, y = draw()
        step(twin, reference, x, y)
        session.run(named(x, y), [], {"lr": 0.01})
        if index == 1:
            session.to_cpu(model, optimizer)
            path = str(tmp_path / "train.pef")
            samba.utils.trace_graph(model, inputs, optimizer, pef=path, transfer_device=False)
            session.to_device()
    session.to_cpu(model)
    compare(model, twin)


def test_buffers_of_a_converted_module_in_a_wrapper(session: SambaSession, tmp_path: Path) -> None:
    class Wrapper(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x).square().mean()

    inner = nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3))
    twin = Wrapper(copy.deepcopy(inner))
    samba.from_torch_model_(inner)
    model = Wrapper(inner)
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    inputs = (samba.randn(4, 6, name="x"),)
    path = session.compile(model, inputs, optimizer, output=tmp_path / "w.pef")
    outputs = samba.utils.trace_graph(model, inputs, optimizer, pef=path)
    (loss,) = session.run(inputs, outputs)
    torch.testing.assert_close(samba.to_torch(loss), twin(samba.to_torch(inputs[0])).detach())
    session.to_cpu(model)
    for one, other in zip(model.buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(one, other)
    assert {"sequential__1__running_mean", "sequential__1__running_var"} <= {*session.buffer_dict}
