"""Operators that sample planes at any place."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  (torch's own convention)
from torch import Tensor

from samba_onnx.importing.operators.computations import Node, computes
from samba_onnx.importing.values import Array

# Names before opset 20, and since.
_MODES = {"linear": "bilinear", "bilinear": "bilinear", "nearest": "nearest", "cubic": "bicubic"}


@computes("GridSample")
def grid_sample(node: Node, value: Tensor, grid: Tensor) -> Tensor:
    """Sample at coordinates from -1 to 1."""
    mode = node.text("mode", "linear")
    # torch has no cubic form for volumes.
    if value.dim() == 5 and mode == "cubic":
        raise node.refuse("torch samples volumes by nearest or linear interpolation only")
    return F.grid_sample(
        value,
        grid,
        _MODES.get(mode, mode),
        node.text("padding_mode", "zeros"),
        align_corners=bool(node.integer("align_corners")),
    )


@computes("AffineGrid", known=(1,))
def affine_grid(node: Node, matrices: Tensor, sizes: Array) -> Tensor:
    """Return the coordinates that affine maps send a plane or volume to."""
    shape = [int(size) for size in sizes.reshape(-1)]
    return F.affine_grid(matrices, shape, align_corners=bool(node.integer("align_corners")))


@computes("RoiAlign")
def roi_align(node: Node, value: Tensor, regions: Tensor, batch: Tensor) -> Tensor:
    """Sample each region of a plane on a grid, and pool the samples of each cell."""
    ratio = node.integer("sampling_ratio")
    # 0 asks for a count per region that depends on the region's size, and so on content.
    if ratio < 1:
        raise node.refuse(
            "with sampling_ratio 0 the number of samples depends on the regions' content: "
            "export the model with a fixed ratio"
        )
    rows, columns = node.integer("output_height", 1), node.integer("output_width", 1)
    shift = 0.5 if node.text("coordinate_transformation_mode", "half_pixel") == "half_pixel" else 0
    corners = regions * node.number("spatial_scale", 1.0) - shift
    x_first, y_first, x_last, y_last = corners.unbind(1)
    width, height = x_last - x_first, y_last - y_first
    # Without the half-pixel shift the old definition forces regions to be one element at least.
    if not shift:
        width, height = width.clamp(min=1.0), height.clamp(min=1.0)
    y = _sample_places(y_first, height, rows, ratio)
    x = _sample_places(x_first, width, columns, ratio)
    planes = value.index_select(0, batch.long())
    return _pooled(node, planes, y, x, ratio)


def _sample_places(first: Tensor, extent: Tensor, cells: int, ratio: int) -> Tensor:
    """Return [regions, cells x ratio] coordinates."""
    steps = (torch.arange(cells * ratio, dtype=first.dtype) + 0.5) / ratio
    return first.unsqueeze(1) + extent.unsqueeze(1) / cells * steps


def _pooled(node: Node, planes: Tensor, y: Tensor, x: Tensor, ratio: int) -> Tensor:
    """Return [regions, channels, rows, columns]."""
    down, right = _weights(y, planes.shape[2]), _weights(x, planes.shape[3])
    # The mean of bilinear samples is a product of matrices, one for each axis.
    if node.text("mode", "avg") == "avg":
        samples = torch.einsum("rchw,ryh,rxw->rcyx", planes, down, right)
        return F.avg_pool2d(samples, ratio)
    # The largest of the four weighted neighbours, not of their sum: this is how ONNX defines it.
    parts = torch.einsum(
        "rchw,ryhp,rxwq->rcyxpq", planes, _corners(y, planes.shape[2]), _corners(x, planes.shape[3])
    )
    return F.max_pool2d(parts.amax((-2, -1)), ratio)


def _corners(places: Tensor, length: int) -> Tensor:
    """Return [regions, samples, length, 2]: the weights of the lower and the upper neighbour."""
    # The definition lets samples reach one element beyond the edge before they count as zero.
    outside = (places < -1) | (places > length)
    places = places.clamp(0, length - 1)
    low = places.floor()
    high = (low + 1).clamp(max=length - 1)
    part = places - low
    steps = torch.arange(length, dtype=places.dtype)
    lower = (low.unsqueeze(-1) == steps) * (1 - part).unsqueeze(-1)
    upper = (high.unsqueeze(-1) == steps) * part.unsqueeze(-1)
    both = torch.stack([lower, upper], -1)
    return both * (~outside)[..., None, None]


def _weights(places: Tensor, length: int) -> Tensor:
    """Return [regions, samples, length]: how much of each element is in each sample."""
    return _corners(places, length).sum(-1)
