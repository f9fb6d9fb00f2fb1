"""One step of torch's own optimizers, on the numbers that a device has in its memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from samba_onnx.facts.names import gradient_name
from samba_onnx.functional.host_operators import HOST_OPERATORS
from samba_onnx.optim.records import (
    MASTER,
    Flag,
    GroupRecord,
    OptimizerKind,
    OptimizerRecord,
    state_keys,
    state_name,
)

Memory: TypeAlias = dict[str, NDArray[Any]]
"""Contents of a device by symbol: weights, gradients, states and argins."""

_CLASSES: Final[Mapping[OptimizerKind, Any]] = MappingProxyType(
    {
        OptimizerKind.SGD: torch.optim.SGD,
        OptimizerKind.ADAM: torch.optim.Adam,
        OptimizerKind.ADAMW: torch.optim.AdamW,
    }
)


@dataclass(frozen=True)
class Slot:
    """A weight or a state that a step of an optimizer writes."""

    parameter: str
    """Name of the parameter."""
    key: str = ""
    """torch's key of the state; ``MASTER`` for the float32 copy, empty for the weight itself."""

    @property
    def symbol(self) -> str:
        """Name on the device."""
        return state_name(self.parameter, self.key) if self.key else self.parameter

    def __str__(self) -> str:
        return f"state {self.key!r} of {self.parameter!r}" if self.key else repr(self.parameter)


def slots(record: OptimizerRecord, memory: Memory) -> Iterator[Slot]:
    """Yield what a step of an optimizer writes.

    Args:
        record: The optimizer.
        memory: Contents of the device; parameters of the optimizer that are not there stay as they
            are.
    """
    for group in record.groups:
        for name in _present(group, memory):
            keys = (MASTER, "", *state_keys(record.kind, group.flags))
            every = (Slot(name, key) for key in keys)
            yield from (slot for slot in every if slot.symbol in memory)


def torchs_step(
    record: OptimizerRecord, memory: Memory, step: int, *, exact: bool
) -> dict[Slot, NDArray[np.float64]]:
    """Return weights and states after a step of torch's own optimizer.

    Args:
        record: The optimizer, with the hyperparameters of the step.
        memory: Contents of the device before the step; stays as it is.
        step: Number of the step, counted from 1.
        exact: Whether to compute in float64. Else float32 is computed in float32, and so are types
            of lower precision: like the device, and unlike torch, which would round in between.

    Returns:
        The arrays by slot; none for an optimizer that has no parameter in ``memory``.
    """
    precise = exact or any(memory[slot.symbol].itemsize == 8 for slot in slots(record, memory))
    dtype = torch.float64 if precise else torch.float32
    parameters: dict[str, nn.Parameter] = {}
    groups = []
    for group in record.groups:
        for name in _present(group, memory):
            master = state_name(name, MASTER)
            weight = memory[master if master in memory else name]
            parameters[name] = nn.Parameter(_tensor(weight, dtype))
            parameters[name].grad = _tensor(memory[gradient_name(name)], dtype)
        members = [parameters[name] for name in _present(group, memory)]
        if members:
            groups.append({"params": members, **_options(record.kind, group)})
    if not groups:  # torch makes no optimizer of nothing
        return {}
    optimizer = _CLASSES[record.kind](groups, foreach=False)
    for group in record.groups:
        for name in _present(group, memory):
            optimizer.state[parameters[name]] = _state(
                record.kind, group, name, memory, step, dtype
            )
    with HOST_OPERATORS.paused():
        if record.max_grad_norm is not None:
            nn.utils.clip_grad_norm_(parameters.values(), record.max_grad_norm)
        optimizer.step()
    return {
        slot: _after(slot, parameters[slot.parameter], optimizer) for slot in slots(record, memory)
    }


def _present(group: GroupRecord, memory: Memory) -> list[str]:
    return [name for name in group.parameters if name in memory]


def _tensor(array: NDArray[Any], dtype: torch.dtype) -> torch.Tensor:
    return torch.from_numpy(array.astype(np.float64)).to(dtype)


def _options(kind: OptimizerKind, group: GroupRecord) -> dict[str, Any]:
    """Return the hyperparameters of a group as torch's classes take them."""
    options: dict[str, Any] = dict(group.hyperparameters)
    options["maximize"] = Flag.MAXIMIZE in group.flags
    if kind is OptimizerKind.SGD:
        return {**options, "nesterov": Flag.NESTEROV in group.flags}
    options["betas"] = (options.pop("beta1"), options.pop("beta2"))
    return {**options, "amsgrad": Flag.AMSGRAD in group.flags}


def _state(
    kind: OptimizerKind,
    group: GroupRecord,
    name: str,
    memory: Memory,
    step: int,
    dtype: torch.dtype,
) -> dict[str, torch.Tensor]:
    """Return torch's state of a parameter before a step; SGD has none before its first one."""
    if kind is OptimizerKind.SGD and step == 1:
        return {}
    keys = state_keys(kind, group.flags)
    state = {key: _tensor(memory[state_name(name, key)], dtype) for key in keys}
    count = {} if kind is OptimizerKind.SGD else {"step": torch.tensor(float(step - 1))}
    return {**state, **count}


def _after(
    slot: Slot, parameter: nn.Parameter, optimizer: torch.optim.Optimizer
) -> NDArray[np.float64]:
    """Return what torch has in the place of a slot."""
    inner = slot.key not in ("", MASTER)
    tensor = optimizer.state[parameter][slot.key] if inner else parameter.detach()
    values: NDArray[np.float64] = tensor.double().numpy()
    return values
