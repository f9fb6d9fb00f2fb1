"""Example inputs of a PyTorch model in other sizes, without the memory that these would take."""

from __future__ import annotations

import dataclasses
import math
import mmap
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from samba_onnx.compiling.size_dimensions import FitDimension, chosen_axes
from samba_onnx.compiling.torch.torch_models import TorchModel
from samba_onnx.errors import UsageError
from samba_onnx.export.capture.captured_modules import input_names

__all__ = ["resized", "torch_dimension"]

_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)
"""Linux's flag, which Python names from 3.13 on."""


def torch_dimension(text: str, model: TorchModel) -> FitDimension:
    """Return the axes of a model's example inputs that a text means.

    Args:
        text: ``batch`` for the first axes of one size; ``seq`` for the second axis of integers with two,
            and all axes but first ones of its size; or axes, as ``ids[1],mask[1]``.
        model: The model; its sizes are those of its example inputs.

    Raises:
        UsageError: It cannot be told which axes are meant, there are no such, or the model's sizes are
            those of a file.
    """
    if model.exported is not None:
        raise UsageError(
            f"--fit {text}: every dimension of {model.name} is static, as it was exported: give the function "
            "that returns the module and its example inputs, as package.module:factory"
        )
    tensors = [
        (name, leaf)
        for name, leaf in input_names(model.module, tuple(model.args), model.keywords)
        if isinstance(leaf, Tensor) and leaf.dim()
    ]
    axes = chosen_axes(text)
    if not axes:
        axes = {"batch": _batch_axes, "seq": _sequence_axes}.get(text, _no_axes)(tensors)
    known = dict(tensors)
    if not axes or any(name not in known or axis >= known[name].dim() for name, axis in axes):
        shapes = ", ".join(f"{name} {list(leaf.shape)}" for name, leaf in tensors)
        raise UsageError(
            f"--fit {text}: it cannot be told which axes of the example inputs ({shapes}) are meant: give "
            "them, as --fit ids[1],mask[1]"
        )
    sizes = {known[name].shape[axis] for name, axis in axes}
    if len(sizes) > 1:
        raise UsageError(f"--fit {text}: these axes have the sizes {sorted(sizes)}: expected one")
    inputs = tuple(f"{name}[{axis}]" for name, axis in axes)
    return FitDimension(text, "", inputs, sizes.pop())


def resized(model: TorchModel, dimension: FitDimension, size: int) -> TorchModel:
    """Return a model with example inputs of another size.

    Args:
        model: The model.
        dimension: Axes of its example inputs.
        size: Their size.

    Returns:
        The model with inputs of zeros in memory that nobody has touched: only their sizes and types matter
        to an analysis. Other inputs are as they were.
    """
    axes = dimension.axes()
    named = input_names(model.module, tuple(model.args), model.keywords)
    # By identity, since comparing tensors gives a tensor.
    chosen = {id(leaf): axes[name] for name, leaf in named if name in axes}

    def other(leaf: Any) -> Any:
        if id(leaf) not in chosen:
            return leaf
        shape = [size if axis in chosen[id(leaf)] else n for axis, n in enumerate(leaf.shape)]
        # Which inputs have gradients is part of the program.
        return _untouched(leaf, shape).requires_grad_(leaf.requires_grad)

    args, keywords = pytree.tree_map(other, (tuple(model.args), dict(model.keywords)))
    return dataclasses.replace(model, args=args, keywords=keywords)


def _batch_axes(tensors: Sequence[tuple[str, Tensor]]) -> list[tuple[str, int]]:
    """Return the first axes of the size of the first input's."""
    if not tensors:
        return []
    size = tensors[0][1].shape[0]
    return [(name, 0) for name, leaf in tensors if leaf.shape[0] == size]


def _sequence_axes(tensors: Sequence[tuple[str, Tensor]]) -> list[tuple[str, int]]:
    """Return the axes of the length of the only kind of tokens that there are."""
    lengths = {
        leaf.shape[1]
        for _, leaf in tensors
        if leaf.dim() == 2 and not leaf.is_floating_point() and not leaf.is_complex()
    }
    if len(lengths) != 1:
        return []
    length = lengths.pop()
    # Masks may have the length twice; only the batch's axis may be as long by chance.
    return [
        (name, axis)
        for name, leaf in tensors
        for axis, size in enumerate(leaf.shape)
        if axis and size == length
    ]


def _no_axes(tensors: Sequence[tuple[str, Tensor]]) -> list[tuple[str, int]]:
    return []


def _untouched(leaf: Tensor, shape: Sequence[int]) -> Tensor:
    """Return zeros of a shape and the type and device of a tensor, which take addresses and no memory."""
    size = math.prod(shape) * leaf.element_size()
    if leaf.device.type != "cpu" or not size or not sys.platform.startswith("linux"):
        return torch.empty(shape, dtype=leaf.dtype, device=leaf.device)
    # Systems refuse to lend more memory than they have, unless nothing is to be reserved of it.
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
    pages = mmap.mmap(-1, size, flags=flags)
    return torch.frombuffer(pages, dtype=leaf.dtype).view(*shape)
