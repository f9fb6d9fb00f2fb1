"""What is said, and what is refused, of each change of a module that was traced."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import samba_onnx as samba
from samba_onnx.errors import UsageError
from samba_onnx.program.kinds import SectionType
from samba_onnx.sessions.module_watch import ModuleWatch, copied
from samba_onnx.tensor.carried import carry

LOGGER = "samba_onnx.sessions.module_watch"


class Small(nn.Module):
    """A buffer, a dropout, a nested module, and attributes that forward reads in several ways."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("total", torch.zeros(2))
        self.scale, self.names, self.text = 1.0, ["a"], "a"
        self.shift, self.one, self.unread = torch.zeros(2), torch.zeros(1), 0

    @property
    def factor(self) -> float:
        return self.scale

    def forward(self, x: Tensor) -> Tensor:
        y = self.drop(self.inner(x)) * self.factor + self.total + self.shift + self.one
        return self.scaled(y) if self.training else y

    def scaled(self, y: Tensor) -> Tensor:
        parts = [y * len(name) for name in (*self.names, *[self.text for _ in range(1)])]
        return sum(parts, self.forward(y)) if self.text == "" else parts[0]


def looked(
    model: nn.Module,
    change: Callable[[Any], object],
    caplog: pytest.LogCaptureFixture,
    types: Sequence[SectionType] = (SectionType.FWD,),
    gradients: Sequence[str] = (),
) -> list[str]:
    """What is said of a change, without the place and the last sentence; it is said once."""
    watch = ModuleWatch(model, gradients)
    watch.look(types)
    caplog.clear()
    with caplog.at_level(logging.WARNING, LOGGER):
        change(model)
        watch.look(types)
        watch.look(types)
    found = [
        re.fullmatch(r"test_module_words\.py:\d+: (.*)\. This is said once per trace\.", text)
        for text in caplog.messages
    ]
    return [match[1] for match in found if match]


AGAIN = "compile and trace the model again, or make it an input"
RATE = "give the rate to the run, as hyperparam_dict={'p': rate}, or by the dropout's own name"
SEND = "send them with samba.session.to_rdu(model), or trace the model again"


def attribute(name: str, now: str, before: str, advice: str = AGAIN) -> str:
    return f"'{name}' of Small is {now} now, and runs compute what was compiled, with {before}: {advice}"


def values(names: str) -> str:
    return (
        f"{names} of Small got other values on the host since they were last copied, as by "
        f"load_state_dict or in place, and runs go on with those of the device: {SEND}"
    )


@torch.no_grad()
def write(*tensors: Tensor) -> None:
    for tensor in tensors:
        tensor.add_(1)


SAID: dict[str, tuple[Callable[[Any], object], list[str]]] = {
    "nothing": (lambda m: None, []),
    "number": (lambda m: setattr(m, "scale", 2.0), [attribute("scale", "2.0", "1.0")]),
    "list": (lambda m: setattr(m, "names", ["b"]), [attribute("names", "['b']", "['a']")]),
    "an equal list": (lambda m: setattr(m, "names", ["a"]), []),
    "unread": (lambda m: setattr(m, "unread", 1), []),
    "words": (
        lambda m: setattr(m, "text", "b" * 38),
        [attribute("text", repr("b" * 38), "'a'")],
    ),
    "long words": (lambda m: setattr(m, "text", "b" * 39), [attribute("text", "a str", "'a'")]),
    "tensor": (
        lambda m: setattr(m, "shift", torch.zeros(2)),
        [attribute("shift", *["a tensor of shape [2]"] * 2)],
    ),
    "an equal tensor of one": (lambda m: setattr(m, "one", torch.zeros(1)), []),
    "rate": (lambda m: setattr(m.drop, "p", 0.1), [attribute("drop.p", "0.1", "0.5", RATE)]),
    "in place of": (
        lambda m: setattr(m.drop, "inplace", True),
        [attribute("drop.inplace", "True", "False")],
    ),
    "mode of one": (lambda m: m.drop.eval(), [attribute("drop.training", "False", "True")]),
    # Of that, the run itself speaks.
    "mode of all": (lambda m: m.eval(), []),
    "mode of all beside another": (
        lambda m: (m.eval(), setattr(m, "scale", 2.0)),
        [attribute("scale", "2.0", "1.0")],
    ),
    "mode of the outermost": (lambda m: setattr(m, "training", False), []),
    "two": (
        lambda m: (setattr(m, "scale", 2.0), setattr(m.drop, "p", 0.1)),
        [attribute("drop.p", "0.1", "0.5", RATE), attribute("scale", "2.0", "1.0")],
    ),
    "equal ones beside another": (
        lambda m: (
            setattr(m, "names", ["a"]),
            setattr(m, "one", torch.zeros(1)),
            setattr(m, "scale", 2.0),
        ),
        [attribute("scale", "2.0", "1.0")],
    ),
    "weight": (lambda m: write(m.inner.weight), [values("'inner.weight'")]),
    "another weight": (
        lambda m: setattr(m.inner, "weight", nn.Parameter(m.inner.weight.detach())),
        [values("'inner.weight'")],
    ),
    "statistics": (lambda m: write(m.total), []),
    "all": (
        lambda m: write(m.inner.weight, m.inner.bias, m.total),
        [values("'inner.weight', 'inner.bias', 'total'")],
    ),
    "weight and number": (
        lambda m: (write(m.inner.bias), setattr(m, "scale", 2.0)),
        [values("'inner.bias'"), attribute("scale", "2.0", "1.0")],
    ),
}


@pytest.mark.parametrize("converted", [False, True])
@pytest.mark.parametrize("name", SAID)
def test_what_is_said(name: str, converted: bool, caplog: pytest.LogCaptureFixture) -> None:
    change, expected = SAID[name]
    model = Small()
    if converted:
        samba.from_torch_model_(model)
    assert sorted(looked(model, change, caplog)) == sorted(expected)
    assert len(caplog.messages) == len(expected)


def test_more_than_three_names_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    model = nn.Sequential(*(nn.Linear(1, 1) for _ in range(3)))
    (text,) = looked(model, lambda m: write(*m.parameters()), caplog)
    assert text.startswith("'0.weight', '0.bias', '1.weight' and 3 more of Sequential got other")


def test_the_same_thing_is_said_again_after_a_trace_only(caplog: pytest.LogCaptureFixture) -> None:
    model = Small()
    watch = ModuleWatch(model, ())
    for expected, change in (
        (1, lambda: setattr(model, "scale", 2.0)),
        (0, lambda: setattr(model, "scale", 3.0)),
        (1, lambda: write(model.inner.weight)),
        (0, lambda: write(model.inner.bias)),
        (1, lambda: setattr(model, "text", "b")),
    ):
        caplog.clear()
        change()
        with caplog.at_level(logging.WARNING, LOGGER):
            watch.look([SectionType.FWD])
        assert len(caplog.messages) == expected


@pytest.mark.parametrize("converted", [False, True])
def test_members_that_were_copied_are_not_spoken_of(
    converted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    model, other = Small(), Small()
    if converted:
        samba.from_torch_model_(model)
    weight, bias = model.inner.weight, model.inner.bias
    both = values("'inner.weight', 'inner.bias'")

    def written(*copies: Any) -> Callable[[Any], None]:
        def change(_model: Any) -> None:
            write(weight, bias)
            for copy_ in copies:
                copied(*copy_)

        return change

    for copies, expected in (
        ([(model,)], []),
        ([(other,)], [both]),
        ([(model, [weight])], [values("'inner.bias'")]),
        ([(model, [weight]), (model, [bias])], []),
        ([(model, [])], [both]),
    ):
        assert looked(model, written(*copies), caplog) == expected


FLAGS: dict[str, tuple[Callable[[Any], object], list[str], str]] = {
    "frozen": (
        lambda m: m.inner.weight.requires_grad_(False),
        ["inner.weight", "inner.bias"],
        r"'inner\.weight' no longer requires gradients, but was compiled to be trained, and would be: "
        r"which parameters are trained is part of the program",
    ),
    "frozen and never trained": (
        lambda m: m.inner.weight.requires_grad_(False),
        ["inner.bias"],
        "",
    ),
    "thawed": (
        lambda m: m.first.requires_grad_(),
        ["inner.weight"],
        r"'first' requires gradients now, but was compiled without, and would not be trained: which",
    ),
    "thawed and trained": (lambda m: m.first.requires_grad_(), ["inner.weight", "first"], ""),
    "nothing trains": (lambda m: m.requires_grad_(False), [], ""),
    "another module": (
        lambda m: setattr(m, "inner", nn.ReLU()),
        [],
        r"module 'inner' is another ReLU than the one that was traced, and runs compute with that one: ",
    ),
}


@pytest.mark.parametrize("name", FLAGS)
def test_what_is_refused(name: str, caplog: pytest.LogCaptureFixture) -> None:
    change, gradients, words = FLAGS[name]
    model = Small()
    model.first = nn.Parameter(torch.ones(1), requires_grad=False)
    training = [SectionType.FWD, SectionType.BCKWD]
    for types in (training, [SectionType.OPT]):
        for parameter in model.parameters():
            parameter.requires_grad_(parameter is not model.first)
        model.inner = nn.Linear(2, 2)
        if words:
            with pytest.raises(UsageError, match=rf"^test_module_words\.py:\d+: {words}"):
                looked(model, change, caplog, types, gradients)
        else:
            assert looked(model, change, caplog, types, gradients) == []
    assert caplog.messages == []


def test_flags_are_looked_at_again_by_the_next_run_that_trains(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = Small()
    watch = ModuleWatch(model, ["inner.weight", "inner.bias"])
    model.requires_grad_(False)
    watch.look([SectionType.FWD])
    with pytest.raises(UsageError, match="no longer requires"):
        watch.look([SectionType.OPT])
    assert caplog.messages == []


def test_nothing_is_said_of_a_mode_that_is_back(caplog: pytest.LogCaptureFixture) -> None:
    model = Small()
    watch = ModuleWatch(model, ())
    with caplog.at_level(logging.WARNING, LOGGER):
        for change in (model.eval, model.train, model.eval, model.train):
            change()
            watch.look([SectionType.FWD])
    assert caplog.messages == []


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.state = (torch.zeros(2),)

    def forward(self, x: Tensor) -> Tensor:
        self.state = (x + self.state[0],)
        return self.state[0]


def test_what_is_carried_is_spoken_of_by_its_values(caplog: pytest.LogCaptureFixture) -> None:
    model = nn.Sequential(Cell())
    carry(model[0], "state", (0,))
    (text,) = looked(model, lambda m: setattr(m[0], "state", (torch.ones(2),)), caplog)
    assert text.startswith("'0.state__0' of Sequential got other values")


def test_data_that_was_handed_out_counts_until_it_is_copied(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = Small()
    samba.from_torch_model_(model)
    weight, bias = model.inner.weight, model.inner.bias
    for tensor, expected in ((bias, [values("'inner.weight'")]), (weight, [])):

        def change(_model: Any, tensor: Tensor = tensor) -> None:
            weight.data.zero_().add_(3)
            copied(model, [tensor])

        assert looked(model, change, caplog) == expected
        write(weight)
        copied(model)
