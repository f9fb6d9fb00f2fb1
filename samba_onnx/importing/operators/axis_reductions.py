"""Operators that reduce, accumulate and order along axes."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from samba_onnx.importing.operators.computations import Node, computes, enter
from samba_onnx.importing.values import Array

Reduction = Callable[[Tensor, list[int], bool], Tensor]


def _sum(value: Tensor, axes: list[int], keep: bool) -> Tensor:
    # torch would widen small integers to int64; ONNX keeps the type.
    return torch.sum(value, axes, keep, dtype=value.dtype)


def _l1(value: Tensor, axes: list[int], keep: bool) -> Tensor:
    return _sum(value.abs(), axes, keep)


def _l2(value: Tensor, axes: list[int], keep: bool) -> Tensor:
    if value.is_floating_point():
        norm: Tensor = torch.linalg.vector_norm(value, 2, axes, keep)
        return norm  # unlike that of a root, its gradient at zero is zero
    return torch.sqrt(_sum_square(value, axes, keep).float()).to(value.dtype)


def _sum_square(value: Tensor, axes: list[int], keep: bool) -> Tensor:
    return _sum(value * value, axes, keep)


def _log_sum(value: Tensor, axes: list[int], keep: bool) -> Tensor:
    return torch.log(_sum(value, axes, keep))


def _largest(value: Tensor, axes: list[int], keep: bool) -> Tensor:
    # torch refuses the largest of nothing; ONNX defines it as the type's lowest number.
    if value.numel():
        return torch.amax(value, axes, keep)
    return _of_nothing(value, axes, keep, -torch.inf)


def _smallest(value: Tensor, axes: list[int], keep: bool) -> Tensor:
    if value.numel():
        return torch.amin(value, axes, keep)
    return _of_nothing(value, axes, keep, torch.inf)


def _of_nothing(value: Tensor, axes: list[int], keep: bool, result: float) -> Tensor:
    sizes = _sum(value, axes, keep).shape
    if value.is_floating_point():
        return torch.full(sizes, result, dtype=value.dtype)
    limits = torch.iinfo(value.dtype)
    return torch.full(sizes, limits.min if result < 0 else limits.max, dtype=value.dtype)


def _product(value: Tensor, axes: list[int], keep: bool) -> Tensor:
    # torch.prod takes one axis. The last comes first, so that numbers of the others stay right when
    # an axis is gone.
    for axis in sorted((axis % value.dim() for axis in axes), reverse=True):
        value = torch.prod(value, axis, keep, dtype=value.dtype)
    return value


_REDUCTIONS: dict[str, Reduction] = {
    "ReduceL1": _l1,
    "ReduceL2": _l2,
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": torch.logsumexp,
    "ReduceMax": _largest,
    "ReduceMean": torch.mean,
    "ReduceMin": _smallest,
    "ReduceProd": _product,
    "ReduceSum": _sum,
    "ReduceSumSquare": _sum_square,
}


def _reduce(function: Reduction, node: Node, value: Tensor, axes: Array | None = None) -> Tensor:
    """Reduce along axes; along all of them when none are given."""
    along = [] if axes is None else [int(axis) for axis in axes.reshape(-1)]
    if not along and node.integer("noop_with_empty_axes"):
        # The reduction over one element still applies what is no reduction, as the square or the
        # logarithm.
        return function(value.unsqueeze(0), [0], False)
    # No axes mean all, unless the attribute says none.
    along = along or list(range(value.dim()))
    if value.dtype == torch.bool:  # the largest and smallest of truth values
        return function(value.to(torch.uint8), along, bool(node.integer("keepdims", 1))).bool()
    # A scalar has no axis to reduce, and torch takes an empty list for all.
    if not along:
        return function(value.unsqueeze(0), [0], False)
    return function(value, along, bool(node.integer("keepdims", 1)))


for _name, _function in _REDUCTIONS.items():
    enter(_name, functools.partial(_reduce, _function), known=(1,))


@computes("ArgMax")
def argmax(node: Node, value: Tensor) -> Tensor:
    """Return the place of the first, or last, maximum along an axis."""
    return _place(torch.argmax, node, value)


@computes("ArgMin")
def argmin(node: Node, value: Tensor) -> Tensor:
    """Return the place of the first, or last, minimum along an axis."""
    return _place(torch.argmin, node, value)


def _place(function: Callable[..., Tensor], node: Node, value: Tensor) -> Tensor:
    axis, keep = node.integer("axis"), bool(node.integer("keepdims", 1))
    if not node.integer("select_last_index"):
        return function(value, axis, keep)
    # Turned around, the last is the first.
    return value.shape[axis] - 1 - function(value.flip(axis), axis, keep)


@computes("CumSum", known=(1,))
def cumulative_sum(node: Node, value: Tensor, axis: Array) -> Tensor:
    """Add up along an axis, maybe backwards, maybe without the element itself."""
    return _accumulate(torch.cumsum, 0, node, value, int(axis.item()))


@computes("CumProd", known=(1,))
def cumulative_product(node: Node, value: Tensor, axis: Array) -> Tensor:
    """Multiply along an axis, maybe backwards, maybe without the element itself."""
    return _accumulate(torch.cumprod, 1, node, value, int(axis.item()))


def _accumulate(
    function: Callable[..., Tensor], neutral: int, node: Node, value: Tensor, axis: int
) -> Tensor:
    dtype, backwards = value.dtype, bool(node.integer("reverse"))
    if backwards:
        value = value.flip(axis)
    # A shift by one with the neutral element in front leaves the last element out.
    if node.integer("exclusive"):
        first = torch.full_like(value.narrow(axis, 0, 1), neutral)
        value = torch.cat([first, value.narrow(axis, 0, value.shape[axis] - 1)], axis)
    result = function(value, axis, dtype=dtype)
    return result.flip(axis) if backwards else result


@computes("TopK", known=(1,))
def top_k(node: Node, value: Tensor, count: Array) -> tuple[Tensor, Tensor]:
    """Return the largest or smallest elements along an axis, in order, and their places.

    Of equal elements those that come first, as ONNX demands; torch's own operator leaves it open.
    """
    axis, number = node.integer("axis", -1), int(count.item())
    largest = bool(node.integer("largest", 1))
    # torch.topk is not stable; a sorted copy costs more and gives equal elements in their order.
    places = torch.argsort(value, dim=axis, descending=largest, stable=True)
    places = places.narrow(axis, 0, number)
    return torch.gather(value, axis, places), places
