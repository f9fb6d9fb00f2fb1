"""Ways to derivatives inside ``forward``, and layers to differentiate twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function, Variable, grad
from torch.autograd import functional as derivatives
from torch.func import functional_call
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils.parametrizations import spectral_norm, weight_norm
from torch.utils.checkpoint import checkpoint

Body = Callable[["Net", Tensor], Tensor]
"""Computes a loss of a network and its input."""


class Net(nn.Module):
    """Two smooth layers; the loss is whatever a body makes of them."""

    def __init__(self, body: Body) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(3, 6), nn.Linear(6, 1)
        self.body = body

    def u(self, x: Tensor) -> Tensor:
        return self.outer(torch.tanh(self.inner(x)))

    def forward(self, x: Tensor) -> tuple[Tensor]:
        return (self.body(self, x),)


def size(gradient: Tensor) -> Tensor:
    return gradient.square().mean()


def slope(net: Net, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return a copy of the input that requires gradients, and the gradient by it."""
    x = x.clone().requires_grad_(True)
    return x, grad(net.u(x).sum(), x, create_graph=True)[0]


def first(net: Net, x: Tensor) -> Tensor:
    return size(slope(net, x)[1])


def second(net: Net, x: Tensor) -> Tensor:
    x, g = slope(net, x)
    columns = [grad(g[:, i].sum(), x, create_graph=True)[0][:, i] for i in range(3)]
    return size(torch.stack(columns).sum(0) + net.u(x).squeeze(1))


def third(net: Net, x: Tensor) -> Tensor:
    x, g = slope(net, x)
    for _ in range(2):
        (g,) = grad(g.sum(), x, create_graph=True)
    return size(g)


def input_itself(net: Net, x: Tensor) -> Tensor:
    x.requires_grad_(True)
    return size(grad(net.u(x).sum(), x, create_graph=True)[0])


def setter(net: Net, x: Tensor) -> Tensor:
    x = x.detach().clone()
    x.requires_grad = True
    return size(grad(net.u(x).sum(), x, create_graph=True)[0])


def variable(net: Net, x: Tensor) -> Tensor:
    x = Variable(x, requires_grad=True)
    return size(grad(net.u(x).sum(), x, create_graph=True)[0])


def parameter_made(net: Net, x: Tensor) -> Tensor:
    x = nn.Parameter(x)
    return size(grad(net.u(x).sum(), x, create_graph=True)[0])


def factory(net: Net, x: Tensor) -> Tensor:
    delta = torch.zeros(4, 3, dtype=x.dtype, requires_grad=True)
    return size(grad(net.u(x + delta).sum(), delta, create_graph=True)[0])


def factory_like(net: Net, x: Tensor) -> Tensor:
    delta = torch.full_like(x, 0.1, requires_grad=True)
    return size(grad(outputs=net.u(x + delta).sum(), inputs=[delta], create_graph=True)[0])


def attack(net: Net, x: Tensor) -> Tensor:
    delta = torch.zeros_like(x, requires_grad=True)
    for _ in range(3):
        (g,) = grad(functional.mse_loss(net.u(x + delta), x[:, :1]), [delta])
        delta = (delta + 0.1 * g.sign()).clamp(-0.2, 0.2).detach().requires_grad_()
    return functional.mse_loss(net.u(x + delta.detach()), x[:, :1])


def enabled(net: Net, x: Tensor) -> Tensor:
    with torch.no_grad(), torch.enable_grad():
        g = slope(net, x)[1]
    return functional.mse_loss(net.u(x - 0.1 * g.detach()), x[:, :1])


def enabled_alone(net: Net, x: Tensor) -> Tensor:
    with torch.enable_grad():
        g = slope(net, x)[1]
    return functional.mse_loss(g, x)


def weights_of_a_step(net: Net, x: Tensor) -> Tensor:
    names, values = zip(*net.named_parameters(), strict=True)
    inner = functional.mse_loss(net.u(x[:2]), x[:2, :1])
    steps = grad(inner, values, create_graph=True)
    fast = {n: v - 0.1 * s for n, v, s in zip(names, values, steps, strict=True)}
    hidden = functional.linear(x[2:], fast["inner.weight"], fast["inner.bias"]).tanh()
    made = functional.linear(hidden, fast["outer.weight"], fast["outer.bias"])
    return functional.mse_loss(made, x[2:, :1])


def weights_of_a_call(net: Net, x: Tensor) -> Tensor:
    fast = dict(net.inner.named_parameters())
    for _ in range(2):
        made = net.outer(functional_call(net.inner, fast, x).tanh())
        steps = grad(size(made - x[:, 1:2]), list(fast.values()), create_graph=True)
        fast = {name: fast[name] - 0.1 * step for name, step in zip(fast, steps, strict=True)}
    return size(net.outer(functional_call(net.inner, fast, (x,)).tanh()))


def first_order(net: Net, x: Tensor) -> Tensor:
    weight = net.inner.weight
    (step,) = grad(size(net.u(x)), weight)
    return size(functional.linear(x, weight - 0.1 * step, net.inner.bias))


def several(net: Net, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    other = (2 * x.detach()).requires_grad_()
    one, two = grad(net.u(x * other).sum(), (x, other), create_graph=True)
    return size(one) + size(two)


def with_weights(net: Net, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    y = net.u(x)
    return size(grad(y, x, grad_outputs=torch.ones_like(y) * 2, create_graph=True)[0])


def batched(net: Net, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    every = torch.eye(4, dtype=x.dtype)
    rows = grad(net.u(x).squeeze(1), x, every, is_grads_batched=True, create_graph=True)
    return size(rows[0])


def unused(net: Net, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    other = x * 1.0
    g = grad(net.u(x).sum(), [x, other], create_graph=True, allow_unused=True)
    return size(g[0])


def materialised(net: Net, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    other = x * 1.0
    g = grad(net.u(x).sum(), [x, other], create_graph=True, materialize_grads=True)
    return size(g[0]) + g[1].sum()


def checkpointed(net: Net, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    y = checkpoint(net.u, x, use_reentrant=False)
    return size(grad(y.sum(), x, create_graph=True)[0])


def hessian(net: Net, x: Tensor) -> Tensor:
    return size(derivatives.hessian(lambda v: net.u(v).sum(), x, create_graph=True))


def jacobian(net: Net, x: Tensor) -> Tensor:
    return size(derivatives.jacobian(lambda v: net.u(v).sum(0), x, create_graph=True))


def product_with_hessian(net: Net, x: Tensor) -> Tensor:
    made = derivatives.hvp(lambda v: net.u(v).sum(), x, torch.ones_like(x), create_graph=True)
    return size(made[1])


def product_with_jacobian(net: Net, x: Tensor) -> Tensor:
    return size(derivatives.jvp(net.u, x, torch.ones_like(x), create_graph=True)[1])


def product_from_the_left(net: Net, x: Tensor) -> Tensor:
    ones = torch.ones(4, 1, dtype=x.dtype)
    return size(derivatives.vjp(net.u, x, ones, create_graph=True)[1])


class Cube(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return gradient * 3 * x**2


def own_function(net: Net, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    return size(grad(Cube.apply(net.u(x)).sum(), x, create_graph=True)[0])


WAYS: dict[str, Body] = {
    body.__name__: body
    for body in (
        first, second, third, input_itself, setter, variable, parameter_made, factory, factory_like,
        attack, enabled, enabled_alone, weights_of_a_step, weights_of_a_call, first_order, several,
        with_weights, batched, unused, materialised, checkpointed, hessian, jacobian,
        product_with_hessian, product_with_jacobian, product_from_the_left, own_function,
    )
}  # fmt: skip


class Penalised(nn.Module):
    """Any layers on (4, 2, 6), and the penalty of WGAN-GP on their gradient."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> tuple[Tensor]:
        x = x.clone().requires_grad_()
        y = self.layers(x)
        y = y[0] if isinstance(y, tuple) else y
        (g,) = grad(y.square().sum(), x, create_graph=True)
        return ((g.flatten(1).norm(dim=1) - 1).square().mean() + y.mean(),)


class Attended(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        # Eager torch's fused kernel for CPUs has no second derivative.
        with sdpa_kernel(SDPBackend.MATH):
            return functional.scaled_dot_product_attention(x, x.sin(), x)


class Attending(nn.MultiheadAttention):
    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        # Without weights it is fused, and torch's own fused attention has no second derivative on a CPU.
        return super().forward(x, x, x, need_weights=True)[0]


class Looking(nn.Module):
    """A soft look-up in a table, through a product of matrices and a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 6)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.table.weight
        return torch.einsum("bct,nt->bcn", x, weight).softmax(-1) @ weight


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "convolution": lambda: nn.Sequential(nn.Conv1d(2, 4, 3, padding=1), nn.Tanh(), nn.AvgPool1d(2)),
    "strided convolution": lambda: nn.Sequential(
        nn.Unflatten(2, (2, 3)), nn.Conv2d(2, 4, 2, stride=2, padding=1), nn.Sigmoid()
    ),
    "transposed convolution": lambda: nn.Sequential(
        nn.ConvTranspose1d(2, 3, 4, 2, 1), nn.Softplus()
    ),
    "grouped convolution": lambda: nn.Sequential(nn.Conv1d(2, 4, 3, groups=2), nn.SiLU()),
    "largest of a window": lambda: nn.Sequential(nn.Conv1d(2, 4, 3), nn.Tanh(), nn.MaxPool1d(2)),
    "layer normalisation": lambda: nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 3), nn.GELU()),
    "group normalisation": lambda: nn.Sequential(
        nn.GroupNorm(2, 2), nn.Linear(6, 3), nn.Softplus()
    ),
    "root mean square": lambda: nn.Sequential(nn.RMSNorm(6), nn.Linear(6, 3), nn.Mish()),
    "batch normalisation": lambda: nn.Sequential(nn.BatchNorm1d(2), nn.Linear(6, 3), nn.Tanh()),
    "instance normalisation": lambda: nn.Sequential(nn.InstanceNorm1d(2), nn.Linear(6, 3)),
    "attention by its function": lambda: nn.Sequential(Attended(), nn.Linear(6, 2)),
    "attention": lambda: nn.Sequential(Attending(6, 2, batch_first=True), nn.Linear(6, 2)),
    "recurrent": lambda: nn.GRU(6, 4, batch_first=True),
    "bidirectional": lambda: nn.RNN(6, 4, num_layers=2, bidirectional=True, batch_first=True),
    "long memory": lambda: nn.LSTM(6, 4, batch_first=True),
    "soft look-up": Looking,
    "spectral norm": lambda: nn.Sequential(spectral_norm(nn.Linear(6, 4)), nn.Tanh()),
    "weight norm": lambda: nn.Sequential(weight_norm(nn.Linear(6, 4)), nn.Tanh()),
    "leaky": lambda: nn.Sequential(nn.Linear(6, 4), nn.LeakyReLU(0.2), nn.Linear(4, 2)),
    "learnt slope": lambda: nn.Sequential(nn.Linear(6, 4), nn.PReLU(), nn.Linear(4, 2)),
    "exponential": lambda: nn.Sequential(nn.Linear(6, 4), nn.ELU(), nn.SELU(), nn.CELU()),
    "resized": lambda: nn.Sequential(
        nn.Upsample(scale_factor=2, mode="linear"), nn.Conv1d(2, 2, 3), nn.Tanh()
    ),
    "adaptive pooling": lambda: nn.Sequential(nn.Conv1d(2, 4, 1), nn.AdaptiveAvgPool1d(3)),
    "logarithm of softmax": lambda: nn.Sequential(nn.Linear(6, 4), nn.LogSoftmax(-1)),
    "bilinear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.GLU(), nn.Softsign()),
}
