"""Inputs as users give them, nested in tuples and dicts, and the names by which they are known."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from samba_onnx.errors import InputError, UsageError
from samba_onnx.facts.names import SEPARATOR, joined
from samba_onnx.tensor import SambaTensor

LOGGER: Final = logging.getLogger(__name__)


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
        UsageError: Inputs are of another kind, as arrays of numpy, or two different tensors have
            one name.
    """
    if isinstance(inputs, torch.Tensor):
        inputs = (inputs,)
    if isinstance(inputs, Mapping):
        arguments = [(str(key), value) for key, value in inputs.items()]
    elif isinstance(inputs, (list, tuple)):
        arguments = list(zip(_parameters(model, len(inputs)), inputs, strict=True))
    else:
        raise UsageError(
            f"inputs are {_kind(inputs)}; give a tuple of tensors in the order of the "
            "model's parameters, or a dict of tensors by parameter"
        )
    named = tuple(_name(value, name) for name, value in arguments)
    _check_unique(named)
    _tell_of_shared(model, [name for name, _ in arguments], named)
    return dict(zip(inputs, named, strict=True)) if isinstance(inputs, Mapping) else named


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


def by_name(inputs: Any, known: Collection[str] = ()) -> dict[str, torch.Tensor]:
    """Return what a run was given, by name.

    Args:
        inputs: None, a tensor, or a list, tuple or dict of tensors, of None and of more of these.
            A dict names the tensors in it that have no name, and those of a cache of
            ``transformers`` in it, as a model was compiled with.
        known: Names of the inputs of the graph that runs; a cache must have all of its own, for an input that is
            left out keeps its value.

    Returns:
        Tensors by name.

    Raises:
        InputError: Something is no tensor, or has no name, or two tensors have one name, or a cache lacks some.
    """
    tensors: dict[str, torch.Tensor] = {}
    _collect(inputs, "", tensors, known)
    return tensors


def _collect(
    value: Any, key: str, tensors: dict[str, torch.Tensor], known: Collection[str]
) -> None:
    if value is None:
        return
    if isinstance(value, torch.Tensor):
        name = (value.sn_name if isinstance(value, SambaTensor) else "") or key
        if not name:
            raise InputError(
                f"an input of shape {list(value.shape)} has no name, and inputs are told apart by "
                "name: make it with samba.from_torch_tensor(tensor, name='...')"
            )
        if tensors.setdefault(name, value) is not value:
            raise InputError(
                f"two inputs of this run are called {name!r}, and inputs are told apart by name: "
                "leave one out, or give each the name that it was compiled with"
            )
    elif isinstance(value, Mapping):
        for inner, item in value.items():
            _collect(item, str(inner), tensors, known)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _collect(item, "", tensors, known)
    elif (
        key and type(value) in pytree.SUPPORTED_NODES
    ):  # a cache, once a model was compiled with it
        for name, leaf in _leaves(value, key, known).items():
            _collect(leaf, name, tensors, known)
    elif isinstance(value, np.ndarray):
        what = f"input {key!r}" if key else "an input"
        name = key or "..."
        raise InputError(f"{what} is {_kind(value)}; {_as_tensor(name)}")
    else:
        what = f"input {key!r}" if key else "an input"
        raise InputError(
            f"{what} is {value!r:.100}, which is no tensor: what a model is compiled with is built "
            "in and not given again; a run is given tensors, made with "
            "samba.from_torch_tensor(tensor, name='...')"
        )


def _leaves(cache: Any, key: str, known: Collection[str]) -> dict[str, Any]:
    """Return the tensors of a cache by name, all that a graph has of it."""
    leaves = {
        joined(key, *map(key_text, path)): leaf
        for path, leaf in pytree.tree_flatten_with_path(cache)[0]
    }
    missing = [n for n in known if n.startswith(f"{key}{SEPARATOR}") and n not in leaves]
    if missing:
        raise InputError(
            f"input {key!r} of class {type(cache).__name__} has no {missing[0]!r}, which the graph was compiled "
            "with: give one with as many layers and positions, or compile for this one"
        )
    return leaves


def key_text(entry: Any) -> str:
    """Return one step of torch's path to a leaf as text: an index, a key or an attribute.

    Args:
        entry: As ``tree_flatten_with_path`` returns it.
    """
    for attribute in ("key", "idx", "name"):
        if hasattr(entry, attribute):
            return str(getattr(entry, attribute))
    return str(entry)


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
        # A named tuple takes its fields one by one.
        if hasattr(value, "_fields"):
            return type(value)(*items)
        return type(value)(items)
    if isinstance(value, np.ndarray):
        raise UsageError(f"input {name!r} is {_kind(value)}; {_as_tensor(name)}")
    return value


def _kind(value: object) -> str:
    """Return what is no tensor, in words."""
    if isinstance(value, np.ndarray):
        return f"a numpy array, {value.dtype} of shape {list(value.shape)}"
    return type(value).__name__


def _as_tensor(name: str) -> str:
    return f"give a tensor, as in samba.from_torch_tensor(torch.from_numpy(array), name={name!r})"


def _parameters(model: object, count: int) -> list[str]:
    """Names for positional inputs: those of ``forward``'s parameters, as far as there are any."""
    names: list[str] = []
    if isinstance(model, nn.Module):
        names += [
            parameter.name
            for parameter in inspect.signature(model.forward).parameters.values()
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        ]
    # Whatever is no module, or takes *args, names its inputs in no other way.
    return [*names[:count], *(f"input_{index}" for index in range(len(names), count))]


def _check_unique(inputs: Any) -> None:
    known: dict[str, SambaTensor] = {}
    for tensor in tensors_of(inputs):
        # One tensor in two places is one input, of which the user is told elsewhere.
        if known.setdefault(tensor.sn_name, tensor) is not tensor:
            raise UsageError(
                f"two inputs are called {tensor.sn_name!r}; inputs are told apart by name: give "
                "each its own"
            )


def _tell_of_shared(model: object, names: Sequence[str], values: Sequence[Any]) -> None:
    """Say which arguments are one tensor: the program has one input for them, in every run."""
    by_tensor: dict[str, list[str]] = {}
    for name, value in zip(names, values, strict=True):
        if isinstance(value, SambaTensor):
            by_tensor.setdefault(value.sn_name, []).append(name)
    for tensor, arguments in by_tensor.items():
        if len(arguments) > 1:
            LOGGER.warning(
                "%s is given one tensor, %r, as %s: the program has one input for them, and runs "
                "cannot give them different values. Where they are to differ, give each a tensor "
                "and a name of its own.",
                type(model).__name__,
                tensor,
                " and ".join(map(repr, arguments)),
            )
