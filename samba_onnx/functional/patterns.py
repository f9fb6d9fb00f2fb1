"""SambaFlow's memory access and reduction patterns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import torch

from samba_onnx.errors import UsageError
from samba_onnx.functional.overriding import overridable

_UPDATES: Final = ("kUpdate", "kAdd")
"""How ``sn_scatter`` combines a slice with the table: it replaces, or it adds."""

_REDUCTIONS: Final[dict[str, Callable[[torch.Tensor, tuple[int, ...]], torch.Tensor]]] = {
    "SUM": lambda tensor, dims: tensor.sum(dims, keepdim=True),
    "MAX": lambda tensor, dims: tensor.amax(dims, keepdim=True),
    "MIN": lambda tensor, dims: tensor.amin(dims, keepdim=True),
    "MEAN": lambda tensor, dims: tensor.mean(dims, keepdim=True),
    "PROD": lambda tensor, dims: _product(tensor, dims),
}
"""By name, a function of a tensor and dimensions that reduces these to size 1."""


def reduction(name: str) -> Callable[[torch.Tensor, tuple[int, ...]], torch.Tensor]:
    """Return the reduction of a name.

    Args:
        name: ``SUM``, ``MAX``, ``MIN``, ``MEAN`` or ``PROD``, in any case.

    Returns:
        A function of a tensor and dimensions that reduces these to size 1.

    Raises:
        UsageError: There is no such reduction.
    """
    try:
        return _REDUCTIONS[name.upper()]
    except KeyError:
        known = ", ".join(_REDUCTIONS)
        raise UsageError(f"{name!r} is not a reduction; give one of {known}") from None


@overridable
def sn_reduce(input: torch.Tensor, dim: int | tuple[int, ...], fn: str) -> torch.Tensor:
    """Reduce dimensions of a tensor to size 1.

    Args:
        input: A tensor of any shape.
        dim: Dimension or dimensions to reduce; negative ones count from the last.
        fn: ``SUM``, ``MAX``, ``MIN``, ``MEAN`` or ``PROD``, in any case.

    Returns:
        A tensor of as many dimensions; the reduced ones have size 1.

    Raises:
        UsageError: There is no reduction of the name ``fn``.
    """
    return reduction(fn)(input, (dim,) if isinstance(dim, int) else tuple(dim))


@overridable
def sn_gather(
    input_tensor: torch.Tensor,
    start_indices: torch.Tensor,
    gather_dims: Sequence[int],
    gather_lengths: Sequence[int],
    batched_dims: int = 0,
) -> torch.Tensor:
    """Take one slice of a table per vector of start indices.

    Args:
        input_tensor: The table, of any shape and dtype.
        start_indices: Where the slices start: integers of shape ``(..., D)``, one index per
            gathered dimension.
        gather_dims: The ``D`` dimensions to gather along, counted after the batched ones.
            The others are taken whole.
        gather_lengths: How many elements a slice has along each gathered dimension.
        batched_dims: How many leading dimensions table and indices share.

    Returns:
        A tensor of shape ``start_indices.shape[:-1] + slice``, of the dtype of the table. A slice
        that would leave the table is moved back until it fits.

    Raises:
        UsageError: Dimensions, lengths and indices do not fit each other.
    """
    dims = _checked_dims(input_tensor, start_indices, gather_dims, batched_dims, "gather")
    window = list(input_tensor.shape[batched_dims:])
    if len(gather_lengths) != len(dims):
        raise UsageError(f"{len(gather_lengths)} gather lengths for {len(dims)} gather dimensions")
    for dim, length in zip(dims, gather_lengths, strict=True):
        if not 1 <= length <= window[dim]:
            raise UsageError(
                f"gather length {length} of dimension {dim}: its size is {window[dim]}"
            )
        window[dim] = length
    return input_tensor[_positions(input_tensor, start_indices, dims, window, batched_dims)]


@overridable
def sn_scatter(
    operand: torch.Tensor,
    update: torch.Tensor,
    start_indices: torch.Tensor,
    scatter_dims: Sequence[int],
    rmw_op: str = "kUpdate",
    unique_indices: bool = False,
    batched_dims: int = 0,
) -> torch.Tensor:
    """Write one slice of a table per vector of start indices.

    Args:
        operand: The table, of any shape and dtype; it is not changed.
        update: The slices, of shape ``start_indices.shape[:-1] + slice``. Dimensions that are not
            scattered are written whole.
        start_indices: Where the slices start: integers of shape ``(..., D)``, one index per
            scattered dimension.
        scatter_dims: The ``D`` dimensions to scatter along, counted after the batched ones.
        rmw_op: ``kUpdate`` replaces, ``kAdd`` adds; slices that overlap add up.
        unique_indices: Whether the caller promises that no slices overlap; without effect.
        batched_dims: How many leading dimensions table and indices share.

    Returns:
        A new table, of the shape and dtype of ``operand``. A slice that would leave the table is
        not written.

    Raises:
        UsageError: Dimensions and shapes do not fit each other, or there is no such ``rmw_op``.
    """
    del unique_indices
    if rmw_op not in _UPDATES:
        raise UsageError(f"rmw_op is {rmw_op!r}; give one of {', '.join(_UPDATES)}")
    dims = _checked_dims(operand, start_indices, scatter_dims, batched_dims, "scatter")
    whole = operand.shape[batched_dims:]
    window = _window(operand, update, start_indices, dims, batched_dims)
    starts = start_indices.long()
    inside = torch.ones(starts.shape[:-1], dtype=torch.bool, device=operand.device)
    for axis, dim in enumerate(dims):
        first = starts[..., axis]
        inside = inside & (first >= 0) & (first <= whole[dim] - window[dim])
    places = _flat_places(operand, starts, dims, window, batched_dims)
    # A graph's sizes are static: what is not to be written goes to one more place behind the table.
    mask = inside.reshape(*inside.shape, *[1] * len(window))
    places = torch.where(mask, places, operand.numel()).reshape(-1)
    table = torch.cat([operand.reshape(-1), operand.new_zeros(1)])
    # The result is of the table's type, whatever the slices are of.
    values = update.to(operand.dtype).reshape(-1)
    written = table.index_put((places,), values, accumulate=rmw_op == "kAdd")
    return written[:-1].reshape(operand.shape)


def _flat_places(
    table: torch.Tensor, starts: torch.Tensor, dims: list[int], window: list[int], batched: int
) -> torch.Tensor:
    """Return the place of every element of every slice in the table as one row of numbers.

    Args:
        table: The table that is written.
        starts: Where the slices start, shape ``(..., D)``.
        dims: The ``D`` dimensions that ``starts`` is about, counted after the batched ones.
        window: Shape of one slice.
        batched: How many leading dimensions ``table`` and ``starts`` share.

    Returns:
        int64, of shape ``starts.shape[:-1] + window``.
    """
    stride = table.numel()
    places = torch.zeros((), dtype=torch.int64, device=table.device)
    for size, index in zip(
        table.shape, _positions(table, starts, dims, window, batched), strict=True
    ):
        # Without elements along an axis there are no places, and nothing to divide by.
        stride //= max(size, 1)
        places = places + index * stride
    return places.expand(*starts.shape[:-1], *window)


def _window(
    table: torch.Tensor, update: torch.Tensor, starts: torch.Tensor, dims: list[int], batched: int
) -> list[int]:
    """Return the shape of one slice of an update, if it fits the table."""
    whole = table.shape[batched:]
    # What follows the axes of the start indices is one slice.
    window = list(update.shape[starts.ndim - 1 :])
    fits = len(window) == len(whole) and tuple(update.shape) == (*starts.shape[:-1], *window)
    if not fits or any(
        size > full or (dim not in dims and size != full)
        for dim, (size, full) in enumerate(zip(window, whole, strict=True))
    ):
        raise UsageError(
            f"update of shape {tuple(update.shape)} does not fit start_indices of shape "
            f"{tuple(starts.shape)} and a table of shape {tuple(table.shape)}"
        )
    return window


@overridable
def sn_multinomial(probs: torch.Tensor, pre_generated_randoms: torch.Tensor) -> torch.Tensor:
    """Draw one index per row by inverting the cumulative distribution.

    Args:
        probs: Probabilities in floating point, of shape ``(n, k)``; a row's sum is 1.
        pre_generated_randoms: One uniform sample in ``[0, 1)`` per row, of shape ``(n, 1)``.

    Returns:
        Indices in int64, of shape ``(n,)``: in each row the first whose cumulative probability
        exceeds the sample.

    Raises:
        UsageError: The shapes do not fit.
    """
    rows = tuple(probs.shape[:1])
    if probs.ndim != 2 or tuple(pre_generated_randoms.shape) != (*rows, 1):
        raise UsageError(
            f"sn_multinomial was given shapes {tuple(probs.shape)} and "
            f"{tuple(pre_generated_randoms.shape)}; it takes (n, k) and (n, 1)"
        )
    cumulative = probs.cumsum(1)
    index = (cumulative <= pre_generated_randoms).sum(1)
    # Rounded, the last cumulative probability may be less than 1, and a sample beyond it.
    return index.clamp(max=probs.shape[1] - 1)


def _checked_dims(
    table: torch.Tensor, starts: torch.Tensor, dims: Iterable[int], batched: int, verb: str
) -> list[int]:
    """Return dimensions counted from 0, if they and the start indices fit the table."""
    rank = table.ndim - batched
    positive = [dim + rank if dim < 0 else dim for dim in dims]
    if not 0 <= batched < table.ndim or starts.ndim <= batched:
        raise UsageError(f"{batched} batched dimensions of a table with {table.ndim} dimensions")
    if starts.is_floating_point() or starts.shape[-1] != len(positive):
        raise UsageError(
            f"start_indices of shape {tuple(starts.shape)}, {starts.dtype}; give integers with "
            f"{len(positive)} in the last dimension, one for each {verb} dimension"
        )
    if len(set(positive)) != len(positive) or not all(0 <= dim < rank for dim in positive):
        raise UsageError(f"{verb} dimensions {list(dims)}: give distinct ones below {rank}")
    if table.shape[:batched] != starts.shape[:batched]:
        raise UsageError(
            f"the first {batched} dimensions of {tuple(table.shape)} and {tuple(starts.shape)} "
            "must be equal: they are batched"
        )
    return positive


def _positions(
    table: torch.Tensor, starts: torch.Tensor, dims: list[int], window: list[int], batched: int
) -> tuple[torch.Tensor, ...]:
    """Return the place in the table of every element of every slice.

    Args:
        table: The table that is read or written.
        starts: Where the slices start, shape ``(..., D)``.
        dims: The ``D`` dimensions that ``starts`` is about, counted after the batched ones.
        window: Shape of one slice.
        batched: How many leading dimensions ``table`` and ``starts`` share.

    Returns:
        One tensor of indices per dimension of the table; they broadcast to
        ``starts.shape[:-1] + window``.
    """
    groups, rank = starts.ndim - 1, len(window)
    index = []
    for dim in range(batched):
        steps = torch.arange(table.shape[dim], device=table.device)
        index.append(steps.reshape([-1 if axis == dim else 1 for axis in range(groups + rank)]))
    for dim, length in enumerate(window):
        steps = torch.arange(length, device=table.device)
        steps = steps.reshape([-1 if axis == dim else 1 for axis in range(rank)])
        if dim in dims:
            last = table.shape[batched + dim] - length
            first = starts[..., dims.index(dim)].long().clamp(0, last)
            steps = first.reshape(*first.shape, *[1] * rank) + steps
        # A dimension that is taken whole is the same in every slice: one element in front for each
        # axis of the start indices.
        index.append(steps.expand(*[1] * groups, *steps.shape) if steps.ndim == rank else steps)
    return tuple(index)


def _product(tensor: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    # torch's prod takes one dimension at a time.
    for dim in dims:
        tensor = tensor.prod(dim, keepdim=True)
    return tensor
