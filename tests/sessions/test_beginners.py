"""What beginners do wrong, and the sentence that each mistake gets: what was given, and what to do."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import samba_onnx as samba
from samba_onnx.errors import (
    GraphMismatchError,
    InputError,
    MissingLibraryError,
    ModelError,
    NotTracedError,
    SambaError,
    UsageError,
)
from samba_onnx.sessions import SambaSession
from tests.sessions.conftest import Compiled
from tests.sessions.modules import Classifier

ARRAY = np.zeros((2, 4), np.float32)


class Scored(nn.Module):
    """A dropout, a layer, and the loss before the scores."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.layer(self.drop(x))
        return nn.functional.cross_entropy(logits, y), logits


class Pair(nn.Module):
    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        return first - 2 * second


class Fed(nn.Module):
    """One layer on one input."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


def fed(**options: Any) -> tuple[Fed, samba.SambaTensor]:
    model = Fed().eval()
    samba.from_torch_model_(model)
    return model, samba.randn(2, 4, name="x", **options)


def on_cuda(session: SambaSession, folder: Path) -> None:
    """Compile a model whose parameters are in the memory of an accelerator, which need not exist."""
    with torch._subclasses.FakeTensorMode():
        model = Fed().eval()
        model.layer.weight = nn.Parameter(torch.empty(3, 4, device="cuda"))
    session.compile(model, torch.zeros(2, 4), output=folder / "m.pef")


Mistake: TypeAlias = Callable[[SambaSession, Path], object]


COMPILING: dict[str, tuple[type[SambaError], str, Mistake]] = {
    "an array": (
        UsageError,
        "input 'x' is a numpy array, float32 of shape [2, 4]; give a tensor, as in "
        "samba.from_torch_tensor(torch.from_numpy(array), name='x')",
        lambda session, folder: session.compile(fed()[0], (ARRAY,), output=folder / "m.pef"),
    ),
    "an array by name": (
        UsageError,
        "input 'x' is a numpy array, float32 of shape [2, 4]; give a tensor, as in",
        lambda session, folder: session.compile(fed()[0], {"x": ARRAY}, output=folder / "m.pef"),
    ),
    "an array alone": (
        UsageError,
        "inputs are a numpy array, float32 of shape [2, 4]; give a tuple of tensors in the order",
        lambda session, folder: session.compile(fed()[0], ARRAY, output=folder / "m.pef"),
    ),
    "no inputs": (
        UsageError,
        "inputs are NoneType; give a tuple of tensors in the order of the model's parameters",
        lambda session, folder: session.compile(fed()[0], None, output=folder / "m.pef"),
    ),
    "too few inputs": (
        UsageError,
        "the inputs (1 positional) do not fit Pair.forward(first: 'Tensor', second: 'Tensor')",
        lambda session, folder: session.compile(Pair(), fed()[1], output=folder / "m.pef"),
    ),
    "integers into a layer": (
        ModelError,
        "is given INT64 and FLOAT, which torch computes in one type only: convert the input, or the "
        "module, as in x.to(torch.float32) or model.float()",
        lambda session, folder: session.compile(
            fed()[0], torch.zeros(2, 4, dtype=torch.int64), output=folder / "m.pef"
        ),
    ),
    "a model in half precision": (
        ModelError,
        "is given FLOAT and FLOAT16, which torch computes in one type only: convert the input",
        lambda session, folder: session.compile(
            Fed().half().eval(), torch.zeros(2, 4), output=folder / "m.pef"
        ),
    ),
    "rows of another length": (
        ModelError,
        "RuntimeError: a and b must have same reduction dim, but got [2, 3] X [4, 3]",
        lambda session, folder: session.compile(
            fed()[0], torch.zeros(2, 3), output=folder / "m.pef"
        ),
    ),
    "a model on an accelerator": (
        UsageError,
        "parameter 'layer.weight' is on cuda:0: models are compiled and compared on the host's CPU, "
        "and run on an emulator there; move them first, with model.cpu() and tensor.cpu()",
        on_cuda,
    ),
    "a class": (
        UsageError,
        "the model is the class Fed, and not a module of it, as Fed() makes; give a torch.nn.Module",
        lambda session, folder: session.compile(Fed, fed()[1]),  # type: ignore[arg-type]
    ),
    "what from_torch_model_ returns": (
        UsageError,
        "the model is None, which is also what from_torch_model_ returns: it changes a model in place",
        lambda session, folder: session.compile(
            samba.from_torch_model_(Fed()),  # type: ignore[func-returns-value]
            fed()[1],
        ),
    ),
    "a class to convert": (
        UsageError,
        "from_torch_model_ was given the class Fed; give a module, as Net() makes one",
        lambda session, folder: samba.from_torch_model_(Fed),  # type: ignore[arg-type]
    ),
    "the class of an optimizer": (
        UsageError,
        "an optimizer is the class SGD; give one, as samba.optim.SGD(model.parameters(), lr=0.1) makes",
        lambda session, folder: session.compile(fed()[0], fed()[1], samba.optim.SGD),  # type: ignore[arg-type]
    ),
    "an optimizer of another model": (
        UsageError,
        "SGD has parameters that Fed does not have: make it of the parameters of this model, after "
        "from_torch_model_",
        lambda session, folder: session.compile(
            fed()[0], fed()[1], samba.optim.SGD(Fed().parameters(), lr=0.1)
        ),
    ),
    "an array to wrap": (
        UsageError,
        "SambaTensor was given numpy.ndarray; wrap a torch.Tensor, as torch.from_numpy(array) makes",
        lambda session, folder: samba.from_torch_tensor(ARRAY, name="x"),  # type: ignore[arg-type]
    ),
    "a list to wrap": (
        UsageError,
        "SambaTensor was given list; wrap a torch.Tensor, as torch.tensor(values) makes one",
        lambda session, folder: samba.SambaTensor([1.0], name="x"),  # type: ignore[arg-type]
    ),
    "no trace": (
        NotTracedError,
        "the session has no PEF: call samba.utils.trace_graph(model, inputs, pef=...) once before",
        lambda session, folder: session.run((fed()[1],), fed()[0].output_tensors),
    ),
    "a trace without a PEF": (
        NotTracedError,
        "the session has no PEF: give one, as in samba.utils.trace_graph(model, inputs, pef='out/",
        lambda session, folder: samba.utils.trace_graph(*fed()),
    ),
}


@pytest.mark.parametrize("mistake", COMPILING)
def test_mistakes_before_a_run(
    mistake: str, session: SambaSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kind, sentence, act = COMPILING[mistake]
    with pytest.raises(SambaError) as caught:
        act(session, tmp_path)
    assert type(caught.value) is kind
    assert sentence in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    # torch logs the traceback of an error that it raises, too.
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def named(*sizes: int, name: str = "features", **options: Any) -> samba.SambaTensor:
    return samba.from_torch_tensor(torch.zeros(*sizes, **options), name=name)


RUNNING: dict[str, tuple[type[SambaError], str, Callable[[SambaSession, Any], object]]] = {
    "an array": (
        InputError,
        "an input is a numpy array, float32 of shape [2, 4]; give a tensor, as in "
        "samba.from_torch_tensor(torch.from_numpy(array), name='...')",
        lambda session, outputs: session.run((ARRAY,), outputs),
    ),
    "an array by name": (
        InputError,
        "input 'features' is a numpy array, float32 of shape [2, 4]; give a tensor, as in "
        "samba.from_torch_tensor(torch.from_numpy(array), name='features')",
        lambda session, outputs: session.run({"features": ARRAY}, outputs),
    ),
    "two inputs of one name": (
        InputError,
        "two inputs of this run are called 'features', and inputs are told apart by name: leave one "
        "out, or give each the name that it was compiled with",
        lambda session, outputs: session.run((named(2, 4), named(2, 4)), outputs),
    ),
    "a smaller last batch": (
        InputError,
        "input 'features' is torch.float32 of shape [1, 4], compiled was tensor(float)[2, 4]: give "
        "that shape and dtype, or compile for this one. A last batch of 1 where 2 were compiled is "
        "left out, as DataLoader(..., drop_last=True) does, or filled up to 2 rows, whose results are "
        "then ignored",
        lambda session, outputs: session.run(named(1, 4), outputs),
    ),
    "another dtype": (
        InputError,
        "input 'features' is torch.float64 of shape [2, 4], compiled was tensor(float)[2, 4]: give "
        "that shape and dtype, or compile for this one",
        lambda session, outputs: session.run(named(2, 4, dtype=torch.float64), outputs),
    ),
    "another name": (
        InputError,
        "input 'image' does not exist; graph 'forward' has 'features' tensor(float)[2, 4], 'shift' "
        "tensor(float)[3]: name the tensor as the one that was traced",
        lambda session, outputs: session.run(named(2, 4, name="image"), outputs),
    ),
    "no name": (
        InputError,
        "an input of shape [2, 4] has no name, and inputs are told apart by name: make it with "
        "samba.from_torch_tensor(tensor, name='...')",
        lambda session, outputs: session.run(torch.zeros(2, 4), outputs),
    ),
    "outputs that were computed on the host": (
        UsageError,
        "an output is SambaTensor without a name; give tensors that trace_graph returned",
        lambda session, outputs: session.run(None, named(2, 4) + 1),
    ),
    "an attribute's name": (
        UsageError,
        "output 'logits' does not exist; graph 'forward' has outputs 'classifier__",
        lambda session, outputs: session.run(None, ["logits"]),
    ),
    "values of a traced output": (
        UsageError,
        "has no data: set its data, or give it a materializer; the values of a traced output are in "
        "what session.run returns",
        lambda session, outputs: outputs[0].sum(),
    ),
    "backward of a traced output": (
        UsageError,
        "which was not computed of parameters on the host, as results of samba.session.run and traced "
        "tensors are not. The device computes gradients by section type BCKWD",
        lambda session, outputs: outputs[0].backward(),
    ),
    "backward of a result": (
        UsageError,
        "leave backward() out; or call it on the loss that the model itself returns on the host",
        lambda session, outputs: session.run(None, outputs)[0].sum().backward(),
    ),
    "hyperparameters without names": (
        UsageError,
        "hyperparam_dict is list; give numbers by name, as {'lr': 0.1}",
        lambda session, outputs: session.run(None, outputs, [0.1]),
    ),
}


@pytest.mark.parametrize("mistake", RUNNING)
def test_mistakes_of_a_run(mistake: str, session: SambaSession, compiled: Compiled) -> None:
    kind, sentence, act = RUNNING[mistake]
    outputs = compiled.trace()
    with pytest.raises(SambaError) as caught:
        act(session, outputs)
    assert type(caught.value) is kind
    assert sentence in str(caught.value)


def test_a_larger_batch_is_no_last_one(session: SambaSession, compiled: Compiled) -> None:
    outputs = compiled.trace()
    for shape in ((3, 4), (1, 5), (2,)):
        with pytest.raises(InputError, match=r"compile for this one$"):
            session.run(named(*shape), outputs)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Warnings of ours since the last look."""
    texts = [
        record.getMessage()
        for record in caplog.records
        if record.levelno == logging.WARNING and record.name.startswith("samba_onnx")
    ]
    caplog.clear()
    return texts


def test_a_model_in_eval_mode_that_is_trained(
    session: SambaSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = Scored().eval()
    samba.from_torch_model_(model)
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    inputs = (samba.randn(5, 4, name="x"), samba.randint(3, (5,), name="y"))
    path = session.compile(model, inputs, optimizer, output=tmp_path / "m.pef")
    (text,) = said(caplog)
    assert text.startswith(
        "Scored is in evaluation mode, and is compiled with SGD to be trained so"
    )
    assert "Call train() before compiling, and before tracing" in text
    outputs = samba.utils.trace_graph(model, inputs, optimizer, pef=path)

    # A loop of torch around it: what it does to the host is for nothing.
    result = session.run(inputs, outputs)
    assert said(caplog) == []
    optimizer.step()
    optimizer.step()
    (text,) = said(caplog)
    assert text.startswith("SGD.step() was called, and no parameter has a gradient on the host")
    assert "leave step() and zero_grad() out" in text
    with pytest.raises(
        UsageError, match=r"backward\(\) of tensor 'scored__.*leave backward\(\) out"
    ):
        result[0].backward()

    # Each unknown key is spoken of once; those that optimizers have, though not this one, never.
    for _ in range(2):
        session.run(inputs, outputs, {"lr": 0.1, "beta1": 0.9, "p": 0.1, "momentun": 0.5})
    (text,) = said(caplog)
    assert text == (
        "hyperparam_dict has 'momentun', which sets nothing of this program: give 'momentum', or "
        "leave it out"
    )
    session.run(inputs, outputs, {"momentun": 0.5, "speed": 1.0})
    (text,) = said(caplog)
    assert text.endswith("give 'lr', 'momentum', 'dampening', 'weight_decay', or leave it out")
    # A run that trains need not be asked for anything.
    assert session.run(inputs) == ()
    assert said(caplog) == []
    # On the host it works as ever, and nothing more is said.
    model(*inputs)[0].backward()
    optimizer.step()
    assert said(caplog) == []


def test_a_model_without_a_loss_that_is_trained(
    session: SambaSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = Fed()
    samba.from_torch_model_(model)
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    session.compile(model, fed()[1], optimizer, output=tmp_path / "m.pef")
    (text,) = said(caplog)
    assert "no output was recognised as a loss, so that all count as losses" in text
    assert "A model that is trained returns its loss, as F.cross_entropy(logits, label)" in text
    with (
        torch.inference_mode(),
        pytest.raises(UsageError, match=r"compile and trace outside of it"),
    ):
        session.compile(model, fed()[1], optimizer, output=tmp_path / "n.pef")


def test_a_run_that_is_asked_for_nothing(
    session: SambaSession, compiled: Compiled, caplog: pytest.LogCaptureFixture
) -> None:
    outputs = compiled.trace()
    assert session.run(compiled.inputs, []) == ()
    session.run(compiled.inputs, outputs)
    assert said(caplog) == []
    for _ in range(2):
        assert session.run(compiled.inputs) == ()
    (text,) = said(caplog)
    assert text.startswith(
        "run was asked for no output of graph 'forward' and returns an empty tuple"
    )
    assert "samba.session.run(inputs, model.output_tensors), or [] for none" in text


def test_one_tensor_for_two_arguments(
    session: SambaSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tensor = samba.randn(2, 4, name="x")
    path = session.compile(Pair(), (tensor, tensor), output=tmp_path / "m.pef")
    (text,) = said(caplog)
    assert text.startswith(
        "Pair is given one tensor, 'x', as 'first' and 'second': the program has"
    )
    outputs = samba.utils.trace_graph(Pair(), (tensor, tensor), pef=path)
    other = samba.randn(2, 4, name="x")
    for tensors in ((other, other), (other,)):
        (result,) = session.run(tensors, outputs)
        # One subtraction and one exact doubling.
        torch.testing.assert_close(result.torch(), -other.torch(), rtol=1e-6, atol=0)
    with pytest.raises(InputError, match="two inputs of this run are called 'x'"):
        session.run((other, samba.randn(2, 4, name="x")), outputs)


def test_another_layer_is_named_besides_its_mode(session: SambaSession, compiled: Compiled) -> None:
    model = Classifier().eval()
    model.outer = nn.Linear(5, 7)  # in training mode, which is not what matters
    samba.from_torch_model_(model)
    shift = samba.randn(7, name="shift")
    with pytest.raises(
        GraphMismatchError, match=r"first difference: the PEF has .*; the model has"
    ):
        samba.utils.trace_graph(model, (compiled.features, shift), pef=compiled.path)


def test_a_name_that_needs_torch_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    for module in [name for name in sys.modules if name.startswith("samba_onnx.tensor")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.delitem(vars(samba), "from_torch_model_", raising=False)
    with pytest.raises(MissingLibraryError) as caught:
        _ = samba.from_torch_model_
    assert isinstance(caught.value, ImportError)
    assert str(caught.value) == (
        "samba_onnx.from_torch_model_ needs torch, which is not installed: install it with "
        "pip install 'samba-onnx[torch]'"
    )
