"""Reductions of segments in terms of operators whose gradients can be written in ONNX."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

import torch
from torch import Tensor

_NEUTRAL: Final = MappingProxyType(
    {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": float("-inf"), "min": float("inf")}
)


def segment_reduce(
    value: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Tensor:
    """Reduce the elements of each segment of an axis; names and meaning are torch's.

    Args:
        value: (*lead, n, *rest).
        reduce: ``sum``, ``mean``, ``prod``, ``max`` or ``min``.
        lengths: (*lead, segments), or
        offsets: (*lead, segments + 1).
        indices: Not used, as by torch.
        axis: The axis along which segments lie.
        unsafe: Not read: a graph checks nothing.
        initial: What a reduction starts with.

    Returns:
        (*lead, segments, *rest).
    """
    inside = _inside(lengths, offsets, value.shape[axis])
    inside = inside.reshape(*inside.shape, *[1] * (value.dim() - axis - 1))
    # Every segment has all elements, neutral where they are not its own.
    spread = torch.where(inside, value.unsqueeze(axis), _NEUTRAL[reduce])
    if reduce in ("max", "min"):
        return _extreme(spread, reduce, axis + 1, initial)
    if reduce == "prod":
        product = _product(spread, axis + 1)
        return product if initial is None else product * initial
    total = spread.sum(axis + 1)
    total = total if initial is None else total + initial
    if reduce == "sum":
        return total
    filled = inside.sum(axis + 1).to(value.dtype)
    # An empty segment has no mean, as in torch, unless there is an initial number.
    return total / (filled if initial is None else filled.clamp(min=1))


def _inside(lengths: Tensor | None, offsets: Tensor | None, size: int) -> Tensor:
    """Return which elements lie in each segment: (*lead, segments, n)."""
    if offsets is not None:
        starts, ends = offsets[..., :-1], offsets[..., 1:]
    else:
        assert lengths is not None
        ends = lengths.cumsum(-1)
        starts = ends - lengths
    places = torch.arange(size, device=starts.device)
    return (places >= starts.unsqueeze(-1)) & (places < ends.unsqueeze(-1))


def _extreme(spread: Tensor, reduce: str, axis: int, initial: float | None) -> Tensor:
    if reduce == "max":
        extreme = spread.amax(axis)
        return extreme if initial is None else extreme.clamp(min=initial)
    extreme = spread.amin(axis)
    return extreme if initial is None else extreme.clamp(max=initial)


def _product(value: Tensor, axis: int) -> Tensor:
    # Factor by factor: a gradient by quotients would fail at zeros.
    result = torch.ones_like(value.sum(axis))
    for factor in value.unbind(axis):
        result = result * factor
    return result
