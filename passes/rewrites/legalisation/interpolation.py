"""Where the elements of a resized axis come from, and with which weights, as ONNX's Resize defines it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Places = NDArray[np.int64]


@dataclass(frozen=True)
class Axis:
    """One axis that is resized."""

    size: int
    """Elements before."""
    resized: int
    """Elements after."""
    scale: float
    """Size after divided by size before, or the number that the model states for it."""
    roi: tuple[float, float] = (0.0, 1.0)
    """Start and end of the crop as shares of the axis."""


@dataclass(frozen=True)
class Kernel:
    """How elements are mixed."""

    mode: str
    """``linear`` or ``cubic``."""
    cubic: float
    """The coefficient of the cubic kernel."""
    exclude_outside: bool
    antialias: bool


def positions(axis: Axis, mode: str) -> Floats:
    """Return the position in the operand of each element of the result, in float32 as runtimes compute it.

    Args:
        axis: The axis.
        mode: A ``coordinate_transformation_mode``.

    Raises:
        CannotExpandError: The mode is not known.
    """
    # All in float32: a position that lies between two elements is rounded to one or the other by
    # its last bit, and onnxruntime's kernels compute it in float32.
    one, half = np.float32(1), np.float32(0.5)
    places, scale = np.arange(axis.resized, dtype=np.float32), np.float32(axis.scale)
    last, resized_last = np.float32(axis.size - 1), np.float32(max(axis.resized - 1, 1))
    if mode == "half_pixel":
        return (places + half) / scale - half
    if mode == "pytorch_half_pixel":
        # torch puts the only element of an axis at the first one, not at the centre.
        return (places + half) / scale - half if axis.resized > 1 else np.zeros(1, np.float32)
    if mode == "half_pixel_symmetric":
        adjustment = np.float32(axis.resized) / (scale * np.float32(axis.size))
        offset = np.float32(axis.size) / np.float32(2) * (one - adjustment)
        return offset + (places + half) / scale - half
    if mode == "align_corners":
        return places * last / resized_last
    if mode == "asymmetric":
        return places / scale
    if mode == "tf_half_pixel_for_nn":
        return (places + half) / scale
    if mode != "tf_crop_and_resize":
        raise CannotExpandError(f"its coordinate_transformation_mode is {mode!r}")
    start, end = np.float32(axis.roi[0]), np.float32(axis.roi[1])
    # One element has no step to the next one; ONNX defines it as the middle of the crop.
    if axis.resized == 1:
        return np.array([half * (start + end) * last], np.float32)
    return start * last + places * (end - start) * last / resized_last


def nearest(axis: Axis, where: Floats, rounding: str) -> Places:
    """Return the element that is nearest to each position.

    Args:
        axis: The axis.
        where: The positions.
        rounding: A ``nearest_mode``.

    Raises:
        CannotExpandError: The mode is not known.
    """
    # Runtimes copy an axis that keeps its size. Its positions may still lie halfway
    # (tf_half_pixel_for_nn), where rounding up would move every element by one.
    if axis.size == axis.resized and axis.scale == 1.0 and rounding.startswith("round"):
        rounding = "round_prefer_floor"
    half = np.float32(0.5)
    rounded = {
        "round_prefer_floor": np.ceil(where - half),
        "round_prefer_ceil": np.floor(where + half),
        "floor": np.floor(where),
        "ceil": np.ceil(where),
    }.get(rounding)
    if rounded is None:
        raise CannotExpandError(f"its nearest_mode is {rounding!r}")
    # Positions outside read the outermost element.
    places: Places = rounded.astype(np.int64).clip(0, axis.size - 1)
    return places


def weights(axis: Axis, where: Floats, kernel: Kernel) -> Floats:
    """Return the matrix of shape (resized, size) that an axis is multiplied by.

    Args:
        axis: The axis.
        where: The positions of the result's elements.
        kernel: How elements are mixed.
    """
    # Antialiasing stretches the kernel where an axis shrinks, so that every element has its share;
    # it never compresses it.
    stretch = min(1.0, axis.scale) if kernel.antialias else 1.0
    reach = 1 if kernel.mode == "linear" else 2
    floor = np.floor(where).astype(np.int64)
    start = int(np.floor(-reach / stretch)) + 1
    steps = np.arange(start, 2 - start)
    # Weights in float64 and rounded once at the end: unlike places, nothing jumps by their last
    # bit.
    offsets = floor.astype(np.float64) - where.astype(np.float64)
    distances: Doubles = (steps[None] + offsets[:, None]) * stretch
    mixed = _linear(distances) if kernel.mode == "linear" else _cubic(distances, kernel.cubic)
    taken = floor[:, None] + steps[None]
    if kernel.exclude_outside:
        mixed = np.where((taken >= 0) & (taken < axis.size), mixed, 0.0)
    # Elements that are left out, and a stretched kernel, would leave sums of weights that are not
    # 1.
    if kernel.exclude_outside or kernel.antialias:
        mixed = mixed / mixed.sum(axis=1, keepdims=True)
    matrix = np.zeros((axis.resized, axis.size))
    rows = np.broadcast_to(np.arange(axis.resized)[:, None], taken.shape)
    # add.at, since several neighbours beyond an end fall on the same outermost element, where +=
    # would keep one of them.
    np.add.at(matrix, (rows, taken.clip(0, axis.size - 1)), mixed)
    return matrix.astype(np.float32)


def inside(axis: Axis, where: Floats) -> NDArray[np.bool_]:
    """Return which positions lie within the operand."""
    return np.asarray((where >= 0) & (where <= axis.size - 1))


def _linear(distance: Doubles) -> Doubles:
    return np.clip(1.0 - np.abs(distance), 0.0, 1.0)


def _cubic(distance: Doubles, a: float) -> Doubles:
    x = np.abs(distance)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))
