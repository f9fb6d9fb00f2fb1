"""Gradients that users write: in the exported backward, or refused with the user's line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import Function

from samba_onnx.comparing.eager.training import compare_training
from samba_onnx.comparing.outcome import ComparisonOutcome
from samba_onnx.errors import GradientError
from samba_onnx.export.programs.training import export_training
from samba_onnx.tensor.modules import from_torch_model_
from tests.training.written_gradients import (
    BETWEEN,
    KINDS,
    REGISTER,
    Net,
    build,
    halved,
    hooked,
    in_place,
    plain,
)

INPUTS = {"x": torch.randn(5, 6), "label": torch.tensor([0, 3, 1, 2, 2])}
CASES = {
    **KINDS,
    "penalty": lambda: Net(BETWEEN["gradient penalty"]),
    "state": lambda: Net(BETWEEN["hook with a state"]),
    "several": build(REGISTER["several"]),
}


@pytest.mark.parametrize("accumulates", [False, True])
@pytest.mark.parametrize("name", list(CASES))
def test_gradients_are_torchs(name: str, accumulates: bool) -> None:
    torch.manual_seed(0)
    model = CASES[name]().train()
    exported = export_training(model, INPUTS, gradient_accumulation=accumulates)
    comparison = compare_training(model, INPUTS, exported)
    assert comparison.outcome is ComparisonOutcome.DONE
    assert "net__second__weight__grad" in comparison.errors


LOOKED_AT: list[Any] = []


KEPT: list[Any] = []
"""Steps of autograd, whose hooks last no longer than they."""


def accumulator(parameter: Tensor) -> Any:
    """Return the step that accumulates a parameter's gradient."""
    step: Any = parameter.view_as(parameter).grad_fn
    KEPT.append(step.next_functions[0][0])
    return KEPT[-1]


def tripled(gradients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (gradients[0] * 3,)


def rolled(gradient: Tensor) -> Tensor:
    if gradient.abs().max() > 1:
        gradient = gradient / 2
    return gradient


def stepping(parameter: Tensor) -> None:
    with torch.no_grad():
        parameter.sub_(parameter.grad)
    parameter.grad = None


def counting(net: Net, value: Tensor) -> Tensor:
    value.register_hook(lambda g: net.mask.add_(1) * g)
    return value * 2


def in_forward(net: Net, value: Tensor) -> Tensor:
    net.scale.register_hook(lambda g: g * 2)
    return value


def on_history(net: Net, value: Tensor) -> Tensor:
    value.grad_fn.register_hook(lambda *gradients: None)
    return value


def packed(net: Net, value: Tensor) -> Tensor:
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.half(), lambda t: t.float()):
        return value.tanh()


STATE = torch.zeros(8)


def left_behind(net: Net, value: Tensor) -> Tensor:
    value.register_hook(lambda g: g + STATE.add_(g.mean(0)))
    return value


class Broken(Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return value * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient if gradient.max() > 0 else gradient * 2


class Wrong(Broken):
    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return {}["scale"] * gradient


REFUSED: dict[str, tuple[Callable[[], Net], str]] = {
    "looks only": (
        lambda: Net(hooked(lambda g: LOOKED_AT.append(g.norm()))),
        "returns no gradient: it would run once",
    ),
    "parameter, looks only": (
        build(lambda net: net.scale.register_hook(lambda g: LOOKED_AT.append(g))),
        "returns no gradient: it would run once",
    ),
    "module, looks only": (
        build(lambda net: net.inner.register_full_backward_hook(lambda *_: None)),
        "returns no gradient: it would run once",
    ),
    "by value": (lambda: Net(hooked(rolled)), r"asks for values of tensors.*torch\.where"),
    "multi": (
        build(
            lambda net: torch.autograd.graph.register_multi_grad_hook(
                [net.scale, net.first.weight], lambda gradients: None
            )
        ),
        "register_multi_grad_hook, which changes no gradient",
    ),
    "any of several": (
        build(
            lambda net: torch.autograd.graph.register_multi_grad_hook(
                [net.scale, net.first.weight], in_place, mode="any"
            )
        ),
        "register_multi_grad_hook, which changes no gradient",
    ),
    "old module hook": (
        build(lambda net: net.inner.register_backward_hook(halved)),
        "register it by register_full_backward_hook",
    ),
    "optimizer in backward": (
        build(lambda net: net.scale.register_post_accumulate_grad_hook(stepping)),
        "writes to a parameter or buffer",
    ),
    "accumulator": (
        build(lambda net: accumulator(net.scale).register_prehook(tripled)),
        "on the step that accumulates a parameter's gradient.* on the parameter",
    ),
    "accumulator, afterwards": (
        build(lambda net: accumulator(net.inner.weight).register_hook(lambda *gradients: None)),
        "on the step that accumulates a parameter's gradient.* on the parameter",
    ),
    "accumulated, looks only": (
        build(
            lambda net: net.scale.register_post_accumulate_grad_hook(lambda p: LOOKED_AT.append(p))
        ),
        "changes no gradient: it would run once",
    ),
    "writes a buffer": (lambda: Net(counting), "writes to a parameter or buffer"),
    "writes elsewhere": (
        lambda: Net(left_behind),
        "writes to a tensor that the graph does not know",
    ),
    "parameter in forward": (lambda: Net(in_forward), "once more in every run: register it once"),
    "grad_fn": (lambda: Net(on_history), "a hook on grad_fn cannot be compiled"),
    "saved_tensors_hooks": (lambda: Net(packed), "leave them out"),
    "backward by value": (
        lambda: Net(lambda net, v: Broken.apply(v)),
        r"asks for values of tensors.*torch\.where",
    ),
    "wrong backward": (
        lambda: Net(lambda net, v: Wrong.apply(v)),
        r"(test_gradient_rules|written_gradients)\.py:\d+, and cannot be differentiated: KeyError",
    ),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_refusals_name_the_line(name: str) -> None:
    make, words = REFUSED[name]
    model = make().train()
    with pytest.raises(
        GradientError, match=rf"(test_gradient_rules|written_gradients)\.py:\d+.*{words}"
    ) as caught:
        export_training(model, INPUTS)
    assert "report" not in str(caught.value)


def returning(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad.mul_(2)


def test_what_a_hook_after_accumulation_returns_is_not_looked_at() -> None:
    """Torch refuses the hook; the gradient that it wrote counts here."""
    register = build(lambda net: net.scale.register_post_accumulate_grad_hook(returning))
    with pytest.raises(RuntimeError, match="should return None"):
        register()(**INPUTS)[0].backward()
    assert export_training(register().train(), INPUTS).program.parts


def test_a_hook_on_an_accumulator_is_refused_only_while_it_is_there() -> None:
    model = Net(plain).train()
    handle = accumulator(model.scale).register_prehook(tripled)
    from_torch_model_(model)  # which gives it another parameter
    with pytest.raises(GradientError, match=r"test_gradient_rules\.py:\d+ is registered on"):
        export_training(model, INPUTS)
    handle.remove()
    assert export_training(model, INPUTS).program.parts
