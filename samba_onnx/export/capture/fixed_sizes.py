"""Functions of torch whose results have sizes that depend on values, where the program states a size."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from samba_onnx.errors import ModelError
from samba_onnx.export.capture.explanations import user_place
from samba_onnx.export.capture.replacing import replaced


@contextlib.contextmanager
def fixed_sizes() -> Iterator[None]:
    """Count within the context in as many classes as ``minlength`` says, for ``bincount``.

    torch's result is longer where a number is not below that; in what is compiled, a run that has such a
    number fails.
    """
    with (
        replaced(torch, "bincount", _counting(torch.bincount)),
        replaced(Tensor, "bincount", _counting(Tensor.bincount)),
    ):
        yield


def _counting(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
        if not minlength:
            counts = original(input, weights, minlength)
            if all(type(size) is int for size in counts.shape):  # what it counts is known
                return counts
            raise ModelError(
                f"{user_place()}: the size of what bincount returns depends on values, and a compiled graph "
                "has fixed sizes: give it minlength=, the number of classes"
            )
        places = input.long()
        if weights is None:
            return _added(places, torch.ones_like(places), minlength)
        # As torch: sums of float32 are float32, all others float64; nothing of it has a gradient.
        dtype = torch.float32 if weights.dtype == torch.float32 else torch.float64
        return _added(places, weights.detach().to(dtype), minlength)

    return bincount


def _added(places: Tensor, numbers: Tensor, size: int) -> Tensor:
    # Its size is the given one, whatever the values are, so that it can be traced.
    counts: Any = numbers.new_zeros(size).scatter_add(0, places, numbers)
    result: Tensor = counts
    return result
