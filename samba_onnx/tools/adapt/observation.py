"""What was seen of a program that ran under observation: losses, results of runs, weights after the last."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

_NOISE = 1e-5
"""Gradients that are smaller than this share of the largest are what rounding leaves of zero, as those of
a bias before a normalisation; Adam makes steps of full length of them, in any direction."""


class EnoughSteps(BaseException):
    """Ends a program after the steps that are compared; no handler of the program's own takes it."""


@dataclass
class Observation:
    """What was seen of one program."""

    steps: int
    """Steps after which the program is ended."""
    losses: list[float] = field(default_factory=list)
    done: int = 0
    dropouts: int = 0
    """Dropouts whose rate was set to 0."""
    optimizers: list[torch.optim.Optimizer] = field(default_factory=list)
    largest: dict[int, torch.Tensor] = field(default_factory=dict)
    """The largest gradient of each number that was seen, by the id of its parameter."""
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    """Trained parameters in the order of the optimizers, then buffers; and which numbers say nothing."""
    names: list[str] = field(default_factory=list)
    """What the program calls these tensors."""

    def end_if_done(self, collect: Callable[[], None]) -> None:
        """End the program if all steps are done.

        Args:
            collect: Called before the end, while the program's objects still live.

        Raises:
            EnoughSteps: They are.
        """
        if self.done >= self.steps:
            collect()
            raise EnoughSteps

    def keep(self, results: Sequence[torch.Tensor]) -> None:
        """Keep what a model that only infers returned.

        Args:
            results: Its tensors.

        Raises:
            EnoughSteps: All runs are done.
        """
        for place, one in enumerate(results):
            self.tensors[f"{self.done} {place}"] = plain_tensor(one)
        self.done += 1
        self.end_if_done(lambda: None)

    def note_gradients(self, optimizer: torch.optim.Optimizer) -> None:
        """Note how large gradients are in a step."""
        # On the host and of the original alone: the device keeps its gradients to itself.
        for parameter in _parameters([optimizer]):
            if parameter.grad is not None:
                size = parameter.grad.detach().abs()
                # The largest of all steps: one step with a gradient is enough to compare the number.
                known = self.largest.get(id(parameter))
                self.largest[id(parameter)] = size if known is None else torch.maximum(size, known)

    def collect(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Take what was trained, and the buffers beside it.

        Args:
            optimizers: All that the program has, in the order of their steps.
        """
        trained = _parameters(optimizers)
        root = _smallest_with({id(parameter) for parameter in trained})
        names = {id(one): name for name, one in root.named_parameters()} if root is not None else {}
        buffers = dict(root.named_buffers()) if root is not None else {}
        self.names = [names.get(id(one), f"parameter {place}") for place, one in enumerate(trained)]
        self.names += list(buffers)
        most = max((float(one.max()) for one in self.largest.values()), default=0.0)
        for place, one in enumerate((*trained, *buffers.values())):
            self.tensors[f"{place}"] = plain_tensor(one)
            size = self.largest.get(id(one))
            if size is not None:
                self.tensors[f"noise {place}"] = (size < _NOISE * most).float().contiguous()


class ModelCalls:
    """Keeps what modules with weights return that no other module calls."""

    def __init__(self, seen: Observation) -> None:
        self._seen = seen
        self._depth = 0
        self._hooks: list[Any] = []

    def __enter__(self) -> None:
        hooks = nn.modules.module
        self._hooks = [
            hooks.register_module_forward_pre_hook(self._called),
            hooks.register_module_forward_hook(self._returned),
        ]

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _called(self, *_: object) -> None:
        # Only what the program itself calls is compared, and not each layer of it.
        self._depth += 1

    def _returned(self, module: nn.Module, given: object, result: Any) -> None:
        self._depth -= 1
        if not self._depth and next(module.parameters(), None) is not None:
            self._seen.keep(_tensors_of(result))


def _tensors_of(result: Any) -> list[torch.Tensor]:
    """Return the tensors of what a module returns, whatever it is."""
    if isinstance(result, torch.Tensor):
        return [result]
    parts = result.values() if isinstance(result, dict) else result
    return (
        [one for part in parts for one in _tensors_of(part)]
        if isinstance(result, dict | tuple | list)
        else []
    )


def _parameters(optimizers: Sequence[torch.optim.Optimizer]) -> list[torch.Tensor]:
    return [
        one
        for optimizer in optimizers
        for group in optimizer.param_groups
        for one in group["params"]
    ]


def plain_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor as a plain one on the host, by value."""
    # A copy by value: parameters of SambaFlow are tensors of another class.
    data = (
        tensor.detach().as_subclass(torch.Tensor)
        if type(tensor) is nn.Parameter
        else tensor.detach()
    )
    return torch.as_tensor(np.array(data.float().tolist(), dtype=np.float32)).reshape(
        tuple(tensor.shape)
    )


def _smallest_with(wanted: set[int]) -> nn.Module | None:
    """Return the module with the fewest parts that has all parameters."""
    # By type: isinstance asks objects of libraries for attributes, some of which warn.
    modules = [one for one in gc.get_objects() if issubclass(type(one), nn.Module)]
    found = [
        module
        for module in modules
        if wanted <= {id(parameter) for parameter in module.parameters()}
    ]
    return min(found, key=lambda one: sum(1 for _ in one.modules()), default=None)
