"""Sliding windows of a ``StaticCache`` that go by a tensor, so that one program serves every length.

``transformers`` decides by a Python number whether a window is full, and compiles again when it becomes
so. A program is compiled once: what its window does has to follow from the tensors that it is given. While
a module is captured, such a layer is therefore of a class that computes the same from its tensor
``cumulative_length``, with the rows in the same places. Nothing of ``transformers`` is imported.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import is_fake

from samba_onnx.errors import ModelError
from samba_onnx.export.capture.explanations import user_place

__all__ = ["LENGTH", "NUMBER", "follow_length", "length_of", "original_class"]

NUMBER: Final = "cumulative_length_int"
"""The attribute that has a layer's length as a Python number, of sliding windows alone."""
LENGTH: Final = "cumulative_length"
"""The attribute that has it as a tensor."""


def length_of(layer: Any) -> Tensor | None:
    """Return the true length of a sliding window as a tensor; None for anything else.

    Of the two that ``transformers`` keeps, each may be behind: the tensor stands still once the window
    is full, and the number does where a program has written the tensor.

    Args:
        layer: A part of a cache.
    """
    number, length = getattr(layer, NUMBER, None), getattr(layer, LENGTH, None)
    if number is None or not isinstance(length, Tensor):
        return None
    # It goes by the tensor, and leaves the number behind.
    if isinstance(layer, _ByTensor):
        return length
    if not _has_value(length):
        # Captured in the original class, which is so only where the number is known to be right.
        return torch.full_like(length, number)
    # The one that is further on is the true one, as both only grow.
    return length if int(length) >= number else torch.full_like(length, number)


def follow_length(layer: Any) -> Any:
    """Let a sliding window that was given its tensors go by its length; leave anything else as it is.

    With values, the number is set and the class stays, so that eager runs are those of
    ``transformers``. Without, in a capture, the class is the one that goes by the tensor.

    Args:
        layer: A part of a cache; it may be changed.

    Returns:
        What is to be in its place.
    """
    length = getattr(layer, LENGTH, None)
    if not hasattr(layer, NUMBER) or not isinstance(length, Tensor):
        return layer
    if _has_value(length):
        setattr(layer, NUMBER, int(length))
        return layer
    if layer.keys is None:
        # A window without rows is at its beginning, which needs no tensor to tell.
        return layer
    # mypy looks at the __hash__ of the class's objects.
    twin: Any = object.__new__(_by_tensor(type(layer)))  # type: ignore[arg-type]
    vars(twin).update(vars(layer))
    return twin


def original_class(layer: Any) -> type:
    """Return the class of a part of a cache that ``transformers`` has."""
    kind = type(layer)
    return kind.__mro__[2] if isinstance(layer, _ByTensor) else kind


def _has_value(length: Tensor) -> bool:
    return not is_fake(length) and length.device.type != "meta"


class _Offset:
    """The position of a window's first row, where ``transformers`` expects a number.

    It adds to tensors and numbers as the number would. Whether it is above some number only a value
    could tell.
    """

    def __init__(self, value: Tensor, least: int = 0) -> None:
        self.value = value
        self.least = least
        """What the number is at least: a position is never below 0."""

    def __add__(self, other: Any) -> Any:
        whole = self.value + other
        return whole if isinstance(other, Tensor) else _Offset(whole, self.least + other)

    __radd__ = __add__

    def __sub__(self, other: int) -> _Offset:
        return _Offset(self.value - other, self.least - other)

    def __gt__(self, other: int) -> bool:
        # Asked to find out whether a mask of padding is too short and has to be made longer: one
        # program has masks of one length, that of the longest text. A table of the tokens of one
        # call is too short at all times, and would have to grow with the text.
        if self.least > other:
            raise ModelError(
                f"{user_place()}: a table about tokens is made longer by how many were read before, and a "
                "compiled graph has fixed sizes: give it for the whole text, or compile forward without a "
                "cache, for texts of one length"
            )
        return False


class _ByTensor:
    """What a sliding window does, in front of its class: nothing depends on a Python number.

    Row 0 is the oldest that is kept, as ``transformers`` has it, and the tensor is the number of all
    tokens so far, also when the window is full.
    """

    keys: Tensor
    values: Tensor
    cumulative_length: Tensor
    max_cache_len: int

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Keep new rows (batch, heads, tokens, width); return all that they may attend to."""
        put = self._put_one if key_states.shape[-2] == 1 else self._put_several
        self.keys, keys = put(self.keys, key_states)
        self.values, values = put(self.values, value_states)
        self.cumulative_length = self.cumulative_length + key_states.shape[-2]
        return keys, values

    def get_mask_sizes(self, query_length: int) -> tuple[int, _Offset]:
        """Return the number of rows that ``update`` will return, and the position of the first."""
        if query_length == 1:
            first = (self.cumulative_length - self.max_cache_len + 1).clamp(min=0)
            # As many rows as are kept: a single new one takes the place of the oldest.
            return self.max_cache_len, _Offset(first)
        return self.max_cache_len + query_length, _Offset(self.cumulative_length - self._kept)

    def get_seq_length(self) -> Tensor:
        """Return the number of tokens so far."""
        return self.cumulative_length

    @property
    def _kept(self) -> Tensor:
        """How many of the rows are of tokens."""
        return self.cumulative_length.clamp(max=self.max_cache_len)

    def _put_one(self, old: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
        # Rows move up by one once the window is full, by none before.
        full = (self.cumulative_length >= self.max_cache_len).long()
        rows = (torch.arange(self.max_cache_len) + full).clamp(max=self.max_cache_len - 1)
        # A full window has its newest row last.
        place = self.cumulative_length.clamp(max=self.max_cache_len - 1)
        kept = old.index_select(2, rows).index_copy(2, place.reshape(1), new)
        return kept, kept

    def _put_several(self, old: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
        # Rows behind the last token are in its future, which causal masks hide.
        count = new.shape[2]
        # Old and new rows together: the first of the new ones may attend to rows that are dropped
        # afterwards.
        wide = torch.nn.functional.pad(old, (0, 0, 0, count))
        wide = wide.index_copy(2, torch.arange(count) + self._kept, new)
        first = (self._kept + count - self.max_cache_len).clamp(min=0)
        return wide.index_select(2, torch.arange(self.max_cache_len) + first), wide


@functools.cache
def _by_tensor(kind: type) -> type:
    """Return the class of a layer, with what goes by the tensor in front."""
    if issubclass(kind, _ByTensor):
        return kind
    # Named as the original, which is what structures of caches are compared by.
    return type(kind.__name__, (_ByTensor, kind), {"__module__": kind.__module__})
