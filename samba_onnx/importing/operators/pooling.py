"""Poolings."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812  (torch's own convention)
from torch import Tensor

from samba_onnx.importing.operators.computations import Node, computes, integers
from samba_onnx.importing.operators.windows import SlidingWindows, lowest, unfolded, windows
from samba_onnx.importing.values import Array

_LARGEST = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_MEAN = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


@computes("MaxPool")
def max_pool(node: Node, value: Tensor) -> Tensor | tuple[Tensor, Tensor]:
    """Return the largest element of each window, and where it lies in the whole value."""
    place = windows(node, value, node.integers("kernel_shape"))
    padded, padding = value, place.before
    # torch refuses padding over half a window, which ONNX allows.
    fits = all(2 * pad <= kernel for pad, kernel in zip(padding, place.kernel, strict=True))
    if not place.symmetric or not fits:
        # Padding must never be the largest, so that it is the lowest number and not zero.
        padded = F.pad(value, place.padding(), value=lowest(value.dtype))
        padding = [0] * len(padding)
    function = _LARGEST[len(padding)]
    if not node.wants(1):
        return function(padded, place.kernel, place.strides, padding, place.dilations)
    result, places = function(
        padded, place.kernel, place.strides, padding, place.dilations, return_indices=True
    )
    # Places were counted in the padded plane; ONNX counts without the padding.
    if padded is not value:
        places = _without_padding(places, list(value.shape[2:]), list(padded.shape[2:]), place)
    return result, _in_whole(node, places, list(value.shape))


def _without_padding(
    places: Tensor, sizes: list[int], padded: list[int], place: SlidingWindows
) -> Tensor:
    """Turn places in a padded plane into places in the plane."""
    result = torch.zeros_like(places)
    for axis, size in enumerate(sizes):
        coordinate = places // math.prod(padded[axis + 1 :]) % padded[axis] - place.before[axis]
        result = result * size + coordinate
    return result


def _in_whole(node: Node, places: Tensor, sizes: list[int]) -> Tensor:
    """Turn places in each plane into places in the value; with ``storage_order`` column by column."""
    plane = sizes[2:]
    if node.integer("storage_order"):
        coordinates = [
            places // math.prod(plane[axis + 1 :]) % length for axis, length in enumerate(plane)
        ]
        places = torch.zeros_like(places)
        for coordinate, length in zip(coordinates[::-1], plane[::-1], strict=True):
            places = places * length + coordinate
    # ONNX counts places through batch and channels, torch in each plane.
    planes = torch.arange(sizes[0] * sizes[1]).reshape(sizes[0], sizes[1], *[1] * len(plane))
    return places + planes * math.prod(plane)


@computes("AveragePool")
def average_pool(node: Node, value: Tensor) -> Tensor:
    """Return the mean of each window, with or without what lies around the value."""
    place = windows(node, value, node.integers("kernel_shape"))
    rank, with_padding = len(place.kernel), bool(node.integer("count_include_pad"))
    fits = all(2 * pad <= kernel for pad, kernel in zip(place.before, place.kernel, strict=True))
    # torch's average knows neither dilations nor `ceil_mode` as ONNX counts it.
    if place.symmetric and fits and not place.dilated:
        return _MEAN[rank](
            value, place.kernel, place.strides, place.before, count_include_pad=with_padding
        )
    # What is divided by depends on the sizes only: one plane of ones serves all channels.
    ones = torch.ones((1, 1, *value.shape[2:]), dtype=value.dtype)
    # Padding counts where the attribute says so, but what `ceil_mode` reaches beyond it never does:
    # ones are padded with ones, and the rest with zeros.
    if with_padding:
        ones = F.pad(ones, place.padding(extra=False), value=1.0)
        around = SlidingWindows(
            place.kernel, place.strides, place.dilations, [0] * rank, [0] * rank, place.extra
        )
        counts = unfolded(ones, around, 0.0).sum(-1)
    else:
        counts = unfolded(ones, place, 0.0).sum(-1)
    return unfolded(value, place, 0.0).sum(-1) / counts


@computes("LpPool")
def lp_pool(node: Node, value: Tensor) -> Tensor:
    """Return the p-norm of each window."""
    place = windows(node, value, node.integers("kernel_shape"))
    order = node.integer("p", 2)
    # The definition sums absolute values; F.lp_pool has no padding.
    return unfolded(value.abs() ** order, place, 0.0).sum(-1) ** (1.0 / order)


def _plane(value: Tensor) -> list[int]:
    return list(range(2, value.dim()))


@computes("GlobalAveragePool")
def global_average_pool(node: Node, value: Tensor) -> Tensor:
    """Return the mean of each plane."""
    del node
    return value.mean(_plane(value), keepdim=True)


@computes("GlobalMaxPool")
def global_max_pool(node: Node, value: Tensor) -> Tensor:
    """Return the largest element of each plane."""
    del node
    return value.amax(_plane(value), keepdim=True)


@computes("GlobalLpPool")
def global_lp_pool(node: Node, value: Tensor) -> Tensor:
    """Return the p-norm of each plane."""
    order = node.integer("p", 2)
    return (value.abs() ** order).sum(_plane(value), keepdim=True) ** (1.0 / order)


@computes("MaxUnpool", known=(2,))
def max_unpool(node: Node, value: Tensor, places: Tensor, shape: Array | None = None) -> Tensor:
    """Put elements back to the places that MaxPool took them from; zero elsewhere."""
    kernel = node.integers("kernel_shape")
    rank = len(kernel)
    strides, pads = node.integers("strides", [1] * rank), node.integers("pads", [0] * 2 * rank)
    plane = [
        (value.shape[2 + axis] - 1) * strides[axis] - pads[axis] - pads[axis + rank] + kernel[axis]
        for axis in range(rank)
    ]
    sizes = [*value.shape[:2], *plane]
    # F.max_unpool wants places within planes, ONNX counts through the whole value.
    flat = value.new_zeros(math.prod(sizes)).scatter(0, places.reshape(-1), value.reshape(-1))
    result = flat.reshape(sizes)
    target = integers(shape)
    if target is None:
        return result
    # A given shape that is larger is filled at the end of each axis.
    ends = [n for axis in reversed(range(rank)) for n in (0, target[2 + axis] - plane[axis])]
    return F.pad(result, ends)
