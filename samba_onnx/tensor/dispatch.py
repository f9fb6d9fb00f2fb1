"""Calling torch functions and methods with SambaTensors, by the rules of the dispatch table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import torch

from samba_onnx.functional import HOST_OPERATORS, TABLE, FunctionKind
from samba_onnx.functional.host_keywords import check_keywords
from samba_onnx.functional.index_types import widened
from samba_onnx.functional.promotion import promoted
from samba_onnx.functional.table import Reads, is_in_place
from samba_onnx.tensor.host_writes import HOST_WRITES
from samba_onnx.tensor.native import natively, placeholder

if TYPE_CHECKING:
    from samba_onnx.tensor.samba_tensor import SambaTensor

_FIRST: Final = ("input", "self")
"""What torch calls the first argument where it is given by name."""


def call(
    cls: type[SambaTensor],
    function: Callable[..., Any],
    args: tuple[Any, ...],
    keywords: Mapping[str, Any],
) -> Any:
    """Call a torch function or method by the rules of its row in the dispatch table.

    Args:
        cls: Class of the tensors that come back: SambaTensor.
        function: The function or method that was called.
        args: Its positional arguments.
        keywords: Its keyword arguments.

    Returns:
        The result of the function, its tensors as ``cls``. A tensor that is written in place is
        returned itself.

    Raises:
        UsageError: A tensor has no data, or a keyword is refused by ``device_limits``.
    """
    row = TABLE.find(function)
    if row.kind is FunctionKind.QUERY:
        _need_data(cls, row.reads, args, keywords)
        with natively():
            return function(*args, **keywords)
    if row.kind is FunctionKind.HOST:
        HOST_OPERATORS.enter(row.name)
    check_keywords(row, keywords)
    in_place = is_in_place(function)
    first = args[0] if args else None
    if isinstance(first, cls) and first._host.is_empty:
        if row.name == "detach":
            return _detached(first)
        if in_place and row.overwrites:
            first._host.allocate(first)
    _need_data(cls, row.reads, args, keywords)
    implementation = None if in_place else row.implementation
    with natively():
        args, keywords = promoted(function, *widened(function, args, keywords))
        result = (implementation or function)(*args, **keywords)
        if in_place or keywords.get("out") is not None:
            HOST_WRITES.count += 1
            return result
        result = _as_ours(cls, result, args, keywords)
    if row.keeps_marks and result is not first and isinstance(result, cls):
        origin = next(_tensors((*args, *keywords.values())), None)
        if isinstance(origin, cls):
            result._marks = origin._marks
    return result


def _need_data(
    cls: type[SambaTensor], reads: Reads, args: tuple[Any, ...], keywords: Mapping[str, Any]
) -> None:
    """Make the values of the tensors of a call that are read and have none yet."""
    if reads is Reads.NONE:
        return
    if reads is Reads.FIRST:
        args, keywords = args[:1], {k: v for k, v in keywords.items() if k in _FIRST}
    elif reads is Reads.OTHERS:
        args, keywords = args[1:], {k: v for k, v in keywords.items() if k not in _FIRST}
    for values in (args, keywords.values()) if keywords else (args,):
        for tensor in _tensors(values):
            if isinstance(tensor, cls) and tensor._host.is_empty:
                tensor.materialize_()


def _detached(tensor: SambaTensor) -> SambaTensor:
    """Return what ``detach`` gives of an empty tensor: an empty one that requires no gradients."""
    result = tensor._like(placeholder(tuple(tensor.shape), tensor.dtype))
    result.requires_grad = False
    return result


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Yield the tensors among arguments, also those in lists and tuples."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _as_ours(
    cls: type[SambaTensor], result: Any, args: tuple[Any, ...], keywords: Mapping[str, Any]
) -> Any:
    """Return the result of a call with its tensors as ``cls``, whatever they are nested in."""
    if isinstance(result, torch.Tensor):
        # Ours already, or of somebody else's class, which its author wants to see again.
        if type(result) is not torch.Tensor:
            return result
        if any(result is tensor for tensor in _tensors((*args, *keywords.values()))):
            return result.as_subclass(cls)
        # A new tensor becomes one of ours as it is: an alias would be one more node of the graph.
        result.__class__ = cls
        return result
    if isinstance(result, (tuple, list)):
        parts = [_as_ours(cls, part, args, keywords) for part in result]
        return type(result)(parts) if not hasattr(result, "_make") else type(result)(*parts)
    if isinstance(result, Iterator):
        # One after the other, when each is asked for.
        return (_as_ours(cls, part, args, keywords) for part in result)
    return result
