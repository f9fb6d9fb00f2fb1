"""Five steps of training on the device, and in torch."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest import mock

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import samba_onnx as samba
from tests.architectures.building import Example, build, tensors
from tests.architectures.inference import fallen_operators, pef_path
from tests.architectures.record import Architecture

STEPS: Final = 5
_DESCENT: Final = {"lr": 1e-2, "momentum": 0.9}
_ADAM: Final[Mapping[str, Any]] = {
    "lr": 1e-3,
    "weight_decay": 0.01,
    "betas": (0.9, 0.997),
    # An error of a gradient that is nearly zero is multiplied by lr / eps: with 1e-6, the rounding
    # error of one number in a thousand decides the outcome, and torch's own is the luck of one draw.
    "eps": 1e-4,
}
_WRONG: Final = 1.01

FACTOR: Final = 10
"""How much larger than torch's own error the device's may be."""
FLOOR: Final = 2e-6
"""Error that is always allowed, as a fraction of a value's largest number: what rounding the result
to float32 and summing a few products in another order cost."""


@dataclass(frozen=True)
class Course:
    """What training gave: the loss of every step, and parameters and buffers at the end."""

    losses: Tensor
    """float64, one per step."""
    members: Mapping[str, Tensor]
    """By path."""


@dataclass(frozen=True)
class Trained:
    """How training on the device compares with torch in float64."""

    parameters: int
    """That were trained."""
    loss: float
    """Largest error of a loss, as a fraction of it."""
    error: float
    """Largest error of a parameter or buffer, as a fraction of its largest number."""
    excess: float
    """Largest error of any of these, in terms of what is allowed."""
    worst: str
    """Where that is."""
    wrong: float
    """The same of torch itself with a learning rate that is 1 % off."""
    fallbacks: tuple[str, ...]
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether the device is within bounds, and the wrong trainer is not."""
        return self.excess <= 1 < self.wrong


def train_architecture(
    architecture: Architecture, folder: Path, *, device_rate: float = 1.0
) -> Trained:
    """Train an architecture on the device, and compare it with torch.

    Half of its parameters learn by stochastic gradient descent with momentum, half by AdamW.

    Args:
        architecture: A record with labels.
        folder: Where the PEF goes.
        device_rate: Factor of the learning rates on the device; what is not 1 is a wrong trainer.
    """
    started = time.perf_counter()
    example = build(architecture, training=True)
    truth = _eager(example, torch.float64)
    own = _eager(example, torch.float32)
    wrong = _eager(example, torch.float32, _WRONG)
    made, fallbacks = _on_device(example, pef_path(architecture, folder), device_rate)
    excess, worst = _excess(made, own, truth)
    errors = (_error(made.members[name], truth.members[name]) for name in truth.members)
    return Trained(
        parameters=len(list(example.module.parameters())),
        loss=_error(made.losses, truth.losses),
        error=max(errors),
        excess=excess,
        worst=worst,
        wrong=_excess(wrong, own, truth)[0],
        fallbacks=fallbacks,
        seconds=time.perf_counter() - started,
    )


def _optimizers(module: nn.Module, library: Any, factor: float = 1.0) -> list[Optimizer]:
    """Return an optimizer of every other parameter, and one of the rest."""
    parameters = [one for one in module.parameters() if one.requires_grad]
    descent = {**_DESCENT, "lr": _DESCENT["lr"] * factor}
    adam = {**_ADAM, "lr": _ADAM["lr"] * factor}
    return [library.SGD(parameters[::2], **descent), library.AdamW(parameters[1::2], **adam)]


def _eager(example: Example, dtype: torch.dtype, factor: float = 1.0) -> Course:
    module = copy.deepcopy(example.module).to(dtype)
    inputs = {
        name: value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value
        for name, value in example.inputs.items()
    }
    optimizers = _optimizers(module, torch.optim, factor)
    losses = []
    with _limits_of_float32():
        for _ in range(STEPS):
            loss = tensors(module(**inputs))[0]
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            losses.append(loss.detach().double())
    return Course(torch.stack(losses), _members(module))


@contextlib.contextmanager
def _limits_of_float32() -> Iterator[None]:
    """Let models in float64 mask with the constants that they have in float32.

    The sum of two least numbers is minus infinity, and a softmax of nothing else NaN; float32 is
    spared that where the mask is computed in another way.
    """
    limits = torch.finfo

    def narrow(dtype: torch.dtype | None = None) -> torch.finfo:
        return limits(torch.float32 if dtype in (None, torch.float64) else dtype)

    with mock.patch.object(torch, "finfo", narrow):
        yield


def _members(module: nn.Module) -> dict[str, Tensor]:
    members = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {
        name: value.detach().clone() for name, value in members.items() if value.is_floating_point()
    }


def _on_device(example: Example, path: Path, device_rate: float) -> tuple[Course, tuple[str, ...]]:
    module = copy.deepcopy(example.module)
    samba.session.reset()
    samba.from_torch_model_(module)
    optimizers = _optimizers(module, samba.optim, device_rate)
    inputs = dict(example.inputs)
    samba.session.compile(module, inputs, optimizers, output=path, check=False)
    outputs = samba.utils.trace_graph(module, inputs, optimizers, pef=path)
    given = {name: value for name, value in inputs.items() if isinstance(value, Tensor)}
    losses = [samba.session.run(given, outputs[:1])[0].torch().double() for _ in range(STEPS)]
    samba.session.to_cpu(module)
    manifest = samba.session._program.manifest
    fallbacks = set(fallen_operators(manifest))
    members = {name: samba.to_torch(value) for name, value in _members(module).items()}
    return Course(torch.stack(losses), members), tuple(sorted(fallbacks))


def _excess(made: Course, own: Course, truth: Course) -> tuple[float, str]:
    """Return the largest error in terms of what is allowed, and where it is."""
    pairs: list[tuple[float, str]] = [
        (_terms(made.losses[step], own.losses[step], truth.losses[step]), f"loss of step {step}")
        for step in range(STEPS)
    ]
    pairs += [
        (_terms(made.members[name], own.members[name], truth.members[name]), name)
        for name in truth.members
    ]
    return max(pairs)


def _terms(made: Tensor, own: Tensor, truth: Tensor) -> float:
    if not made.isfinite().all():
        return float("inf")
    exact = truth.double()
    scale = float(exact.abs().max())
    allowed = FACTOR * float((own.double() - exact).abs().max()) + FLOOR * scale
    return float((made.double() - exact).abs().max()) / max(allowed, 1e-30)


def _error(made: Tensor, truth: Tensor) -> float:
    exact = truth.double()
    return float((made.double() - exact).abs().max()) / max(float(exact.abs().max()), 1e-30)
