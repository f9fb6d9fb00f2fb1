"""Resizing by interpolation: torch's own operators where they agree, else matrices per axis."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  (torch's own convention)
from torch import Tensor

from samba_onnx.importing.operators.computations import Node, computes
from samba_onnx.importing.values import Array, tensor_of

# torch's constant; another one is computed by matrices.
_CUBIC = -0.75
_NATIVE = {1: "linear", 2: "bilinear", 3: "trilinear"}


@dataclass(frozen=True)
class _Axis:
    """How one axis is resized."""

    place: int
    length: int
    target: int
    scale: float
    start: float = 0.0
    """Where the region that is cut out begins, as a fraction of the axis."""
    end: float = 1.0


@computes("Resize", known=(1, 2, 3))
def resize(
    node: Node,
    value: Tensor,
    region: Array | None = None,
    scales: Array | None = None,
    sizes: Array | None = None,
) -> Tensor:
    """Change sizes by nearest, linear or cubic interpolation."""
    axes = [axis for axis in _axes(node, value, region, scales, sizes) if not _keeps(node, axis)]
    if not axes:
        return value
    # One operator with a gradient of torch's own, against a product of matrices per axis.
    native = _native(node, value, axes)
    if native is not None:
        return native
    for axis in axes:
        value = _resize_axis(node, value, axis)
    return value


def _keeps(node: Node, axis: _Axis) -> bool:
    cropped = node.text("coordinate_transformation_mode") == "tf_crop_and_resize"
    # A region may cut out another part of the same size.
    return axis.length == axis.target and axis.scale == 1.0 and not cropped


def _axes(
    node: Node, value: Tensor, region: Array | None, scales: Array | None, sizes: Array | None
) -> list[_Axis]:
    """Return what happens to each axis that is named."""
    places = [axis % value.dim() for axis in node.integers("axes", list(range(value.dim())))]
    lengths = [value.shape[place] for place in places]
    if sizes is not None and sizes.size:
        targets = [int(size) for size in sizes.reshape(-1)]
        factors = [target / length for target, length in zip(targets, lengths, strict=True)]
        policy = node.text("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            factor = min(factors) if policy == "not_larger" else max(factors)
            factors = [factor] * len(places)
            # The specification rounds half up here; Python's round goes to even.
            targets = [math.floor(factor * length + 0.5) for length in lengths]
    elif scales is not None and scales.size:
        factors = [float(scale) for scale in scales.reshape(-1)]
        # Sizes from scales are rounded down.
        targets = [math.floor(n * f) for n, f in zip(lengths, factors, strict=True)]
    else:
        raise node.refuse("neither scales nor sizes are given")
    count = len(places)
    bounds = [0.0] * count + [1.0] * count
    if region is not None and region.size:
        bounds = [float(bound) for bound in region.reshape(-1)]
    return [
        _Axis(places[k], lengths[k], targets[k], factors[k], bounds[k], bounds[k + count])
        for k in range(count)
    ]


def _native(node: Node, value: Tensor, axes: list[_Axis]) -> Tensor | None:
    """Resize by torch's own operator; None when it computes something else."""
    places = {axis.place for axis in axes}
    # Batch and channels are never resized by torch's own operator.
    rank = value.dim() - 2
    if rank not in _NATIVE or min(places) < 2 or node.integer("antialias"):
        return None
    # torch derives scales from the sizes. Where a scale was cut to a whole size, coordinates
    # differ.
    if any(axis.target != axis.length * axis.scale for axis in axes):
        return None
    targets = list(value.shape[2:])
    for axis in axes:
        targets[axis.place - 2] = axis.target
    mode = node.text("mode", "nearest")
    coordinates = node.text("coordinate_transformation_mode", "half_pixel")
    if mode == "nearest":
        rounding = node.text("nearest_mode", "round_prefer_floor")
        floor = rounding == "floor"
        # With whole factors every rounding agrees, as no coordinate lies halfway between two
        # elements.
        whole = all(axis.target % axis.length == 0 for axis in axes)
        usual = coordinates == "half_pixel" and rounding.startswith("round") and whole
        if usual or (coordinates == "asymmetric" and floor):
            return F.interpolate(value, targets, mode="nearest")
        return None
    corners = coordinates == "align_corners"
    if not corners and coordinates != "half_pixel":
        # For a single element `pytorch_half_pixel` is not `half_pixel`, which torch computes.
        single = any(axis.target == 1 for axis in axes)
        if coordinates != "pytorch_half_pixel" or single:
            return None
    if corners and any(axis.target == 1 for axis in axes):
        return None
    if mode == "linear":
        return F.interpolate(value, targets, mode=_NATIVE[rank], align_corners=corners)
    own = node.number("cubic_coeff_a", _CUBIC) == _CUBIC and not node.integer("exclude_outside")
    if own and rank == 2:
        return F.interpolate(value, targets, mode="bicubic", align_corners=corners)
    return None


def _resize_axis(node: Node, value: Tensor, axis: _Axis) -> Tensor:
    """Resize one axis by a matrix, or by reading places."""
    where = _coordinates(node, axis)
    if node.text("mode", "nearest") == "nearest":
        nearest = _nearest(node, where)
        # Places come from shapes alone, so that reading them is one operator with a constant.
        places = np.clip(nearest, 0, axis.length - 1).astype(np.int64)
        result = value.index_select(axis.place, tensor_of(places))
    else:
        # Linear and cubic interpolation are linear maps: the gradient of a product with a matrix is
        # exact.
        matrix = tensor_of(_matrix(node, axis, where)).to(value.dtype)
        result = torch.tensordot(value, matrix, ([axis.place], [1]))
        result = result.movedim(-1, axis.place)
    if node.text("coordinate_transformation_mode") == "tf_crop_and_resize":
        # Outside of the value, where the region reaches beyond it, is a number of its own.
        outside = tensor_of((where < 0) | (where > axis.length - 1))
        sizes = [1] * value.dim()
        sizes[axis.place] = axis.target
        filling = torch.full_like(result, node.number("extrapolation_value"))
        result = torch.where(outside.reshape(sizes), filling, result)
    return result


def _coordinates(node: Node, axis: _Axis) -> Array:
    """Return where in the old axis the new elements lie."""
    mode = node.text("coordinate_transformation_mode", "half_pixel")
    steps = np.arange(axis.target, dtype=np.float64)
    whole = axis.scale * axis.length
    if mode == "asymmetric":
        return steps / axis.scale
    if mode == "align_corners":
        if whole <= 1:
            # One element has no distance to divide by.
            return np.zeros_like(steps)
        return steps * (axis.length - 1) / (whole - 1)
    if mode == "tf_crop_and_resize":
        if axis.target <= 1:
            middle = (axis.start + axis.end) * (axis.length - 1) / 2
            return np.full_like(steps, middle)
        step = (axis.end - axis.start) * (axis.length - 1) / (axis.target - 1)
        return axis.start * (axis.length - 1) + steps * step
    if mode == "pytorch_half_pixel" and whole <= 1:
        return np.full_like(steps, -0.5)
    half = (steps + 0.5) / axis.scale - 0.5
    # Corrects the centre where the size was cut to whole numbers.
    if mode == "half_pixel_symmetric":
        return half + axis.length / 2 * (1 - axis.target / whole)
    return half


def _nearest(node: Node, where: Array) -> Array:
    mode = node.text("nearest_mode", "round_prefer_floor")
    if mode == "floor":
        return np.floor(where)
    if mode == "ceil":
        return np.ceil(where)
    if mode == "round_prefer_ceil":
        return np.floor(where + 0.5)
    return np.ceil(where - 0.5)


def _matrix(node: Node, axis: _Axis, where: Array) -> Array:
    """Return [new, old]: how much of each old element is in each new one."""
    cubic = node.text("mode") == "cubic"
    reach = 2.0 if cubic else 1.0
    # Without antialias the filter keeps its width when an image shrinks, and skips elements.
    stretch = max(1.0, 1.0 / axis.scale) if node.integer("antialias") else 1.0
    matrix = np.zeros((axis.target, axis.length))
    for row, position in enumerate(where):
        first = math.floor(position - reach * stretch) + 1
        last = math.ceil(position + reach * stretch) - 1
        places = np.arange(first, max(last, first) + 1)
        distances = np.abs(places - position) / stretch
        weights = _cubic(node, distances) if cubic else np.clip(1 - distances, 0, None)
        # Else places beyond the edge repeat it: their weights are added to the edge's by
        # `np.add.at`, which unlike `+=` adds repeated places each time.
        if node.integer("exclude_outside"):
            weights = np.where((places < 0) | (places >= axis.length), 0, weights)
        weights = weights / weights.sum()
        np.add.at(matrix[row], np.clip(places, 0, axis.length - 1), weights)
    return matrix


def _cubic(node: Node, distances: Array) -> Array:
    a = node.number("cubic_coeff_a", _CUBIC)
    near = (a + 2) * distances**3 - (a + 3) * distances**2 + 1
    far = a * (distances**3 - 5 * distances**2 + 8 * distances - 4)
    return np.where(distances <= 1, near, np.where(distances < 2, far, 0))
