"""Inputs as users give them, nested in tuples and dicts, and the names by which they are known."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from samba_onnx.errors import InputError, UsageError
from samba_onnx.facts.names import joined
from samba_onnx.tensor import SambaTensor


def name_inputs(model: object, inputs: Any) -> Any:
    """Give every tensor among a model's example inputs a name.

    Args:
        model: A module, whose ``forward`` names what has no name; or anything else.
        inputs: A tensor, a tuple or list in the order of ``forward``'s parameters, or a dict of
            them by name, with tuples, lists and dicts inside; anything that is no tensor is kept.

    Returns:
        The same structure, as a tuple or a dict, with a named SambaTensor for every tensor.
        SambaTensors that had no name have one afterwards.

    Raises:
        UsageError: Inputs are of another kind, or two different tensors have one name.
    """
    if isinstance(inputs, torch.Tensor):
        inputs = (inputs,)
    named: Any
    if isinstance(inputs, Mapping):
        named = {key: _name(value, str(key)) for key, value in inputs.items()}
    elif isinstance(inputs, (list, tuple)):
        names = _parameters(model, len(inputs))
        named = tuple(_name(value, name) for value, name in zip(inputs, names, strict=True))
    else:
        raise UsageError(
            f"inputs are {type(inputs).__name__}; give a tuple of tensors in the order of the "
            "model's parameters, or a dict of tensors by parameter"
        )
    _check_unique(named)
    return named


def tensors_of(inputs: Any) -> Iterator[SambaTensor]:
    """Iterate over the SambaTensors of nested inputs, in order.

    Args:
        inputs: As :func:`name_inputs` returns them.
    """
    if isinstance(inputs, SambaTensor):
        yield inputs
    elif isinstance(inputs, Mapping):
        for value in inputs.values():
            yield from tensors_of(value)
    elif isinstance(inputs, (list, tuple)):
        for value in inputs:
            yield from tensors_of(value)


def by_name(inputs: Any) -> dict[str, torch.Tensor]:
    """Return what a run was given, by name.

    Args:
        inputs: None, a tensor, or a list, tuple or dict of tensors, of None and of more of these.
            A dict names the tensors in it that have no name.

    Returns:
        Tensors by name.

    Raises:
        InputError: Something is no tensor, or has no name.
    """
    tensors: dict[str, torch.Tensor] = {}
    _collect(inputs, "", tensors)
    return tensors


def _collect(value: Any, key: str, tensors: dict[str, torch.Tensor]) -> None:
    if value is None:
        return
    if isinstance(value, torch.Tensor):
        name = (value.sn_name if isinstance(value, SambaTensor) else "") or key
        if not name:
            raise InputError(
                f"an input of shape {list(value.shape)} has no name, and inputs are told apart by "
                "name: make it with samba.from_torch_tensor(tensor, name='...')"
            )
        tensors[name] = value
    elif isinstance(value, Mapping):
        for inner, item in value.items():
            _collect(item, str(inner), tensors)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _collect(item, "", tensors)
    else:
        what = f"input {key!r}" if key else "an input"
        raise InputError(
            f"{what} is {value!r:.100}, which is no tensor: what a model is compiled with is built "
            "in and not given again; a run is given tensors, made with "
            "samba.from_torch_tensor(tensor, name='...')"
        )


def _name(value: Any, name: str) -> Any:
    if isinstance(value, SambaTensor):
        if not value.sn_name:
            value.sn_name = name
        return value
    if isinstance(value, torch.Tensor):
        return SambaTensor(value, name=name)
    if isinstance(value, Mapping):
        return {key: _name(item, joined(name, str(key))) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_name(item, joined(name, str(index))) for index, item in enumerate(value)]
        if hasattr(value, "_fields"):
            return type(value)(*items)
        return type(value)(items)
    return value


def _parameters(model: object, count: int) -> list[str]:
    """Names for positional inputs: those of ``forward``'s parameters, as far as there are any."""
    names: list[str] = []
    if isinstance(model, nn.Module):
        names += [
            parameter.name
            for parameter in inspect.signature(model.forward).parameters.values()
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        ]
    return [*names[:count], *(f"input_{index}" for index in range(len(names), count))]


def _check_unique(inputs: Any) -> None:
    known: dict[str, SambaTensor] = {}
    for tensor in tensors_of(inputs):
        if known.setdefault(tensor.sn_name, tensor) is not tensor:
            raise UsageError(
                f"two inputs are called {tensor.sn_name!r}; inputs are told apart by name: give "
                "each its own"
            )
