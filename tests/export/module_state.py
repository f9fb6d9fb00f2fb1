"""All that can be told of a module, to see whether it was left alone."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

State = dict[tuple[str, ...], Any]


def state_of(module: nn.Module) -> State:
    """Return what a module and all within have, and what random generators will draw.

    Objects are compared by identity, containers by what they hold, tensors by identity, flags,
    gradients and bits.
    """
    state: State = {("random",): _generators()}
    for path, inner in module.named_modules():
        for name, value in vars(inner).items():
            state[path, "attribute", name] = (id(value), _content(value))
        for kind in (inner._parameters, inner._buffers):
            for name, tensor in kind.items():
                if tensor is not None:
                    state[path, "tensor", name] = _tensor(tensor)
    return state


def changes(before: State, after: State) -> list[str]:
    """Return what differs between two states, by name."""
    keys = [*before, *(key for key in after if key not in before)]
    return [" ".join(key) for key in keys if before.get(key) != after.get(key)]


def _generators() -> list[Any]:
    keys = np.random.get_state(legacy=False)["state"]  # type: ignore[index]
    return [
        random.getstate(),
        torch.get_rng_state().tolist(),
        [np.asarray(value).tolist() for value in keys.values()],
    ]


def _content(value: Any) -> Any:
    if isinstance(value, dict):
        return [(repr(key), id(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return [id(item) for item in value]
    if isinstance(value, set):
        return sorted(map(repr, value))
    return _bits(value) if isinstance(value, Tensor) else None


def _tensor(tensor: Tensor) -> tuple[Any, ...]:
    gradient = tensor.grad
    flags = (id(tensor), tensor.requires_grad, tensor.data_ptr(), tensor._version)
    return (*flags, _bits(tensor), None if gradient is None else (id(gradient), _bits(gradient)))


def _bits(tensor: Tensor) -> bytes:
    plain = tensor.detach().as_subclass(Tensor)
    return bytes(plain.contiguous().flatten().view(torch.uint8).tolist()) if plain.numel() else b""
