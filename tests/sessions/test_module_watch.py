"""What a program changes in its module after the trace is refused or told of once, with the line of the run."""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import samba_onnx as samba
from samba_onnx.errors import UsageError
from samba_onnx.sessions import SambaSession

LOGGERS = ("samba_onnx.sessions.module_watch", "samba_onnx.sessions.runner")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.5)
        self.norm = nn.BatchNorm1d(4)
        self.last = nn.Linear(4, 2)
        self.scale, self.shift = 1.0, torch.zeros(4)
        self.activation = torch.relu
        self.uses_penalty = True
        self.epoch = 0

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.features(x)
        out = self.last(hidden)
        loss = nn.functional.mse_loss(out, y)
        return (loss + hidden.mean() if self.uses_penalty else loss), out

    def features(self, x: Tensor) -> Tensor:
        return self.activation(self.norm(self.drop(self.first(x)))) * self.scale + self.shift


class Program:
    """A model that was traced and has run twice, so that runs are repeated by the short way."""

    def __init__(self, session: SambaSession, path: str) -> None:
        torch.manual_seed(0)
        self.session = session
        self.model = Net().train()
        self.model.first.bias.requires_grad_(False)
        samba.from_torch_model_(self.model)
        self.optimizer = samba.optim.SGD(self.model.parameters(), lr=0.1)
        self.inputs = [samba.randn(3, 4, name="x"), samba.randn(3, 2, name="y")]
        self.path = path

    def prepare(self) -> Program:
        if not Path(self.path).exists():
            self.session.compile(self.model, self.inputs, self.optimizer, output=self.path)
        self.outputs = samba.utils.trace_graph(
            self.model, self.inputs, self.optimizer, pef=self.path
        )
        self.run()
        self.run()
        return self

    def run(self, **options: Any) -> Any:
        return self.session.run(self.inputs, self.outputs, **options)


@pytest.fixture(scope="module")
def pef(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("watch") / "net.pef")


@pytest.fixture
def program(session: SambaSession, pef: str) -> Program:
    return Program(session, pef).prepare()


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for name, _, text in caplog.record_tuples if name in LOGGERS]


Change = Callable[[Program], object]

TOLD: dict[str, tuple[Change, str]] = {
    "number": (
        lambda p: setattr(p.model, "scale", 2.0),
        r"'scale' of Net is 2\.0 now.*, with 1\.0",
    ),
    "flag": (lambda p: setattr(p.model, "uses_penalty", False), "'uses_penalty' of Net is False"),
    "function": (lambda p: setattr(p.model, "activation", torch.tanh), "'activation' of Net"),
    "tensor": (lambda p: setattr(p.model, "shift", torch.ones(4)), r"'shift' of Net is a tensor"),
    "rate": (
        lambda p: setattr(p.model.drop, "p", 0.1),
        r"'drop\.p' .*hyperparam_dict=\{'p': rate\}",
    ),
    "mode of one": (lambda p: p.model.norm.eval(), r"'norm\.training' of Net is False now"),
    "mode of all": (lambda p: p.model.eval(), r"Net is in eval\(\) now"),
    "load_state_dict": (
        lambda p: p.model.load_state_dict(copy.deepcopy(p.model.state_dict())),
        r"'first\.weight', 'first\.bias', .* more of Net got other values.*to_rdu\(model\)",
    ),
    "initialised": (lambda p: nn.init.zeros_(p.model.last.weight), r"'last\.weight' of Net got"),
    "data written": (lambda p: p.model.last.weight.data.clamp_(-1e-3, 1e-3), r"'last\.weight'"),
    "data assigned": (
        lambda p: setattr(p.model.last.weight, "data", torch.zeros(2, 4)),
        r"'last\.weight'",
    ),
    "parameter": (
        lambda p: setattr(p.model.last, "bias", nn.Parameter(torch.ones(2))),
        r"'last\.bias' of Net got other values",
    ),
}


@pytest.mark.parametrize("name", TOLD)
def test_what_a_run_does_not_follow_is_told_of_once(
    name: str, program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    change, words = TOLD[name]
    change(program)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            program.run()
    (text,) = said(caplog)
    assert re.search(words, text), text
    assert name == "mode of all" or text.startswith("test_module_watch.py:")


REFUSED: dict[str, tuple[Change, str]] = {
    "frozen": (
        lambda p: p.model.last.requires_grad_(False),
        r"'last\.weight', 'last\.bias' no longer requires gradients",
    ),
    "thawed": (
        lambda p: p.model.first.bias.requires_grad_(),
        r"'first\.bias' requires gradients now",
    ),
    "module": (
        lambda p: setattr(p.model, "last", nn.Linear(4, 2)),
        r"module 'last' is another Linear",
    ),
    "clipped": (
        lambda p: nn.utils.clip_grad_norm_(p.model.parameters(), 1.0),
        r"'net__first__weight' has none: they are on the device.*max_grad_norm",
    ),
    "clipped by value": (
        lambda p: nn.utils.clip_grad_value_(p.model.parameters(), 1.0),
        "gradients are clipped on the host",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_wrong_whatever_was_meant_is_refused(name: str, program: Program) -> None:
    change, words = REFUSED[name]

    def changed() -> None:
        change(program)
        program.run()

    with pytest.raises(UsageError, match=words):
        changed()


def test_flags_of_gradients_do_not_matter_to_runs_without_gradients(program: Program) -> None:
    program.model.requires_grad_(False)
    program.run(section_types=["FWD"])
    with pytest.raises(UsageError, match="no longer requires gradients"):
        program.run(section_types=["BCKWD"])
    for name, parameter in program.model.named_parameters():
        parameter.requires_grad_(name != "first.bias")
    program.run()


SILENT: dict[str, Change] = {
    "nothing": lambda p: None,
    "what forward does not read": lambda p: setattr(p.model, "epoch", 3),
    "the same value": lambda p: setattr(p.model, "scale", 1.0),
    "there and back": lambda p: (p.model.eval(), p.model.train()),
    "to_cpu": lambda p: p.session.to_cpu(p.model, [p.optimizer]),
    "to_cpu in place": lambda p: p.session.to_cpu_(p.model, [p.optimizer]),
    "sent together": lambda p: (
        p.model.load_state_dict(copy.deepcopy(p.model.state_dict())),
        p.session.to_rdu(p.model),
    ),
    "sent one by one": lambda p: (
        nn.init.zeros_(p.model.last.weight),
        p.model.last.weight.rdu(),
        p.model.first.weight.cpu(),
    ),
    "data read": lambda p: p.model.last.weight.data.norm(),
    "data sent": lambda p: (p.model.last.weight.data.zero_(), p.model.last.weight.rdu()),
    "rate of learning": lambda p: p.optimizer.param_groups[0].update(lr=0.5),
    "run in torch": lambda p: p.model(torch.randn(3, 4), torch.randn(3, 2)),
    "copied": lambda p: copy.deepcopy(p.model),
    "clipped on the host": lambda p: (
        p.session.to_cpu(p.model),
        nn.utils.clip_grad_norm_(p.model.parameters(), 1.0),
        p.session.to_rdu(p.model),
    ),
}


@pytest.mark.parametrize("name", SILENT)
def test_nothing_is_said_of_what_makes_no_difference(
    name: str, program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    SILENT[name](program)
    with caplog.at_level(logging.WARNING):
        program.run()
        program.run()
    assert said(caplog) == []


def test_each_trace_begins_anew(program: Program, caplog: pytest.LogCaptureFixture) -> None:
    nn.init.zeros_(program.model.last.weight)
    with caplog.at_level(logging.WARNING):
        program.prepare()
    assert said(caplog) == []
