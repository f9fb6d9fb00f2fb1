"""Integers of every width as indices, where torch takes some widths only.

SambaFlow's programs index with int16: it is the type of the targets of ``CrossEntropyLoss`` on the
RDU ("only int16 is currently supported"), and of the dummy inputs of token ids. Torch refuses it in
most of its functions. Here every integer type is taken wherever an integer is an index, a position
or a class; torch is given the same numbers in int64 then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_SMALL: Final = frozenset(
    {torch.int8, torch.uint8, torch.int16, torch.uint16, torch.uint32, torch.uint64}
)
"""Integer types that torch does not take for indices; bytes it takes for masks."""


@dataclass(frozen=True)
class IndexArgument:
    """An argument that holds indices."""

    position: int
    keyword: str
    takes_int32: bool = False
    """Whether torch itself takes int32 there."""

    def widened(self, index: Any) -> Any:
        """Return the argument as torch takes it.

        Args:
            index: What a call has there; anything but a tensor of integers is returned as it is.
        """
        if not isinstance(index, Tensor):
            return index
        narrow = index.dtype in _SMALL or (index.dtype == torch.int32 and not self.takes_int32)
        return index.to(torch.int64) if narrow else index


@dataclass(frozen=True)
class SubscriptArgument(IndexArgument):
    """An argument that holds what stands between brackets: tensors, among others, or one alone."""

    def widened(self, index: Any) -> Any:
        """Return the argument as torch takes it: bytes are a mask, other integers are indices.

        Args:
            index: What a call has there; tuples and lists of such are looked into.
        """
        if isinstance(index, tuple | list):
            return type(index)(self.widened(one) for one in index)
        if not isinstance(index, Tensor) or index.dtype not in _SMALL:
            return index
        return index.to(torch.bool if index.dtype == torch.uint8 else torch.int64)


_NOWHERE: Final = sys.maxsize
"""Position of an argument that is given by keyword only."""
_BEHIND_DIM: Final = (IndexArgument(2, "index", takes_int32=True),)
_BEHIND_DIM_INT64: Final = (IndexArgument(2, "index"),)
_SUBSCRIPTS: Final = (SubscriptArgument(1, "indices"),)

_METHODS: Final[Mapping[str, tuple[IndexArgument, ...]]] = MappingProxyType(
    {
        "__getitem__": _SUBSCRIPTS,
        "__setitem__": _SUBSCRIPTS,
        "gather": _BEHIND_DIM,
        "index_add": _BEHIND_DIM,
        "index_copy": _BEHIND_DIM_INT64,
        "index_fill": _BEHIND_DIM_INT64,
        "index_put": _SUBSCRIPTS,
        "index_reduce": _BEHIND_DIM,
        "index_select": _BEHIND_DIM,
        "put": (IndexArgument(1, "index"),),
        "repeat_interleave": (IndexArgument(1, "repeats", takes_int32=True),),
        "scatter": _BEHIND_DIM,
        "scatter_add": _BEHIND_DIM,
        "scatter_reduce": _BEHIND_DIM,
        "take": (IndexArgument(1, "index"),),
        "take_along_dim": (IndexArgument(1, "indices"),),
        "tensor_split": (IndexArgument(1, "tensor_indices_or_sections"),),
    }
)
"""By name, for the functions of ``torch``, the methods of its tensors, and those that write in place."""

_TARGET: Final = (IndexArgument(1, "target"),)
_POOLED: Final = (IndexArgument(1, "indices"),)

_FUNCTIONS: Final[Mapping[Callable[..., Any], tuple[IndexArgument, ...]]] = MappingProxyType(
    {
        functional.cross_entropy: _TARGET,
        functional.embedding: (IndexArgument(0, "input", takes_int32=True),),
        functional.embedding_bag: (
            IndexArgument(0, "input", takes_int32=True),
            IndexArgument(2, "offsets", takes_int32=True),
        ),
        functional.max_unpool1d: _POOLED,
        functional.max_unpool2d: _POOLED,
        functional.max_unpool3d: _POOLED,
        functional.multi_margin_loss: _TARGET,
        functional.multilabel_margin_loss: _TARGET,
        functional.nll_loss: _TARGET,
        functional.one_hot: (IndexArgument(0, "tensor"),),
        torch.embedding: (IndexArgument(1, "indices", takes_int32=True),),
        torch.embedding_bag: (
            IndexArgument(1, "indices", takes_int32=True),
            IndexArgument(2, "offsets", takes_int32=True),
        ),
        torch.segment_reduce: (
            IndexArgument(_NOWHERE, "lengths", takes_int32=True),
            IndexArgument(_NOWHERE, "offsets", takes_int32=True),
        ),
        torch.searchsorted: (IndexArgument(_NOWHERE, "sorter"),),
    }
)


def _by_function() -> Iterator[tuple[Callable[..., Any], tuple[IndexArgument, ...]]]:
    yield from _FUNCTIONS.items()
    # Not every version of torch that is supported has it.
    newer = getattr(functional, "linear_cross_entropy", None)
    if newer is not None:
        yield newer, (IndexArgument(2, "target"),)
    for name, arguments in _METHODS.items():
        for owner, spelling in ((torch, name), (Tensor, name), (Tensor, f"{name}_")):
            # Some are no functions of torch, and some have no form in place.
            if hasattr(owner, spelling):
                yield getattr(owner, spelling), arguments


INDEX_ARGUMENTS: Final[Mapping[Callable[..., Any], tuple[IndexArgument, ...]]] = MappingProxyType(
    dict(_by_function())
)
"""By function of torch, the arguments that hold indices."""


def widened(
    function: Callable[..., Any], args: tuple[Any, ...], keywords: Mapping[str, Any]
) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Return the arguments of a call with indices in a type that torch takes.

    Args:
        function: A function of torch; the arguments of one without indices are returned as they
            are.
        args: Its positional arguments.
        keywords: Its keyword arguments.
    """
    places = INDEX_ARGUMENTS.get(function)
    if places is None:
        return args, keywords
    positional, named = list(args), dict(keywords)
    for place in places:
        if place.position < len(positional):
            positional[place.position] = place.widened(positional[place.position])
        elif place.keyword in named:
            named[place.keyword] = place.widened(named[place.keyword])
    return tuple(positional), named


class WideIndices(TorchFunctionMode):
    """Within this context, torch takes integers of every width as indices."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call a function with indices in a type that torch takes; called by torch."""
        positional, named = widened(func, args, kwargs or {})
        return func(*positional, **named)
