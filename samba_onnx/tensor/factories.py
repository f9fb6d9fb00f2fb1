"""Factories: torch's, giving SambaTensors that may have a name.

torch's own factories return plain tensors whatever they are called from; these take the same
arguments and ``name``, ``batch_dim``, ``named_dims``, ``sized_dims`` and ``region_name`` besides.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypedDict, Unpack

import numpy as np
import torch

from samba_onnx.tensor.samba_tensor import SambaTensor

Size = int | Sequence[int]


class FactoryOptions(TypedDict, total=False):
    """Keywords of every factory; each may be left out."""

    name: str | None
    """Name of the tensor, unique among those on the device; None for no name."""
    batch_dim: int | None
    """Deprecated; kept, without effect."""
    named_dims: Iterable[str | None] | None
    """Deprecated; kept, without effect."""
    sized_dims: Iterable[str | None] | None
    """Kept, without effect."""
    region_name: str | None
    """Name of the place in device memory; the tensor's name when None."""
    dtype: torch.dtype | None
    """Type of the elements; the one that torch's factory would choose when None."""
    requires_grad: bool
    """Whether gradients are computed for it; False when left out."""


class RandomFactoryOptions(FactoryOptions, total=False):
    """Keywords of the factories that draw random numbers; each may be left out."""

    generator: torch.Generator | None
    """Where random bits come from; torch's global generator when None."""


# Keywords that torch's factories do not have.
_MARKS = ("name", "batch_dim", "named_dims", "sized_dims", "region_name")


def _make(factory: Callable[..., torch.Tensor], *args: Any, **options: Any) -> SambaTensor:
    marks = {key: options.pop(key) for key in _MARKS if key in options}
    return SambaTensor(factory(*args, **options), **marks)


def randn(*size: Size, **options: Unpack[RandomFactoryOptions]) -> SambaTensor:
    """Samples of the standard normal distribution.

    Args:
        *size: Shape of the tensor, as integers or one sequence.
        **options: Name, hints, dtype and generator, as ``RandomFactoryOptions`` lists them.
    """
    return _make(torch.randn, *size, **options)


def rand(*size: Size, **options: Unpack[RandomFactoryOptions]) -> SambaTensor:
    """Samples of the uniform distribution on ``[0, 1)``.

    Args:
        *size: Shape of the tensor, as integers or one sequence.
        **options: Name, hints, dtype and generator, as ``RandomFactoryOptions`` lists them.
    """
    return _make(torch.rand, *size, **options)


def randint(*bounds_and_size: Any, **options: Unpack[RandomFactoryOptions]) -> SambaTensor:
    """Random integers, int64 unless ``dtype`` says otherwise.

    Args:
        *bounds_and_size: ``high, size`` or ``low, high, size``; from ``low`` (0 if left out) to
            below ``high``.
        **options: Name, hints, dtype and generator, as ``RandomFactoryOptions`` lists them.
    """
    return _make(torch.randint, *bounds_and_size, **options)


def zeros(*size: Size, **options: Unpack[FactoryOptions]) -> SambaTensor:
    """A tensor of zeros.

    Args:
        *size: Shape of the tensor, as integers or one sequence.
        **options: Name, hints and dtype of the tensor, as ``FactoryOptions`` lists them.
    """
    return _make(torch.zeros, *size, **options)


def ones(*size: Size, **options: Unpack[FactoryOptions]) -> SambaTensor:
    """A tensor of ones.

    Args:
        *size: Shape of the tensor, as integers or one sequence.
        **options: Name, hints and dtype of the tensor, as ``FactoryOptions`` lists them.
    """
    return _make(torch.ones, *size, **options)


def empty(*size: Size, **options: Unpack[FactoryOptions]) -> SambaTensor:
    """A tensor in uninitialised memory.

    Args:
        *size: Shape of the tensor, as integers or one sequence.
        **options: Name, hints and dtype of the tensor, as ``FactoryOptions`` lists them.
    """
    return _make(torch.empty, *size, **options)


def full(size: Sequence[int], fill_value: float, **options: Unpack[FactoryOptions]) -> SambaTensor:
    """A tensor filled with a value.

    Args:
        size: Shape of the tensor.
        fill_value: The value of every element; without ``dtype`` it also chooses the dtype.
        **options: Name, hints and dtype of the tensor, as ``FactoryOptions`` lists them.
    """
    return _make(torch.full, size, fill_value, **options)


def arange(*bounds: float, **options: Unpack[FactoryOptions]) -> SambaTensor:
    """Evenly spaced values.

    Args:
        *bounds: ``end``, ``start, end`` or ``start, end, step``; ``end`` is not included.
        **options: Name, hints and dtype of the tensor, as ``FactoryOptions`` lists them.
    """
    return _make(torch.arange, *bounds, **options)


def randn_like(input: torch.Tensor, **options: Unpack[FactoryOptions]) -> SambaTensor:
    """Samples of the standard normal distribution, in the shape and dtype of another tensor.

    Args:
        input: The tensor whose shape and, by default, dtype the result has.
        **options: Name, hints and dtype of the tensor, as ``FactoryOptions`` lists them.
    """
    return _make(torch.randn_like, input, **options)


def rand_like(input: torch.Tensor, **options: Unpack[FactoryOptions]) -> SambaTensor:
    """Samples of the uniform distribution, in the shape and dtype of another tensor.

    Args:
        input: The tensor whose shape and, by default, dtype the result has.
        **options: Name, hints and dtype of the tensor, as ``FactoryOptions`` lists them.
    """
    return _make(torch.rand_like, input, **options)


def zeros_like(input: torch.Tensor, **options: Unpack[FactoryOptions]) -> SambaTensor:
    """Zeros in the shape and dtype of another tensor.

    Args:
        input: The tensor whose shape and, by default, dtype the result has.
        **options: Name, hints and dtype of the tensor, as ``FactoryOptions`` lists them.
    """
    return _make(torch.zeros_like, input, **options)


def ones_like(input: torch.Tensor, **options: Unpack[FactoryOptions]) -> SambaTensor:
    """Ones in the shape and dtype of another tensor.

    Args:
        input: The tensor whose shape and, by default, dtype the result has.
        **options: Name, hints and dtype of the tensor, as ``FactoryOptions`` lists them.
    """
    return _make(torch.ones_like, input, **options)


def empty_like(input: torch.Tensor, **options: Unpack[FactoryOptions]) -> SambaTensor:
    """Uninitialised memory in the shape and dtype of another tensor.

    Args:
        input: The tensor whose shape and, by default, dtype the result has.
        **options: Name, hints and dtype of the tensor, as ``FactoryOptions`` lists them.
    """
    return _make(torch.empty_like, input, **options)


def full_like(
    input: torch.Tensor, fill_value: float, **options: Unpack[FactoryOptions]
) -> SambaTensor:
    """A value in the shape and dtype of another tensor.

    Args:
        input: The tensor whose shape and, by default, dtype the result has.
        fill_value: The value of every element.
        **options: Name, hints and dtype of the tensor, as ``FactoryOptions`` lists them.
    """
    return _make(torch.full_like, input, fill_value, **options)


def set_seed(seed: int) -> None:
    """Seed torch's, numpy's and Python's random generators.

    Args:
        seed: Any integer from 0 to 2**32 - 1.

    Raises:
        ValueError: ``seed`` is out of range; from numpy.
    """
    np.random.seed(seed)
    random.seed(seed)
    torch.manual_seed(seed)
