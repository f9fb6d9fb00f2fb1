"""Programs of every kind are traced as they were compiled, and their tensors are sent once."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

import onnx.parser
import pytest
import torch
from torch import nn

import samba_onnx as samba
from samba_onnx.errors import GraphMismatchError, ScheduleError
from samba_onnx.sessions import SambaSession
from samba_onnx.tensor import DEVICE
from tests.sessions.conftest import Compiled, Parts
from tests.sessions.modules import Dropping
from tests.sessions.test_multigraph import make, trace


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * scale, x + 1


def test_spatial_mapping(parts: Parts, tmp_path: Path) -> None:
    scale, one = samba.ones(2, name="scale") * 3, samba.ones(1, 2, name="x")
    scale.sn_name = "scale"
    config = {"mapping": "spatial", "num_spatial_batches": 3}
    path = samba.session.compile(
        Scaled(), (one, scale), output=tmp_path / "m.pef", config_dict=config, check=False
    )
    whole = samba.from_torch_tensor(torch.arange(6.0).reshape(3, 2), name="x")
    scales = samba.from_torch_tensor(torch.arange(6.0), name="scale")
    for x, given in ((one, (one, scales)), (whole, (whole, scales))):
        outputs = parts.tracer.trace(Scaled(), given, pef=path, mapping="spatial")
        assert [output.shape for output in outputs] == [(3, 2), (3, 2)]
        assert parts.state.graphs["forward"].inputs == given
        device = parts.program.required_device()
        assert device.read("scale").tolist() == scales.torch().tolist()
        if x is whole:
            assert device.read("x").tolist() == whole.torch().tolist()
        else:
            # One mini-batch is no run's input.
            with pytest.raises(ScheduleError, match="'x' has no value"):
                device.read("x")


class Trained(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.inner(x)
        return y.mean(), y.square().mean()


def test_training(parts: Parts, tmp_path: Path) -> None:
    model, x = Trained(), samba.ones(1, 2, name="x")
    samba.from_torch_model_(model)
    x.requires_grad_()
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    path = samba.session.compile(
        model, (x,), optimizer, output=tmp_path / "m.pef", loss_indices=[1], check=False
    )
    outputs = parts.tracer.trace(model, (x,), optimizer, pef=path, loss_indices=[1])
    assert parts.state.graphs[parts.program.only_graph].inputs == (x,)
    assert DEVICE.has(x.sn_grad_name)
    assert [DEVICE.has(output.sn_grad_name) for output in outputs] == [False, True]
    hyperparameters: Any = parts.program.hyperparameters
    hyperparameters.keep({}, forward=True, step=True)
    assert optimizer.device_steps == (1,)
    # Without optimizers it is the same program, which counts the same steps.
    parts.tracer.trace(model, (x,), pef=path, loss_indices=[1])
    _, _, counts, _ = parts.program.hyperparameters.steps_done
    assert [tuple(count) for count in counts] == [(0,)]
    assert parts.state.graphs[parts.program.only_graph].inputs == (x,)


def test_an_onnx_model(parts: Parts, tmp_path: Path) -> None:
    header = '<ir_version: 10, opset_import: ["" : 21]>\n'
    text = "affine (float[2] x, float[2] y) => (float[2] z) { z = Sub (x, y) }"
    model = onnx.parser.parse_model(header + text)
    given = (samba.ones(2, name="left"), samba.ones(2, name="right") * 2)
    given[1].sn_name = "right"
    path = samba.session.compile(model, given, output=tmp_path / "m.pef", check=False)
    (output,) = parts.tracer.trace(model, given, pef=path)
    assert (output.sn_name, output.shape) == ("z", (2,))
    assert parts.state.renamed
    assert parts.program.required_device().read("y").tolist() == [2, 2]
    other = onnx.parser.parse_model(header + text.replace("Sub", "Mul"))
    with pytest.raises(
        GraphMismatchError,
        match=r"m\.pef was compiled from another model than this affine: node .* Give the PEF of this",
    ):
        parts.tracer.trace(other, given, pef=path)


def test_a_mode_that_is_another_is_named(parts: Parts, compiled: Compiled, tmp_path: Path) -> None:
    model, x = Dropping().eval(), samba.ones(1, 8, name="x")
    path = samba.session.compile(model, (x,), output=tmp_path / "m.pef", check=False)
    with pytest.raises(
        GraphMismatchError,
        match=r"compiled from another Dropping: it was compiled after eval\(\) and is traced after "
        r"train\(\): call eval\(\) first\. The first difference: ",
    ):
        parts.tracer.trace(model.train(), (x,), pef=path)
    # Of a mode that changes nothing, nothing is said.
    try:
        assert parts.tracer.trace(compiled.model.train(), compiled.inputs, pef=compiled.path)
    finally:
        compiled.model.eval()


def test_what_graphs_share_is_sent_once(session: SambaSession, tmp_path: Path) -> None:
    modules = make()
    trace(*modules)
    path = session.compile_multigraph(name="graphs", output=tmp_path / "graphs.pef")
    session.init_multigraph_runtime(path)
    counts = collections.Counter(move.symbol for move in session.transfers)
    assert "memory__scale" in counts
    assert set(counts.values()) == {1}
