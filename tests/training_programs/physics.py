"""Physics: equations as losses, energies whose derivatives move things, and learnt integrators."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from tests.training_programs.machines import Machine, Weights, adam, sgd


def derivative(of: Tensor, by: Tensor) -> Tensor:
    """What every program about such networks calls ``gradients``."""
    return torch.autograd.grad(of, by, torch.ones_like(of), create_graph=True)[0]


def heat_equation(on: Machine) -> Weights:
    """u_t = u_xx with initial and boundary values; x and t are made to require gradients in ``forward``."""

    class PINN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(
                nn.Linear(2, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 1)
            )

        def u(self, x: Tensor, t: Tensor) -> Tensor:
            return self.net(torch.cat([x, t], dim=1))

        def forward(self, x: Tensor, t: Tensor, edge: Tensor, start: Tensor) -> dict[str, Tensor]:
            x.requires_grad_(True)
            t.requires_grad_(True)
            u = self.u(x, t)
            u_xx = derivative(derivative(u, x), x)
            residual = (derivative(u, t) - 0.1 * u_xx).square().mean()
            initial = self.u(start, torch.zeros_like(start)) - torch.sin(torch.pi * start)
            boundary = self.u(edge, t)
            return {"loss": residual + initial.square().mean() + boundary.square().mean()}

    def batch() -> dict[str, Tensor]:
        edge = torch.randint(2, (16, 1)).float()
        return {
            "x": torch.rand(16, 1),
            "t": torch.rand(16, 1),
            "edge": edge,
            "start": torch.rand(16, 1),
        }

    trainer = on.trainer(PINN(), batch(), adam(0.005))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def burgers(on: Machine) -> Weights:
    """An inverse problem: the viscosity is a parameter; both derivatives come from one input of two columns."""

    class Inverse(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(2, 16), nn.Linear(16, 16), nn.Linear(16, 1)])
            self.log_nu = nn.Parameter(torch.tensor(-2.0))

        def solve(self, xt: Tensor) -> Tensor:
            h = xt
            for layer in self.layers[:-1]:
                h = torch.sin(layer(h))
            return self.layers[-1](h)

        def forward(self, xt: Tensor, seen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            xt = xt.detach().requires_grad_()
            u = self.solve(xt)
            first = torch.autograd.grad(u.sum(), xt, create_graph=True)[0]
            second = torch.autograd.grad(first[:, 0].sum(), xt, create_graph=True)[0]
            residual = first[:, 1:] + u * first[:, :1] - self.log_nu.exp() * second[:, :1]
            equation, data = residual.pow(2).mean(), functional.mse_loss(u, seen)
            return equation + data, equation.detach(), data.detach()

    def batch() -> dict[str, Tensor]:
        xt = torch.rand(20, 2) * 2 - 1
        return {"xt": xt, "seen": -torch.sin(torch.pi * xt[:, :1]) * torch.exp(-xt[:, 1:])}

    trainer = on.trainer(Inverse(), batch(), sgd(0.01), losses=[0])
    for _ in range(20):
        on.note(*trainer.step(batch()))
    return trainer.weights()


def functional_pinn(on: Machine) -> Weights:
    """The same idea by ``torch.func``: ``vmap(grad(grad(u)))`` over a functional call."""

    class Oscillator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(1, 12), nn.Tanh(), nn.Linear(12, 1))

        def forward(self, t: Tensor) -> Tensor:
            params = dict(self.net.named_parameters())

            def u(time: Tensor) -> Tensor:
                return functional_call(self.net, params, (time.unsqueeze(0),)).squeeze()

            accel = vmap(grad(grad(u)))(t)
            return (accel + 4 * vmap(u)(t)).square().mean() + (u(torch.zeros(())) - 1) ** 2

    trainer = on.trainer(Oscillator(), {"t": torch.rand(12)}, sgd(0.01))
    for _ in range(20):
        on.note(trainer.step({"t": torch.rand(12)})[0])
    return trainer.weights()


def hamiltonian(on: Machine) -> Weights:
    """dq/dt = dH/dp and dp/dt = -dH/dq by a gradient in ``forward``; true orbits come from numpy."""

    class HNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.H = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 1, bias=False))
            self.register_buffer("J", torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))

        def forward(self, state: Tensor, velocity: Tensor) -> Tensor:
            with torch.enable_grad():
                state = state.clone().requires_grad_(True)
                dh = torch.autograd.grad(self.H(state).sum(), state, create_graph=True)[0]
            return functional.mse_loss(dh @ self.J.T, velocity)

    angle = np.linspace(0, 6, 200)
    orbit = np.stack([np.cos(angle), -np.sin(angle)], 1).astype(np.float32)
    field = np.stack([orbit[:, 1], -orbit[:, 0]], 1)

    def batch(rows: np.ndarray) -> dict[str, Tensor]:
        return {"state": torch.from_numpy(orbit[rows]), "velocity": torch.from_numpy(field[rows])}

    chance = np.random.default_rng(0)
    trainer = on.trainer(HNN(), batch(np.arange(16)), sgd(0.2, momentum=0.9))
    for _ in range(20):
        on.note(trainer.step(batch(chance.integers(0, 200, 16)))[0])
    return trainer.weights()


def lagrangian(on: Machine) -> Weights:
    """The Euler-Lagrange equation of one coordinate: a mixed second derivative divides another one."""

    class LNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(2, 16), nn.Linear(16, 1)

        def lagrangian(self, q: Tensor, v: Tensor) -> Tensor:
            h = functional.softplus(self.one(torch.stack([q, v], -1)))
            return 0.5 * v**2 + 0.1 * self.two(h).squeeze(-1)

        def forward(self, q: Tensor, v: Tensor, a: Tensor) -> Tensor:
            q, v = q.requires_grad_(), v.requires_grad_()
            energy = self.lagrangian(q, v).sum()
            dq, dv = torch.autograd.grad(energy, (q, v), create_graph=True)
            dvdq, dvdv = torch.autograd.grad(dv.sum(), (q, v), create_graph=True)
            return functional.huber_loss((dq - dvdq * v) / dvdv, a)

    def batch() -> dict[str, Tensor]:
        q = torch.rand(16) * 3 - 1.5
        return {"q": q, "v": torch.randn(16), "a": -torch.sin(q)}

    trainer = on.trainer(LNN(), batch(), sgd(0.1))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def rk4(field: Callable[[Tensor, Tensor], Tensor], y: Tensor, t: Tensor, dt: float) -> Tensor:
    k1 = field(t, y)
    k2 = field(t + dt / 2, y + dt / 2 * k1)
    k3 = field(t + dt / 2, y + dt / 2 * k2)
    k4 = field(t + dt, y + dt * k3)
    return y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def neural_ode(on: Machine) -> Weights:
    """Runge-Kutta with fixed steps; the whole trajectory is compared with a spiral."""

    class ODE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 2))

        def field(self, t: Tensor, y: Tensor) -> Tensor:
            return self.f(torch.cat([y**3, t.expand(y.shape[0], 1)], dim=-1))

        def forward(self, start: Tensor, path: Tensor) -> tuple[Tensor, Tensor]:
            made = [start]
            for t in torch.arange(0.0, 0.5, 0.1):
                made.append(rk4(self.field, made[-1], t, 0.1))
            whole = torch.stack(made[1:], 1)
            return torch.nn.functional.l1_loss(whole, path), whole

    spin = torch.matrix_exp(0.1 * torch.tensor([[-0.1, 2.0], [-2.0, -0.1]]))

    def batch() -> dict[str, Tensor]:
        path = [torch.randn(8, 2)]
        for _ in range(5):
            path.append(path[-1] @ spin)
        return {"start": path[0], "path": torch.stack(path[1:], 1)}

    trainer = on.trainer(ODE(), batch(), sgd(0.05))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def particle_simulator(on: Machine) -> Weights:
    """A graph network that predicts accelerations; the rollout of two steps is inside ``forward``."""

    class Simulator(nn.Module):
        def __init__(self, particles: int = 5) -> None:
            super().__init__()
            pairs = [(i, j) for i in range(particles) for j in range(particles) if i != j]
            self.source, self.target = torch.tensor(pairs).T
            self.edge = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 8))
            self.node = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 2))

        def accelerate(self, x: Tensor, v: Tensor) -> Tensor:
            gap = x[:, self.source] - x[:, self.target]
            distance = gap.norm(dim=-1, keepdim=True)
            e = self.edge(torch.cat([gap, distance, v[:, self.target]], -1))
            total = x.new_zeros(*x.shape[:2], 8).index_add(1, self.target, e)
            return self.node(torch.cat([total, v], -1))

        def forward(self, x: Tensor, v: Tensor, after: Tensor) -> Tensor:
            for _ in range(2):
                v = v + 0.1 * self.accelerate(x, v)
                x = x + 0.1 * v
            return 100 * functional.mse_loss(x, after)

    def batch() -> dict[str, Tensor]:
        x, v = torch.randn(4, 5, 2), torch.randn(4, 5, 2)
        return {"x": x, "v": v, "after": x + 0.2 * v - 0.05 * (x - x.mean(1, keepdim=True))}

    trainer = on.trainer(Simulator(), batch(), adam(0.005))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def deep_o_net(on: Machine) -> Weights:
    """Branch and trunk meet in an einsum; the operator to be learnt is an antiderivative by numpy."""
    grid = np.linspace(0, 1, 12, dtype=np.float32)

    def mlp(*sizes: int) -> nn.Sequential:
        parts: list[nn.Module] = []
        for a, b in itertools.pairwise(sizes):
            parts += [nn.Linear(a, b), nn.Mish()]
        return nn.Sequential(*parts[:-1])

    class DeepONet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.branch, self.trunk = mlp(12, 16, 8), mlp(1, 16, 8)
            self.b0 = nn.Parameter(torch.zeros(1))

        def forward(self, sensors: Tensor, points: Tensor, truth: Tensor) -> Tensor:
            made = torch.einsum("bk,pk->bp", self.branch(sensors), self.trunk(points)) + self.b0
            return (made - truth).norm() / truth.norm()

    chance = np.random.default_rng(2)

    def batch() -> dict[str, Tensor]:
        coefficients = chance.normal(size=(6, 3)).astype(np.float32)
        values = sum(coefficients[:, k : k + 1] * np.cos(k * 3 * grid) for k in range(3))
        truth = np.cumsum(values, 1) / 12
        return {
            "sensors": torch.from_numpy(values),
            "points": torch.from_numpy(grid[:, None]),
            "truth": torch.from_numpy(truth.astype(np.float32)),
        }

    trainer = on.trainer(DeepONet(), batch(), sgd(0.05))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def fourier_operator(on: Machine) -> Weights:
    """Spectral convolution by ``rfft``; weights of the modes are real pairs, viewed as complex numbers."""

    class Spectral(nn.Module):
        def __init__(self, width: int, modes: int) -> None:
            super().__init__()
            self.modes = modes
            self.weight = nn.Parameter(torch.randn(width, width, modes, 2) / width)

        def forward(self, x: Tensor) -> Tensor:
            spectrum = torch.fft.rfft(x)
            w = torch.view_as_complex(self.weight)
            low = torch.einsum("bix,iox->box", spectrum[..., : self.modes], w)
            rest = torch.zeros_like(spectrum[..., self.modes :])
            return torch.fft.irfft(torch.cat([low, rest], -1), n=x.size(-1))

    class FNO(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lift, self.project = nn.Conv1d(1, 6, 1), nn.Conv1d(6, 1, 1)
            self.spectral, self.local = Spectral(6, 4), nn.Conv1d(6, 6, 1)

        def forward(self, u: Tensor, later: Tensor) -> Tensor:
            h = self.lift(u)
            h = functional.gelu(self.spectral(h) + self.local(h))
            return functional.mse_loss(self.project(h), later)

    def batch() -> dict[str, Tensor]:
        x = torch.arange(16) / 16 * 2 * torch.pi
        shift = torch.rand(5, 1, 1) * 6
        return {"u": torch.sin(x + shift), "later": 0.5 * torch.sin(x + shift + 0.5)}

    trainer = on.trainer(FNO(), batch(), sgd(0.1))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


PROGRAMS = [
    heat_equation,
    burgers,
    functional_pinn,
    hamiltonian,
    lagrangian,
    neural_ode,
    particle_simulator,
    deep_o_net,
    fourier_operator,
]
