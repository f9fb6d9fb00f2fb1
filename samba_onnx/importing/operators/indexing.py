"""Operators that read and write at places given by other tensors."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  (torch's own convention)
from torch import Tensor

from samba_onnx.importing.operators.computations import Node, computes
from samba_onnx.importing.values import Array, tensor_of

_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@computes("Gather", flexible=(1,))
def gather(node: Node, value: Tensor, places: Tensor | Array) -> Tensor:
    """Read slices along an axis; negative places count from the end."""
    axis = node.integer("axis") % value.dim()
    if isinstance(places, np.ndarray):
        if places.ndim == 0:
            # select keeps a view, where index_select would copy; and a scalar place drops the axis.
            return value.select(axis, int(places))
        # Known places are brought to range here, so that no operator for it is traced.
        places = tensor_of(places % value.shape[axis])
    else:
        places = _from_start(places, value.shape[axis])
    # Rows of a matrix are what embeddings read, and torch differentiates F.embedding by one
    # operator.
    if axis == 0 and value.dim() == 2 and value.is_floating_point():
        return F.embedding(places, value)
    # index_select takes one axis of places; several are unrolled and given their shape back.
    chosen = value.index_select(axis, places.reshape(-1))
    return chosen.reshape(*value.shape[:axis], *places.shape, *value.shape[axis + 1 :])


def _from_start(places: Tensor, length: int) -> Tensor:
    """Return places as torch wants them: 64 bits, none negative."""
    # ONNX counts negative places from the end, which torch's gather and scatter refuse.
    places = places.long()
    return torch.where(places < 0, places + length, places)


@computes("GatherElements")
def gather_elements(node: Node, value: Tensor, places: Tensor) -> Tensor:
    """Read one element per place along an axis."""
    axis = node.integer("axis")
    return torch.gather(value, axis, _from_start(places, value.shape[axis]))


@computes("GatherND")
def gather_nd(node: Node, value: Tensor, places: Tensor) -> Tensor:
    """Read at coordinates that lie along the last axis."""
    batch = node.integer("batch_dims")
    coordinates = list(places.long().unbind(-1))
    for axis in range(batch):
        count = value.shape[axis]
        sizes = [1] * coordinates[0].dim()
        sizes[axis] = count
        # Batch axes are no part of the coordinates: each is counted through by a range of its own.
        coordinates.insert(axis, torch.arange(count).reshape(sizes))
    return value[tuple(coordinates)]


@computes("ScatterElements")
def scatter_elements(node: Node, value: Tensor, places: Tensor, updates: Tensor) -> Tensor:
    """Write or combine one element per place along an axis."""
    axis, reduction = node.integer("axis"), node.text("reduction", "none")
    places = _from_start(places, value.shape[axis])
    if reduction == "none":
        return value.scatter(axis, places, updates)
    if reduction == "add":
        return value.scatter_add(axis, places, updates)
    return value.scatter_reduce(axis, places, updates, _REDUCTIONS[reduction])


@computes("ScatterND")
def scatter_nd(node: Node, value: Tensor, places: Tensor, updates: Tensor) -> Tensor:
    """Write or combine slices at coordinates that lie along the last axis."""
    reduction = node.text("reduction", "none")
    coordinates = places.long().unbind(-1)
    if reduction in ("none", "add"):
        # Indexing with tensors counts negative places from the end by itself.
        return value.index_put(coordinates, updates, accumulate=reduction == "add")
    # index_put knows no other reduction. Coordinates are turned into row numbers of a flat value,
    # in which scatter_reduce goes along one axis.
    depth = len(coordinates)
    rows = coordinates[0].new_zeros(coordinates[0].shape)
    for coordinate, length in zip(coordinates, value.shape, strict=False):
        rows = rows * length + _from_start(coordinate, length)
    slices = list(value.shape[depth:])
    flat = value.reshape(-1, *slices)
    changes = updates.reshape(-1, *slices)
    rows = rows.reshape(-1, *[1] * len(slices)).expand(changes.shape)
    return flat.scatter_reduce(0, rows, changes, _REDUCTIONS[reduction]).reshape(value.shape)


@computes("OneHot", known=(1,))
def one_hot(node: Node, places: Tensor, depth: Array, values: Tensor) -> Tensor:
    """Return the second of two values at each place, and the first elsewhere."""
    count = int(depth.item())
    axis = node.integer("axis", -1)
    axis += places.dim() + 1 if axis < 0 else 0
    sizes = [1] * (places.dim() + 1)
    sizes[axis] = count
    # ONNX counts negative places from the end; those out of range match no position.
    positions = _from_start(places, count).unsqueeze(axis)
    return torch.where(positions == torch.arange(count).reshape(sizes), values[1], values[0])


@computes("TensorScatter")
def tensor_scatter(
    node: Node, cache: Tensor, update: Tensor, starts: Tensor | None = None
) -> Tensor:
    """Write a stretch per batch element into a cache along an axis, maybe around its end."""
    axis = node.integer("axis", -2) % cache.dim()
    steps = torch.arange(update.shape[axis])
    begin = torch.zeros(cache.shape[0], dtype=torch.int64) if starts is None else starts.long()
    places = begin.unsqueeze(1) + steps
    if node.text("mode", "linear") == "circular":
        places = places % cache.shape[axis]
    sizes = [1] * cache.dim()
    sizes[0], sizes[axis] = places.shape
    # All steps at once: writing step by step would put as many nodes into the graph.
    return cache.scatter(axis, places.reshape(sizes).expand(update.shape), update)
