"""Tensors that ``forward`` carries in plain attributes are state on the device, step by step as in torch."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import samba_onnx as samba
from samba_onnx.errors import UsageError
from samba_onnx.sessions import SambaSession
from tests.training.carried import MODELS, ROWS, UNITS, Carrying, StatefulCell, StatefulLstm, draw

STEPS = 8


class Prepared:
    """A model on the device, and its twin in torch."""

    def __init__(self, session: SambaSession, model: Carrying, folder: Path, rate: float) -> None:
        self.session = session
        self.model, self.twin = model, copy.deepcopy(model)
        samba.from_torch_model_(self.model)
        self.trains = rate > 0
        self.optimizer = samba.optim.SGD(self.model.parameters(), lr=rate or 1.0, momentum=0.9)
        self.torch = torch.optim.SGD(self.twin.parameters(), lr=rate or 1.0, momentum=0.9)
        self.path = folder / f"{type(model).__name__}.pef"
        self.inputs = named(draw())
        listed = [self.optimizer] if self.trains else None
        session.compile(self.model, self.inputs, listed, output=self.path)
        self.trace()

    def trace(self) -> None:
        listed = [self.optimizer] if self.trains else None
        self.outputs = samba.utils.trace_graph(self.model, self.inputs, listed, pef=self.path)

    def step(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return what both sides make of a batch, the outputs of a step that trains."""
        returned = self.session.run(list(named(batch).values()), self.outputs)
        loss, expected = self.twin(**batch)
        if self.trains:
            self.torch.zero_grad()
            loss.backward()
            self.torch.step()
        return samba.to_torch(returned[1]), expected.detach()


def named(batch: dict[str, Tensor]) -> dict[str, Any]:
    return {name: samba.from_torch_tensor(t.clone(), name=name) for name, t in batch.items()}


def close(device: Tensor, expected: Tensor) -> None:
    # Both are float32: some roundings of a few layers, which as many steps of SGD carry on.
    torch.testing.assert_close(device, expected, rtol=1e-4, atol=2e-5)


def tensors_of(value: Any) -> Iterator[Tensor]:
    """Iterate over what a module keeps beside its parameters, wherever it is."""
    if isinstance(value, nn.Module):
        for inner in value.modules():
            kept = {**vars(inner), **inner._buffers}
            own = {k: v for k, v in kept.items() if not k.startswith("_") and "__" not in k}
            for key in sorted(own):
                yield from () if key == "output_tensors" else tensors_of(own[key])
    elif isinstance(value, Tensor):
        yield value.detach()
    elif isinstance(value, dict):
        for key in value:
            yield from tensors_of(value[key])
    elif hasattr(value, "__dict__") and type(value).__name__ in ("State", "SimpleNamespace"):
        yield from tensors_of(vars(value))
    elif not isinstance(value, str) and hasattr(value, "__iter__"):
        for item in value:
            yield from tensors_of(item)


@pytest.mark.parametrize("rate", [0.05, 0.0], ids=["training", "inference"])
@pytest.mark.parametrize("name", MODELS)
def test_many_steps_equal_those_of_torch_and_come_back_by_to_cpu(
    name: str, rate: float, session: SambaSession, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = MODELS[name]().train(rate > 0)
    prepared = Prepared(session, model, tmp_path, rate)
    for _ in range(STEPS):
        close(*prepared.step(draw()))
    session.to_cpu(model)
    device, host = list(tensors_of(model)), list(tensors_of(prepared.twin))
    assert len(device) == len(host)
    assert len(host) > 0
    for one, other in zip(device, host, strict=True):
        close(samba.to_torch(one), other)


def test_state_begins_anew_where_the_host_writes_zeros_and_sends_them(
    session: SambaSession, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = StatefulLstm().train()
    prepared = Prepared(session, model, tmp_path, 0.05)
    for _ in range(2):  # epochs
        zeros = torch.zeros(1, ROWS, UNITS)
        model.hidden, prepared.twin.hidden = (zeros, zeros), (zeros, zeros)
        session.sync_buffers_to_rdu(model)
        for _ in range(3):
            close(*prepared.step(draw()))
    for state in model.hidden:
        state.zero_()
    prepared.twin.hidden = (zeros, zeros)
    session.sync_buffers_to_rdu(model)
    close(*prepared.step(draw()))


@pytest.mark.parametrize("value", [None, torch.zeros(1, 1, UNITS)])
@pytest.mark.parametrize("kind", [StatefulLstm, StatefulCell])
def test_state_that_is_gone_from_its_attribute_is_refused_by_the_next_run(
    kind: type[Carrying], value: Any, session: SambaSession, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = kind()
    prepared = Prepared(session, model, tmp_path, 0.05)
    prepared.step(draw())
    if kind is StatefulLstm:
        model.hidden = value
    else:
        model.cell.h = value
    with pytest.raises(UsageError, match=r"assign a tensor of zeros of that shape"):
        prepared.step(draw())
    with pytest.raises(UsageError, match=r"must keep: to begin anew"):
        session.to_rdu(model)


def test_a_checkpoint_goes_on_where_it_was(session: SambaSession, tmp_path: Path) -> None:
    torch.manual_seed(0)
    prepared = Prepared(session, StatefulLstm(), tmp_path, 0.05)
    prepared.step(draw())
    session.to_cpu(prepared.model, [prepared.optimizer])
    saved = tmp_path / "saved.pt"
    dictionaries = prepared.model.state_dict(), prepared.optimizer.state_dict()
    torch.save(dictionaries, saved)
    StatefulLstm().load_state_dict(torch.load(saved)[0])  # a plain module takes it as it is
    batches = [draw() for _ in range(2)]
    expected = [prepared.step(batch)[0] for batch in batches]

    other = StatefulLstm()
    samba.from_torch_model_(other)
    optimizer = samba.optim.SGD(other.parameters(), lr=0.05, momentum=0.9)
    parameters, state = torch.load(saved)
    other.load_state_dict(parameters)
    optimizer.load_state_dict(state)
    outputs = samba.utils.trace_graph(other, prepared.inputs, [optimizer], pef=prepared.path)
    for batch, before in zip(batches, expected, strict=True):
        _, y = session.run(list(named(batch).values()), outputs)
        assert torch.equal(samba.to_torch(y), before)


def test_dropout_beside_state(session: SambaSession, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = StatefulCell()
    model.drop.p = 0.5
    prepared = Prepared(session, model.train(), tmp_path, 0.05)
    for _ in range(3):
        batch = draw()
        inputs = list(named(batch).values())
        _, y = session.run(
            inputs, prepared.outputs, section_types=["FWD"], hyperparam_dict={"p": 0.0}
        )
        prepared.twin.drop.p = 0.0
        close(samba.to_torch(y), prepared.twin(**batch)[1].detach())
    _, dropped = session.run(
        inputs, prepared.outputs, section_types=["FWD"], hyperparam_dict={"p": 0.5}
    )
    assert not torch.allclose(samba.to_torch(dropped), prepared.twin(**batch)[1].detach())
    # What is carried does not depend on what was dropped behind it.
    session.to_cpu(model)
    close(model.cell.h, prepared.twin.cell.h)
