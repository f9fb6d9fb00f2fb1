"""The two machines that a training program runs on: plain torch, and the session with its device.

A program is a function of a machine. It makes its model and data from the seed that the runner has
set, asks the machine for a trainer, notes a loss per step and returns the weights that it ends with.
What is written between the steps, such as replay buffers, queues and optimizers by hand, runs on the
host for both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves

import samba_onnx as samba

__all__ = ["Batch", "Device", "Eager", "Machine", "Trainer", "Weights", "adam", "sgd"]

Batch = Mapping[str, Tensor]
Weights = dict[str, Tensor]
Makes = Callable[[Any, nn.Module], Optimizer | list[Optimizer]]
"""Makes optimizers for a module out of ``torch.optim`` or ``samba.optim``, whichever is given."""


def sgd(rate: float = 0.1, **options: Any) -> Makes:
    return lambda optim, model: optim.SGD(model.parameters(), lr=rate, **options)


def adam(rate: float = 0.01, **options: Any) -> Makes:
    # A larger eps than usual: Adam divides by the size of a gradient, and makes steps as large as any
    # other of gradients that are zero but for roundings.
    defaults = {"betas": (0.9, 0.99), "eps": 1e-3, "weight_decay": 0.0, **options}
    return lambda optim, model: optim.AdamW(model.parameters(), lr=rate, **defaults)


class Trainer(Protocol):
    """A model that is trained step by step."""

    def step(self, batch: Batch, **hyperparameters: float) -> tuple[Tensor, ...]:
        """Make a step; return the outputs that the forward pass had."""

    def forward(self, batch: Batch) -> tuple[Tensor, ...]:
        """Run the forward pass alone; return its outputs."""

    def backward(self, weights: Mapping[int, Tensor] | None = None) -> Weights:
        """Run the backward pass of the last forward pass; return the gradients of the parameters.

        The gradients of outputs may be given by their index; they stay until they are given again.
        """

    def update(self, **hyperparameters: float) -> None:
        """Run the optimizers on the gradients of the last backward pass."""

    def weights(self) -> Weights:
        """Return copies of parameters and buffers."""

    def write(self, values: Mapping[str, Tensor]) -> None:
        """Overwrite parameters."""


class Machine(Protocol):
    """Where a program runs."""

    losses: list[float]

    def trainer(
        self,
        model: nn.Module,
        batch: Batch,
        optimizers: Makes,
        losses: Sequence[int] | None = None,
    ) -> Trainer:
        """Prepare a model; ``losses`` are the indices of outputs to state, where the first is not to be found."""

    def begin(self, model: nn.Module) -> None:
        """Tell the weights that a training begins with, where no trainer is asked for."""

    def note(self, *losses: Tensor) -> None:
        """Keep losses to be compared."""


def leaves(outputs: Any) -> list[Tensor]:
    """Return the tensors of a structure in order, also of a dataclass."""
    if dataclasses.is_dataclass(outputs):
        outputs = [getattr(outputs, field.name) for field in dataclasses.fields(outputs)]
    return [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor)]


class _Noting:
    def __init__(self) -> None:
        self.losses: list[float] = []
        self.initial: Weights = {}
        """What parameters and buffers were before the training."""

    def begin(self, model: nn.Module) -> None:
        self.initial |= {name: v.detach().clone() for name, v in model.state_dict().items()}

    def note(self, *losses: Tensor) -> None:
        self.losses.extend(float(value) for loss in losses for value in loss.detach().flatten())


class Eager(_Noting):
    """Plain torch."""

    name = "torch"

    def trainer(
        self,
        model: nn.Module,
        batch: Batch,
        optimizers: Makes,
        losses: Sequence[int] | None = None,
    ) -> Trainer:
        self.begin(model)
        return _EagerTrainer(model, optimizers(torch.optim, model), losses or (0,))


class _EagerTrainer:
    def __init__(
        self, model: nn.Module, made: Optimizer | list[Optimizer], losses: Sequence[int]
    ) -> None:
        self._model, self._losses = model, losses
        self._optimizers = made if isinstance(made, list) else [made]
        self._outputs: list[Tensor] = []
        self._given: dict[int, Tensor] = {}

    def step(self, batch: Batch, **hyperparameters: float) -> tuple[Tensor, ...]:
        outputs = self.forward(batch)
        self.backward()
        self.update(**hyperparameters)
        return outputs

    def forward(self, batch: Batch) -> tuple[Tensor, ...]:
        self._outputs = leaves(self._model(**batch))
        # Cloned before the step: an output may be a view of a parameter.
        return tuple(output.detach().clone() for output in self._outputs)

    def backward(self, weights: Mapping[int, Tensor] | None = None) -> Weights:
        self._given |= weights or {}
        for optimizer in self._optimizers:
            optimizer.zero_grad()
        ones = {index: torch.ones_like(self._outputs[index]) for index in self._losses}
        given = {index: self._given.get(index, one) for index, one in ones.items()}
        # Retained: a program may run the backward pass again with other gradients of its losses.
        torch.autograd.backward(
            [self._outputs[i] for i in given], list(given.values()), retain_graph=True
        )
        named = self._model.named_parameters()
        return {n: p.grad.detach().clone() for n, p in named if p.grad is not None}

    def update(self, **hyperparameters: float) -> None:
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group |= hyperparameters
            optimizer.step()

    def weights(self) -> Weights:
        return {name: v.detach().clone() for name, v in self._model.state_dict().items()}

    def write(self, values: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, value in values.items():
                self._model.get_parameter(name).copy_(value)


class Device(_Noting):
    """The session: compiled into a PEF, traced, and run as ``docs/training.md`` teaches."""

    name = "samba"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def trainer(
        self,
        model: nn.Module,
        batch: Batch,
        optimizers: Makes,
        losses: Sequence[int] | None = None,
    ) -> Trainer:
        samba.from_torch_model_(model)
        made = optimizers(samba.optim, model)
        inputs = {n: samba.from_torch_tensor(t.clone(), name=n) for n, t in batch.items()}
        # Most programs leave it to the session to find the loss, as most people do.
        stated = {} if losses is None else {"loss_indices": list(losses)}
        pef = samba.session.compile(model, inputs, made, output=self.folder / "m.pef", **stated)
        outputs = samba.utils.trace_graph(model, inputs, made, pef=pef)
        return _DeviceTrainer(model, outputs)


class _DeviceTrainer:
    def __init__(self, model: nn.Module, outputs: Sequence[samba.SambaTensor]) -> None:
        self._model, self._outputs = model, outputs

    def step(self, batch: Batch, **hyperparameters: float) -> tuple[Tensor, ...]:
        return self._run(batch, hyperparam_dict=hyperparameters or None)

    def forward(self, batch: Batch) -> tuple[Tensor, ...]:
        return self._run(batch, section_types=["fwd"])

    def backward(self, weights: Mapping[int, Tensor] | None = None) -> Weights:
        for index, weight in (weights or {}).items():
            self._outputs[index].sn_grad = weight
        samba.session.run(section_types=["bckwd"])
        return {
            name: samba.to_torch(parameter.sn_grad).clone()
            for name, parameter in self._model.named_parameters()
            if parameter.requires_grad
        }

    def update(self, **hyperparameters: float) -> None:
        samba.session.run(section_types=["opt"], hyperparam_dict=hyperparameters or None)

    def weights(self) -> Weights:
        samba.session.to_cpu(self._model)
        state = self._model.state_dict()
        return {name: samba.to_torch(value).detach().clone() for name, value in state.items()}

    def write(self, values: Mapping[str, Tensor]) -> None:
        for name, value in values.items():
            self._model.get_parameter(name).sn_data = value

    def _run(self, batch: Batch, **options: Any) -> tuple[Tensor, ...]:
        named = [samba.from_torch_tensor(t, name=n) for n, t in batch.items()]
        results = samba.session.run(named, self._outputs, **options)
        return tuple(samba.to_torch(result).clone() for result in results)
