"""The place that a refusal names is the user's: a line, or a module where all lines are a library's."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from samba_onnx.errors import BranchWarning, SambaError
from samba_onnx.export.places import CodePlace
from samba_onnx.export.programs.inference import export_inference
from samba_onnx.export.programs.training import export_training

LIBRARY = "/venv/lib/python3.11/site-packages/library/models.py"
"""Where the code below seems to be installed: Python knows a file by what it was compiled with."""
BODIES = {
    "array": "torch.from_numpy((x * 2).numpy()) * 2",
    "attribute": "x.lengths",
    "bincount": "torch.bincount(n)",
    "control": "torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))",
    "mask": "x[x > 0]",
    "nonzero": "torch.nonzero(x).sum() * x",
    "number": "x * float(x.max())",
    "numbers": "x * sum(n.tolist())",
    "packed": "torch.nn.utils.rnn.pack_padded_sequence(x, n, batch_first=True)[0]",
    "rand": "x + torch.rand(4)",
    "random": "x * random.random()",
    "range": "x[0] + torch.arange(n[0], n[0] + 4)",
    "repeated": "torch.repeat_interleave(x, n, 0)",
    "shapes": "x @ x",
    "unique": "torch.unique(x)",
    "value error": "x.view(7, 7)",
}
"""What no compiled program can do, of a tensor (3, 4) and of three lengths."""
TAKEN = ("number", "numbers")
"""Those of them that take numbers out of inputs."""
TRAINING = {
    "backward": "(x.sum().backward(), x)[1].sum()",
    "no gradient": "x.detach().sum()",
    "hook on grad_fn": "(x.grad_fn.register_hook(torch.neg), x)[1].sum()",
    "parameter hook": "(next(self.parameters()).register_hook(torch.neg), x)[1].sum()",
    "array": BODIES["array"],
    "mask": "x[x > 0].sum()",
    "range": "(x[0] + torch.arange(n[0], n[0] + 4)).sum()",
    "rand": "(x + torch.rand(4)).sum()",
    "random": "(x * random.random()).sum()",
}
"""The same for what is trained."""
CODE = """
import random, torch
from torch import nn
class Body(nn.Module):
    {decorator}
    def forward(self, x, n):
        return {body}
class Library(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.layers = nn.ModuleList([Body()])
    def forward(self, x, n):
        return self.layers[0](self.first(x), n)
"""
DECORATORS = {"plain": "", "under no_grad": "@torch.no_grad()"}
OURS = r"^(?:[^\n]*? )?(?:at )?test_places\.py:\d+ \(in library/models\.py:[678]\)"
OWN = r"^(?:[^\n]*? )?(?:at )?mine\.py:[678](?!\d)"
MODULE = r"^(?:[^\n]*? )?module 'layers\.0' \(Body, library/models\.py:[678]\)"


class Wrapper(nn.Module):
    """Code of the user's around a library's model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, n: Tensor) -> Tensor:
        result: Tensor = self.model(x, n)
        return result


def made(body: str, decorator: str, file: str) -> nn.Module:
    names: dict[str, Any] = {"__name__": file.rpartition("/")[2].removesuffix(".py")}
    exec(compile(CODE.format(body=body, decorator=decorator), file, "exec"), names)
    torch.manual_seed(0)
    model: nn.Module = names["Library"]()
    return model


def sentence(model: nn.Module, training: bool = False, kind: type[Exception] = SambaError) -> str:
    inputs = (torch.randn(3, 4), torch.tensor([2, 1, 1]))
    export: Any = export_training if training else export_inference
    with pytest.raises(kind) as caught:
        export(model.train(training), inputs)
    text = str(caught.value)
    assert "unknown line" not in text
    assert not re.search(r"torch/\S+\.py:\d+", text)
    location = getattr(caught.value, "location", None)
    assert location is None or location in text
    assert location is None or not location.startswith(("library/", "transformers/"))
    return text


@pytest.mark.parametrize("decorator", DECORATORS)
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize(
    ("file", "wraps", "expected"),
    [(LIBRARY, False, MODULE), (LIBRARY, True, OURS), ("/home/me/mine.py", False, OWN)],
    ids=["library", "wrapped library", "own"],
)
def test_every_refusal_names_a_place_of_the_user(
    name: str, decorator: str, file: str, wraps: bool, expected: str
) -> None:
    model = made(BODIES[name], DECORATORS[decorator], file)
    # Users cannot rewrite what a library takes out of inputs by itself: that is a warning.
    kind = BranchWarning if expected == MODULE and name in TAKEN else SambaError
    assert re.match(expected, sentence(Wrapper(model) if wraps else model, kind=kind))


@pytest.mark.parametrize("name", TRAINING)
@pytest.mark.parametrize(("file", "expected"), [(LIBRARY, MODULE), ("/home/me/mine.py", OWN)])
def test_every_refusal_of_training_names_one(name: str, file: str, expected: str) -> None:
    assert re.match(expected, sentence(made(TRAINING[name], "", file), training=True))


@pytest.mark.parametrize(
    ("place", "text", "phrase"),
    [
        (CodePlace("a.py:1"), "a.py:1", "at a.py:1"),
        (
            CodePlace("a.py:1", "b", "B", "lib/c.py:2"),
            "a.py:1 (in lib/c.py:2)",
            "at a.py:1 (in lib/c.py:2)",
        ),
        (CodePlace("", "b", "B"), "module 'b' (B)", "in module 'b' (B)"),
        (
            CodePlace("", "b", "B", "lib/c.py:2"),
            "module 'b' (B, lib/c.py:2)",
            "in module 'b' (B, lib/c.py:2)",
        ),
        (CodePlace("", "", "Net"), "the model (Net)", "in the model (Net)"),
        (CodePlace(), "the model", "in the model"),
    ],
)
def test_places_read_as_subjects_and_with_prepositions(
    place: CodePlace, text: str, phrase: str
) -> None:
    assert (str(place), place.phrase) == (text, phrase)


def test_layers_of_torch_alone_are_named_by_their_path() -> None:
    layers = nn.Sequential(nn.Linear(4, 4), nn.Unflatten(1, (3, 3)))
    with pytest.raises(SambaError, match=r"in module '1' \(Unflatten\): RuntimeError"):
        export_inference(layers, (torch.randn(3, 4),))


def test_hooks_written_in_c_are_named() -> None:
    layer = nn.Linear(4, 4)
    layer.weight.register_hook(print)
    with pytest.raises(SambaError, match=r"the hook \(print of builtins\) returns no gradient"):
        export_training(nn.Sequential(layer, nn.Flatten(0)), (torch.randn(3, 4),))
