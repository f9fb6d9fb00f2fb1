"""Training as a user writes it, on the device and in eager torch, step by step.

What is compared is everything that a step makes: outputs, gradients, buffers and parameters. The
measure is torch itself: it trains the same model once in float32 and once in float64. Whatever
float32 can be expected to get right, torch's own float32 gets right, so the device may be as far
from float64 as ten times torch's float32 is. Ten, and not one, because two correct computations
round in different places, and the error of a tensor as small as a bias is one draw of luck. Where
torch's float32 happens to be exact, a few units in the last place of the tensor remain (``ULPS``).
A gradient whose true value is zero, such as that of a key's bias under softmax, is noise that
cancelled: its floor is measured by the gradients next to it (``NEIGHBOURS``). AdamW divides by the
gradient's size, and would make large noise of small: its ``eps`` is chosen such that it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import samba_onnx as samba
from samba_onnx.sessions import SESSION

ULPS = 16 * torch.finfo(torch.float32).eps
"""Error that is always allowed, relative to the largest value of the tensor: about 2e-6."""
NEIGHBOURS = 1e-7
"""Error that is always allowed, relative to the largest value of that kind in the step."""
FACTOR = 10
"""How many times torch's own error the device's may be."""

Values = dict[str, Tensor]


@dataclass(frozen=True)
class Case:
    """A model, what it is fed, and how it is trained."""

    name: str
    build: Callable[[], nn.Module]
    """Makes the model; its outputs are a tuple that begins with the losses."""
    draw: Callable[[], dict[str, Tensor]]
    """Draws the inputs of one step, by the parameters of ``forward``."""
    optimize: Callable[[Any, nn.Module], list[Optimizer]]
    """Makes optimizers of ``torch.optim`` or ``samba.optim``, whichever is given."""
    losses: int = 1
    steps: int = 3
    seed: int = 0

    def __str__(self) -> str:
        return self.name

    def model(self) -> nn.Module:
        torch.manual_seed(self.seed)
        return self.build().train()

    def batches(self) -> list[dict[str, Tensor]]:
        torch.manual_seed(self.seed + 1)
        return [self.draw() for _ in range(self.steps)]


def sgd(optim: Any, model: nn.Module) -> list[Optimizer]:
    return [optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)]


def adamw(optim: Any, model: nn.Module) -> list[Optimizer]:
    return [
        optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), eps=1e-3, weight_decay=0.01)
    ]


@dataclass
class Trajectory:
    """What every step of a training made, by kind and name."""

    steps: list[Values] = field(default_factory=list)

    def note(self, kind: str, values: Mapping[str, Tensor | None]) -> None:
        noted = {f"{kind} {n}": v.detach().clone() for n, v in values.items() if v is not None}
        self.steps[-1].update(noted)


def eager(case: Case, dtype: torch.dtype) -> Trajectory:
    """Train in eager torch."""
    model = case.model().to(dtype)
    optimizers = case.optimize(torch.optim, model)
    made = Trajectory()
    for batch in case.batches():
        made.steps.append({})
        given = {n: t.to(dtype) if t.is_floating_point() else t for n, t in batch.items()}
        outputs = model(**given)
        # Before the step: an output may be a view of a parameter.
        made.note("output", {str(i): output for i, output in enumerate(outputs)})
        for optimizer in optimizers:
            optimizer.zero_grad()
        torch.stack([loss.sum() for loss in outputs[: case.losses]]).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
        parameters = dict(model.named_parameters())
        made.note("gradient", {n: p.grad for n, p in parameters.items()})
        made.note("parameter", parameters)
        made.note("buffer", dict(model.named_buffers()))
    return made


@dataclass(frozen=True)
class Prepared:
    """A model that was compiled and traced."""

    model: nn.Module
    optimizers: list[Optimizer]
    inputs: dict[str, samba.SambaTensor]
    outputs: tuple[samba.SambaTensor, ...]
    path: str

    def run(self, batch: Mapping[str, Tensor] | None = None, **options: Any) -> tuple[Tensor, ...]:
        """Run with a batch, or with the values that the device has; return plain outputs."""
        named = [samba.from_torch_tensor(t, name=n) for n, t in (batch or {}).items()]
        results = SESSION.run(named or None, self.outputs, **options)
        return tuple(samba.to_torch(result) for result in results)

    def gradients(self) -> dict[str, Tensor]:
        """Gradients on the device, by parameter; those that there are."""
        return {
            name: samba.to_torch(parameter.sn_grad)
            for name, parameter in self.model.named_parameters()
            if parameter.sn_grad_name in SESSION.tensor_dict["grads"]
        }

    def parameters(self) -> dict[str, Tensor]:
        """Parameters on the device; those that the program does not use, on the host."""
        weights = SESSION.tensor_dict["weights"]
        return {
            name: p.sn_data if p.sn_name in weights else samba.to_torch(p)
            for name, p in self.model.named_parameters()
        }

    def buffers(self) -> dict[str, Tensor]:
        """Buffers on the device; those that the program does not use, on the host."""
        root = type(self.model).__name__.lower()
        known = SESSION.tensor_dict["buffers"]
        found = {}
        for name, buffer in self.model.named_buffers():
            device = known.get("__".join([root, *name.split(".")]))
            found[name] = samba.to_torch(buffer) if device is None else device.sn_data
        return found


def prepare(
    model: nn.Module,
    batch: Mapping[str, Tensor],
    optimizers: Sequence[Optimizer],
    folder: Path,
    trace: Mapping[str, Any] | None = None,
    **options: Any,
) -> Prepared:
    """Compile and trace a converted model."""
    inputs = {n: samba.from_torch_tensor(t.clone(), name=n) for n, t in batch.items()}
    path = SESSION.compile(model, inputs, list(optimizers), output=folder / "m.pef", **options)
    outputs = samba.utils.trace_graph(model, inputs, list(optimizers), pef=path, **(trace or {}))
    return Prepared(model, list(optimizers), inputs, outputs, path)


def prepare_case(case: Case, folder: Path, **options: Any) -> Prepared:
    """Compile and trace the model of a case."""
    model = case.model()
    samba.from_torch_model_(model)
    optimizers = case.optimize(samba.optim, model)
    return prepare(model, case.batches()[0], optimizers, folder, **options)


def on_device(case: Case, folder: Path) -> Trajectory:
    """Train on the device, through the public interface."""
    prepared = prepare_case(case, folder)
    made = Trajectory()
    for batch in case.batches():
        made.steps.append({})
        outputs = prepared.run(batch)
        made.note("output", {str(i): output for i, output in enumerate(outputs)})
        made.note("gradient", prepared.gradients())
        made.note("parameter", prepared.parameters())
        made.note("buffer", prepared.buffers())
    return made


def differences(device: Trajectory, exact: Trajectory, single: Trajectory) -> list[str]:
    """Say where a training on the device is further from float64 than it may be."""
    found = []
    for number, (had, true, rounded) in enumerate(
        zip(device.steps, exact.steps, single.steps, strict=True), 1
    ):
        if had.keys() != true.keys():
            found.append(f"step {number}: not both have {sorted(had.keys() ^ true.keys())}")
        largest: dict[str, float] = {}
        for name, value in true.items():
            kind = name.split()[0]
            if value.is_floating_point():
                largest[kind] = max(largest.get(kind, 0.0), _largest(value))
        for name in sorted(had.keys() & true.keys()):
            floor = NEIGHBOURS * largest.get(name.split()[0], 0.0)
            complaint = _complaint(had[name], true[name], rounded[name], floor)
            if complaint:
                found.append(f"step {number}: {name}: {complaint}")
    return found


def _complaint(had: Tensor, true: Tensor, rounded: Tensor, floor: float) -> str:
    if had.shape != true.shape:
        return f"has shape {list(had.shape)}, torch's has {list(true.shape)}"
    if not true.is_floating_point():
        return "" if torch.equal(had, true) else "integers differ"
    finite = true.isfinite()
    if not torch.equal(had[~finite].double().nan_to_num(), true[~finite].double().nan_to_num()):
        return "numbers that are not finite differ"
    had, true, rounded = had[finite], true[finite], rounded[finite]
    own = _largest(rounded.double() - true)
    error = _largest(had.double() - true)
    allowed = FACTOR * own + ULPS * _largest(true) + floor
    if error <= allowed:
        return ""
    return (
        f"error {error:.2e}, allowed {allowed:.2e}, torch's own {own:.2e}, of {_largest(true):.2e}"
    )


def _largest(values: Tensor) -> float:
    return float(values.abs().max()) if values.numel() else 0.0
