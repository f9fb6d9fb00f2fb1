"""Copies of optimizer state between host and device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from samba_onnx.errors import UsageError
from samba_onnx.optim.reading import optimizer_record
from samba_onnx.optim.records import MASTER, OptimizerKind, state_keys, state_name
from samba_onnx.tensor.conversion import to_torch
from samba_onnx.tensor.device import DEVICE

_LOW_PRECISION = frozenset({torch.bfloat16, torch.float16})
ROUNDING_STEPS = "rounding_steps"
"""Key of SGD's groups on the host, where there were any: after how many steps, each of which rounds at random
by a seed of its own, its state is. Adam's state counts its steps itself. Also the attribute of an optimizer
that says the same of the state on the device."""


@dataclass(frozen=True)
class _Entry:
    """The state of one parameter: where each of its tensors lies on the device."""

    parameter: torch.Tensor
    group: int
    """Position of the parameter's group."""
    kind: OptimizerKind
    places: Mapping[str, str]
    """By torch's key of a tensor of the state, its name on the device."""
    dtype: torch.dtype
    """Type of these tensors on the device: the parameter's, or float32 where it has such a copy."""


def has_master(parameter: torch.Tensor, *, fp32_params: bool) -> bool:
    """Return whether a parameter has a float32 copy.

    Args:
        parameter: A parameter that an optimizer updates.
        fp32_params: Whether that optimizer keeps float32 copies.
    """
    return fp32_params and parameter.dtype in _LOW_PRECISION


def master_of(parameter: torch.Tensor, state: Mapping[str, Any]) -> torch.Tensor:
    """Return a parameter in float32, as precisely as it is known.

    Args:
        parameter: A parameter of bfloat16 or float16.
        state: The optimizer's state of this parameter, by torch's keys.

    Returns:
        The copy in ``state``, except where the parameter is not its rounding: there somebody has
        written the parameter since, as by loading a checkpoint.
    """
    plain = to_torch(parameter.detach())
    master = state.get(MASTER)
    if master is None:
        return plain.float()
    # Element by element: a program may have written a part of the weight only.
    return torch.where(master.to(plain.dtype) == plain, master, plain.float())


def steps_done(optimizer: torch.optim.Optimizer) -> tuple[int, ...]:
    """Return how many steps the state of an optimizer on the host stands for.

    Args:
        optimizer: An optimizer that can be compiled.

    Returns:
        The number of steps of each group; for SGD, which does not count them, 1 if there was any
        with momentum.

    Raises:
        UsageError: The optimizer has not updated all parameters of a group equally often.
    """
    return tuple(_steps_of_group(optimizer, group["params"]) for group in optimizer.param_groups)


def rounding_steps(optimizer: torch.optim.Optimizer) -> int:
    """Return after how many steps that round at random the state of an optimizer on the host is.

    Args:
        optimizer: An optimizer that can be compiled.

    Returns:
        The number; 0 for Adam, whose state counts steps itself, and where nothing rounds at random.
    """
    return max((int(group.get(ROUNDING_STEPS, 0)) for group in optimizer.param_groups), default=0)


def _steps_of_group(optimizer: torch.optim.Optimizer, parameters: Iterable[torch.Tensor]) -> int:
    counts = set()
    for parameter in parameters:
        state = optimizer.state.get(parameter, {})
        if "step" in state:
            counts.add(int(state["step"]))
        elif state.get("momentum_buffer") is not None:
            # SGD does not count: that there is a momentum only says that there was a step.
            counts.add(1)
    # A scalar of a section, such as a bias correction, is one for all parameters of a group.
    if len(counts) > 1:
        raise UsageError(
            f"{type(optimizer).__name__} has updated some parameters of a group {min(counts)} "
            f"times and others {max(counts)} times: the device counts steps per group; make one "
            "group of each of these sets"
        )
    return max(counts, default=0)


def to_rdu(
    optimizer: torch.optim.Optimizer, names: Mapping[str, torch.Tensor] | None = None
) -> tuple[int, ...]:
    """Copy the state of an optimizer to the device.

    State that the host does not have yet is what torch begins with: zeros, and the weight for its
    float32 copy.

    Args:
        optimizer: An optimizer that can be compiled.
        names: Parameters by name; needed for parameters that are not SambaParameters, which have a
            name themselves.

    Returns:
        The number of steps that the state of each group stands for.

    Raises:
        NoDeviceError: No program with this optimizer is loaded.
        UsageError: The program knows no such optimizer, or parameters of a group have done
            different numbers of steps.
    """
    steps = steps_done(optimizer)
    for entry in _present(optimizer, names):
        for key, place in entry.places.items():
            DEVICE.store(place).write(place, _host_state(optimizer, entry, key))
    setattr(optimizer, ROUNDING_STEPS, rounding_steps(optimizer))
    return steps


def state_materializers(
    optimizer: torch.optim.Optimizer, names: Mapping[str, torch.Tensor] | None = None
) -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    """Return what makes the state of an optimizer as it is on the host when it is asked for.

    Args:
        optimizer: An optimizer that can be compiled.
        names: Parameters by name; needed for parameters that are not SambaParameters, which have a
            name themselves.

    Returns:
        By the name of every tensor of the state on the device, a materializer: of zeros where the
        host has no state yet, and of the weight for its float32 copy.

    Raises:
        UsageError: The optimizer cannot be compiled, or a parameter has no name.
    """

    def materializer(entry: _Entry, key: str) -> Callable[[torch.Tensor], torch.Tensor]:
        # A copy: the optimizer goes on to write its own state in place.
        return lambda _tensor: _host_state(optimizer, entry, key).clone()

    return {
        place: materializer(entry, key)
        for entry in _entries(optimizer, names)
        for key, place in entry.places.items()
    }


def _host_state(optimizer: torch.optim.Optimizer, entry: _Entry, key: str) -> torch.Tensor:
    """Return a tensor of the state as the host has it, or as torch's first step would find it."""
    state = optimizer.state.get(entry.parameter, {})
    if key == MASTER:
        return master_of(entry.parameter, state)
    value: torch.Tensor | None = state.get(key)
    if value is None:
        return torch.zeros(tuple(entry.parameter.shape), dtype=entry.dtype)
    return to_torch(value)


def to_cpu(
    optimizer: torch.optim.Optimizer,
    steps: Sequence[int],
    names: Mapping[str, torch.Tensor] | None = None,
    *,
    inplace: bool = False,
) -> None:
    """Copy the state of an optimizer from the device to the host.

    Args:
        optimizer: An optimizer that can be compiled.
        steps: Number of steps that the state of each group on the device stands for. After none
            there is no state, and nothing is copied.
        names: Parameters by name; needed for parameters that are not SambaParameters, which have a
            name themselves.
        inplace: Whether to write into the tensors that the state has on the host. Otherwise it gets
            new ones.

    Raises:
        NoDeviceError: No program with this optimizer is loaded.
        UsageError: The program knows no such optimizer.
    """
    for entry in _present(optimizer, names):
        done = steps[entry.group]
        # Torch makes the state in its first step, and takes what is there for one that was made.
        if done == 0:
            optimizer.state.pop(entry.parameter, None)
            continue
        state = optimizer.state[entry.parameter]
        for key, place in entry.places.items():
            values = DEVICE.store(place).read(place)
            if inplace and isinstance(state.get(key), torch.Tensor):
                state[key].copy_(values)
            else:
                state[key] = values
        if entry.kind is not OptimizerKind.SGD:
            # A tensor of float32, as torch itself counts.
            state["step"] = torch.tensor(float(done))
    rounded = getattr(optimizer, ROUNDING_STEPS, 0)
    for group in optimizer.param_groups:
        if rounded:
            # In the groups, which ``state_dict`` saves together with the state.
            group[ROUNDING_STEPS] = rounded
        else:
            group.pop(ROUNDING_STEPS, None)


def _present(
    optimizer: torch.optim.Optimizer, names: Mapping[str, torch.Tensor] | None
) -> list[_Entry]:
    """Return the entries that are on the device: one that is frozen or has no elements has none there."""
    entries = [e for e in _entries(optimizer, names) if e.places and e.parameter.numel()]
    present = [e for e in entries if all(map(DEVICE.has, e.places.values()))]
    if entries and not present:
        # For its error, which says why: there is no device, or its program is another one.
        DEVICE.store(next(iter(entries[0].places.values())))
    return present


def _entries(
    optimizer: torch.optim.Optimizer, names: Mapping[str, torch.Tensor] | None
) -> Iterator[_Entry]:
    record = optimizer_record(optimizer, names=names)
    groups = zip(optimizer.param_groups, record.groups, strict=True)
    for number, (group, group_record) in enumerate(groups):
        for parameter, name in zip(group["params"], group_record.parameters, strict=True):
            keys = state_keys(record.kind, group_record.flags)
            dtype = parameter.dtype
            if has_master(parameter, fp32_params=record.fp32_params):
                keys, dtype = (*keys, MASTER), torch.float32
            places = {key: state_name(name, key) for key in keys}
            yield _Entry(parameter, number, record.kind, places, dtype)
