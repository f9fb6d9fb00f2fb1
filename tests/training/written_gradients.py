"""Gradients that a user writes: functions with a backward of their own, and hooks.

A case is a small network that uses one of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.training.trajectory import Case, sgd


class RoundThrough(Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, levels: float) -> Tensor:
        return (value * levels).round() / levels

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient, None


class Reverse(Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, strength: float) -> Tensor:
        ctx.strength = strength
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return -ctx.strength * gradient, None


class Same(Function):
    """Returns its operand itself."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return value

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return 0.25 * gradient


class SavingTanh(Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        result = value.tanh()
        ctx.save_for_backward(value, result)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        value, result = ctx.saved_tensors
        return gradient * (1.5 - result.square()) + 0.1 * value


class Separate(Function):
    """In the newer style, with a default and an operand that may not be differentiated."""

    @staticmethod
    def forward(value: Tensor, weight: Tensor, scale: float = 2.0) -> tuple[Tensor, Tensor]:
        return value * weight * scale, (value > 0).to(torch.int64)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        value, weight, scale = inputs
        ctx.save_for_backward(value, weight)
        ctx.scale = scale
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Any) -> Any:
        value, weight = ctx.saved_tensors
        by_value = gradient * weight * 0.5 if ctx.needs_input_grad[0] else None
        by_weight = (gradient * value).sum(0) * ctx.scale if ctx.needs_input_grad[1] else None
        return by_value, by_weight, None


class TwoResults(Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        return value.relu(), value.sigmoid()

    @staticmethod
    def backward(ctx: Any, one: Tensor | None, other: Tensor | None) -> Tensor | None:
        if other is None:
            return None if one is None else one * 3
        return other if one is None else one * 2 - other


class Unused(Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, other: Tensor) -> Tensor:
        return value + other

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient * 2, None


class Nested(Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        ctx.save_for_backward(value)
        return SavingTanh.apply(value) + RoundThrough.apply(value, 4.0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (value,) = ctx.saved_tensors
        with torch.enable_grad():
            again = value.detach().requires_grad_()
            result = Reverse.apply(again.exp(), 0.5)
        (inner,) = torch.autograd.grad(result, again, gradient)
        return inner


class WithModule(Function):
    """Recomputes a module in its backward, as memory savers do."""

    @staticmethod
    def forward(ctx: Any, module: nn.Linear, value: Tensor, *weights: Tensor) -> Tensor:
        ctx.module = module
        ctx.save_for_backward(value)
        return torch.relu(module(value))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (value,) = ctx.saved_tensors
        weights = tuple(ctx.module.parameters())
        with torch.enable_grad():
            again = value.detach().requires_grad_()
            result = torch.relu(ctx.module(again))
        by_value, *by_weights = torch.autograd.grad(result, (again, *weights), gradient)
        return None, by_value * 0.5, *(3 * g for g in by_weights)


class ByLargest(Function):
    """Takes a number out of a tensor in its forward."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, weight: Tensor) -> Tensor:
        rows = int(torch.tensor(2).item())
        ctx.rows = rows
        return value * rows

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient / ctx.rows, None


class Dirty(Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        value.mul_(2)
        ctx.mark_dirty(value)
        return value

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 5


round_through = RoundThrough.apply
MASK = torch.tensor([1.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0])


class Net(nn.Module):
    """Two layers with dropout, and between them whatever a case does."""

    def __init__(self, between: Callable[[Net, Tensor], Tensor], rate: float = 0.0) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.norm = nn.LayerNorm(8)
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 8))
        self.dropout = nn.Dropout(rate)
        self.inner = nn.Linear(8, 8)
        self.register_buffer("mask", MASK.clone())
        self.second = nn.Linear(8, 4)
        self.between = between

    def forward(self, x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.between(self, self.norm(self.first(x)) * self.scale)
        logits = self.second(self.dropout(hidden))
        return nn.functional.cross_entropy(logits, label), logits


def hooked(*hooks: Callable[[Tensor], Any]) -> Callable[[Net, Tensor], Tensor]:
    def between(net: Net, value: Tensor) -> Tensor:
        value = net.inner(value)
        if value.requires_grad:
            for hook in hooks:
                value.register_hook(hook)
        return value + value.tanh()

    return between


def gated(net: Net, value: Tensor) -> Tensor:
    """A hook that knows a tensor of the forward and a buffer."""
    gate = (value > 0).float()
    result = net.inner(value)
    result.register_hook(lambda gradient: gradient * gate * net.mask + 0.1 * net.scale)
    return result


def made_inside(net: Net, value: Tensor) -> Tensor:
    """A function whose class is made in the forward, around tensors of it."""
    gate = torch.sigmoid(value)

    class Gated(Function):
        @staticmethod
        def forward(ctx: Any, operand: Tensor) -> Tensor:
            return operand * gate

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return gradient * gate * 2 + net.mask

    result: Tensor = Gated.apply(net.inner(value))
    return result


def looped(net: Net, value: Tensor) -> Tensor:
    for _ in range(3):
        value = SavingTanh.apply(value)
    return value


def fresh_state(net: Net, value: Tensor) -> Tensor:
    """A hook that writes to a tensor of the same run."""
    state = torch.zeros(8)
    value.register_hook(lambda g: g + state.add_(g.mean(0)))
    return value.sin()


class ByLargestGradient(Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return value * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * gradient.max().item()


def penalised(net: Net, value: Tensor) -> Tensor:
    """A gradient inside the forward, through a function with a backward of its own."""
    value = value.detach().requires_grad_()
    energy = Reverse.apply(net.inner(value).tanh(), 0.5).square().sum()
    (slope,) = torch.autograd.grad(energy, value, create_graph=True)
    return slope * net.scale + (slope.norm(dim=1, keepdim=True) - 1).square()


def learned(net: Net, value: Tensor) -> Tensor:
    """A step of an optimizer inside the forward, as in meta-learning."""
    loss = net.inner(value).tanh().square().mean()
    gradients = torch.autograd.grad(loss, list(net.inner.parameters()), create_graph=True)
    pairs = zip(net.inner.parameters(), gradients, strict=True)
    weight, bias = (parameter - 0.1 * gradient for parameter, gradient in pairs)
    return nn.functional.linear(value, weight, bias)


def in_place(gradient: Tensor) -> None:
    gradient.mul_(0.5)


BETWEEN: dict[str, Callable[[Net, Tensor], Tensor]] = {
    "straight through": lambda net, v: RoundThrough.apply(v, 8.0),
    "by another name": lambda net, v: round_through(v, 8.0),
    "reversal": lambda net, v: v + Reverse.apply(net.inner(v), 0.3),
    "identity": lambda net, v: Same.apply(v),
    "saved tensors": lambda net, v: SavingTanh.apply(v),
    "setup_context": lambda net, v: (
        Separate.apply(v, net.mask)[0] + Separate.apply(v, net.scale)[0]
    ),
    "integers beside": lambda net, v: math.prod(Separate.apply(v, net.scale, 3.0)),
    "two results": lambda net, v: sum(TwoResults.apply(v)),
    "one of two": lambda net, v: TwoResults.apply(v)[0],
    "no gradient": lambda net, v: Unused.apply(v, net.inner(v)),
    "nested": lambda net, v: Nested.apply(v),
    "loop": looped,
    "with a module": lambda net, v: WithModule.apply(net.inner, v, *net.inner.parameters()),
    "number": lambda net, v: ByLargest.apply(v, net.scale),
    "written operand": lambda net, v: Dirty.apply(net.inner(v) * 1),
    "made in forward": made_inside,
    "number of the backward": lambda net, v: ByLargestGradient.apply(v),
    "hook with a state": fresh_state,
    "gradient penalty": penalised,
    "meta-learning": learned,
    "hook": hooked(lambda g: g * 3),
    "hook in place": hooked(in_place),
    "two hooks": hooked(lambda g: g + 1e-2, lambda g: g.clamp(-0.05, 0.05)),
    "hook with a mask": hooked(lambda g: g * MASK),
    "hook with the forward's tensors": gated,
}


def case(name: str, build: Callable[[], nn.Module], optimize: Any = sgd) -> Case:
    def draw() -> dict[str, Tensor]:
        return {"x": torch.randn(5, 6), "label": torch.randint(0, 4, (5,))}

    return Case(name, build, draw, optimize, steps=2)


def trainable(optim: Any, model: nn.Module) -> Any:
    return [optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05, momentum=0.9)]


def plain(net: Net, value: Tensor) -> Tensor:
    return torch.relu(net.inner(value))


def halved(module: nn.Module, by_input: Any, by_output: Any) -> Any:
    return tuple(None if g is None else g * 0.5 for g in by_input)


def weight_as_well(module: nn.Linear, by_input: Any, by_output: Any) -> Any:
    """A hook that reads its module's parameter and what comes from behind."""
    return (by_input[0] + 0.01 * by_output[0] @ module.weight,)


def tripled_before(module: nn.Module, by_output: Any) -> Any:
    return (by_output[0] * 3,)


def clipped(parameter: Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad.clamp_(-0.02, 0.02)


def replaced_gradient(parameter: Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad = parameter.grad * 0.5 + 0.01


def scaled_by_itself(net: Net) -> None:
    weight = net.first.weight
    weight.register_hook(lambda gradient: gradient + 0.1 * weight * net.mask.unsqueeze(1))


def removed(net: Net) -> None:
    net.first.weight.register_hook(lambda gradient: gradient * 7).remove()
    net.first.bias.register_hook(lambda gradient: gradient * 2)


def forward_hooks(net: Net) -> None:
    net.inner.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 2,))
    net.inner.register_forward_hook(lambda module, inputs, result: result + inputs[0])
    net.first.register_forward_hook(
        lambda module, inputs, keywords, result: result.tanh(), with_kwargs=True
    )


REGISTER: dict[str, Callable[[Net], Any]] = {
    "parameter": lambda net: net.first.weight.register_hook(lambda g: g * 3),
    "parameter in place": lambda net: net.scale.register_hook(in_place),
    "parameter by mask": lambda net: net.inner.bias.register_hook(lambda g: g * MASK),
    "parameter by itself": scaled_by_itself,
    "several": lambda net: [
        p.register_hook(lambda g: g.clamp(-0.1, 0.1)) for p in net.parameters()
    ],
    "removed": removed,
    "accumulated in place": lambda net: net.inner.weight.register_post_accumulate_grad_hook(
        clipped
    ),
    "accumulated, replaced": lambda net: net.scale.register_post_accumulate_grad_hook(
        replaced_gradient
    ),
    "module": lambda net: net.inner.register_full_backward_hook(halved),
    "module reads": lambda net: net.inner.register_full_backward_hook(weight_as_well),
    "module before": lambda net: net.inner.register_full_backward_pre_hook(tripled_before),
    "module, both": lambda net: (
        net.norm.register_full_backward_hook(halved),
        net.norm.register_full_backward_pre_hook(tripled_before),
    ),
    "forward hooks": forward_hooks,
}


def build(register: Callable[[Net], Any], rate: float = 0.0) -> Callable[[], Net]:
    def build_net() -> Net:
        net = Net(plain, rate)
        register(net)
        return net

    return build_net


KINDS: dict[str, Callable[[], Net]] = {
    "function": lambda: Net(lambda net, v: Nested.apply(v)),
    "tensor hook": lambda: Net(gated),
    "parameter hook": build(scaled_by_itself),
    "accumulation hook": build(REGISTER["accumulated in place"]),
    "module hook": build(REGISTER["module, both"]),
}
"""One of each kind."""
