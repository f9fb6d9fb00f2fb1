"""How SambaFlow's own functions take part in torch's override protocol."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ParamSpec, TypeVar

import torch
from torch.overrides import handle_torch_function, has_torch_function

P = ParamSpec("P")
R = TypeVar("R")


def overridable(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function dispatch like torch's own: once, as a whole, by its tensor arguments.

    Args:
        function: A function that is written with torch operators on its arguments.

    Returns:
        A function of the same arguments. It is computed as it is on plain tensors, and handed to
        ``__torch_function__`` when a tensor of another class is among the arguments.
    """

    @functools.wraps(function)
    def dispatching(*args: P.args, **kwargs: P.kwargs) -> R:
        tensors = tuple(_tensors((*args, *kwargs.values())))
        if has_torch_function(tensors):
            # Handed over as users have it: called again on plain tensors, it computes.
            answer: R = handle_torch_function(dispatching, tensors, *args, **kwargs)
            return answer
        return function(*args, **kwargs)

    return dispatching


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Yield the tensors among arguments, also those in lists and tuples."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
