"""Derivatives inside ``forward``, of first and higher order, train as in eager torch, or are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import samba_onnx as samba
from samba_onnx.errors import GradientError, ModelError
from tests.training.derivatives import LAYERS, WAYS, Body, Net, Penalised, size
from tests.training.trajectory import Case, differences, eager, on_device, prepare_case, sgd


def check(case: Case, folder: Path) -> None:
    single, exact = eager(case, torch.float32), eager(case, torch.float64)
    moved = [
        name
        for name, value in exact.steps[-1].items()
        if name.startswith("parameter") and not torch.equal(value, exact.steps[0][name])
    ]
    assert moved, "the derivative reaches no parameter"
    found = differences(on_device(case, folder), exact, single)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", WAYS)
def test_ways_to_derivatives(name: str, tmp_path: Path) -> None:
    check(Case(name, lambda: Net(WAYS[name]), lambda: {"x": torch.randn(4, 3)}, sgd), tmp_path)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_differentiated_twice(name: str, tmp_path: Path) -> None:
    draw = lambda: {"x": torch.randn(4, 2, 6)}  # noqa: E731
    check(Case(name, lambda: Penalised(LAYERS[name]()), draw, sgd), tmp_path)


def by_function(transform: Callable[..., Callable[[Tensor], Tensor]]) -> Body:
    return lambda net, x: size(transform(lambda v: net.u(v).sum())(x))


REFUSED: dict[str, tuple[Body, type[Exception], str]] = {
    **{
        name: (
            by_function(transform),
            ModelError,
            "by torch.func.*torch.autograd.grad.*create_graph",
        )
        for name, transform in (
            ("func.grad", torch.func.grad),
            ("func.hessian", torch.func.hessian),
            ("func.jacrev", torch.func.jacrev),
            ("func.jacfwd", torch.func.jacfwd),
            ("gradients of samples", lambda f: torch.vmap(torch.func.grad(f))),
        )
    },
    "func.jvp": (
        lambda net, x: size(torch.func.jvp(net.u, (x,), (torch.ones_like(x),))[1]),
        ModelError,
        "by torch.func",
    ),
    "backward": (
        lambda net, x: net.u(x).sum().backward(create_graph=True) or net.u(x).sum(),
        GradientError,
        "a backward pass inside forward.*torch.autograd.grad",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_what_to_write(name: str, tmp_path: Path) -> None:
    body, kind, sentence = REFUSED[name]
    case = Case(name, lambda: Net(body), lambda: {"x": torch.randn(4, 3)}, sgd)
    with pytest.raises(kind, match=rf"^\w+\.py:\d+: .*{sentence}"):
        prepare_case(case, tmp_path)


def test_programs_for_inference_have_no_gradients(tmp_path: Path) -> None:
    model = Net(WAYS["first"]).eval()
    samba.from_torch_model_(model)
    with pytest.raises(
        ModelError, match=r"derivatives\.py:\d+ computes a gradient inside forward.*training only"
    ):
        samba.session.compile(model, (samba.randn(4, 3, name="x"),), output=tmp_path / "m.pef")
