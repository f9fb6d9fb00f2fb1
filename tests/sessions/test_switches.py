"""What is built into a PEF and changed afterwards is told of in one sentence that says what to do."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import samba_onnx as samba
from samba_onnx.errors import GraphMismatchError, InputError, UsageError
from samba_onnx.sessions import SambaSession


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor, factor: float = 1.0) -> Tensor:
        return self.norm(self.linear(x)).tanh() * factor


def compiled(session: SambaSession, folder: Path, train: bool = False) -> tuple[Net, Any, str]:
    torch.manual_seed(0)
    model = Net().train(train)
    samba.from_torch_model_(model)
    inputs = {"x": samba.from_torch_tensor(torch.randn(3, 4), name="x"), "factor": 2.0}
    return model, inputs, session.compile(model, inputs, output=folder / "m.pef")


def switch(model: Net) -> None:
    model.train(not model.training)


@pytest.mark.parametrize(
    ("train", "change", "words"),
    [
        (True, lambda model, inputs: switch(model), r"after train\(\) .*: call train\(\) first"),
        (False, lambda model, inputs: switch(model), r"after eval\(\) .*: call eval\(\) first"),
        (
            True,
            lambda model, inputs: model.norm.eval(),
            r"module 'norm' was compiled after train\(\): call train\(\) on it first",
        ),
        (
            True,
            lambda model, inputs: inputs.update(factor=3.0),
            r"input 'factor' is 3\.0, but was 2\.0 when it was compiled.* give the same one",
        ),
    ],
    ids=["to eval", "to train", "one module", "number"],
)
def test_changes_between_compile_and_trace(
    session: SambaSession, tmp_path: Path, train: bool, change: Any, words: str
) -> None:
    model, inputs, path = compiled(session, tmp_path, train)
    change(model, inputs)
    with pytest.raises(GraphMismatchError, match=words):
        samba.utils.trace_graph(model, inputs, pef=path)


def test_a_switch_after_the_trace_is_told_once(
    session: SambaSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, inputs, path = compiled(session, tmp_path, train=True)
    outputs = samba.utils.trace_graph(model, inputs, pef=path)
    with caplog.at_level(logging.WARNING):
        (before,) = session.run([inputs["x"]], outputs)
        caplog.clear()  # of what torch logged while it traced
        model.eval()
        (after,) = session.run([inputs["x"]], outputs, section_types=["FWD"])
        session.run([inputs["x"]], outputs, section_types=["FWD"])
    assert torch.equal(samba.to_torch(before), samba.to_torch(after))
    (record,) = caplog.records
    assert "Net is in eval() now, but runs compute what it was compiled for, after train()" in (
        record.getMessage()
    )


@pytest.mark.parametrize("given", [[3.0], {"factor": 3.0}])
def test_numbers_in_a_run(session: SambaSession, tmp_path: Path, given: Any) -> None:
    model, inputs, path = compiled(session, tmp_path)
    outputs = samba.utils.trace_graph(model, inputs, pef=path)
    with pytest.raises(InputError, match=r"is 3\.0, which is no tensor: what a model is compiled"):
        session.run(given, outputs)


def test_outputs_of_an_earlier_trace(session: SambaSession, tmp_path: Path) -> None:
    model, inputs, path = compiled(session, tmp_path)
    earlier = samba.utils.trace_graph(model, inputs, pef=path)
    other = nn.Linear(4, 2).eval()
    samba.from_torch_model_(other)
    path = session.compile(other, [inputs["x"]], output=tmp_path / "other.pef")
    samba.utils.trace_graph(other, [inputs["x"]], pef=path)
    with pytest.raises(UsageError, match=r"does not exist.*what the last trace_graph returned"):
        session.run([inputs["x"]], earlier)
