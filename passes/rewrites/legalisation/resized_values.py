"""Interpolation: the nearest element is read by constant places, all else is a product with a constant matrix.

Evidence: Gather is ``index_select`` and MatMul is ``matmul`` of the vendor's table; Reshape and Expand are in
tutorials. No document shows interpolation itself. What is nearest is taken as it is and equal to the bit; sums of
products are rounded in another order than in onnxruntime, which interpolates axis by axis, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.legalisation.bounds import refuse_large
from samba_onnx.passes.rewrites.legalisation.interpolation import (
    Axis,
    Floats,
    Kernel,
    Places,
    inside,
    nearest,
    positions,
    weights,
)
from samba_onnx.passes.rewrites.legalisation.rules import legalises

_CROPS = "tf_crop_and_resize"


@legalises(
    "Resize",
    name="resize",
    makes="nearest: Reshape and Expand for whole factors, else a Gather for each axis; linear and cubic: a product with a constant matrix for each axis",
    needs="constant scales, sizes and crop; float32 for linear and cubic; an axis that changes its size, and no crop of one of scale 1",
    numbers="nearest equal; linear and cubic within a few roundings of float32, where infinities and NaN spread along the axes",
)
def resize(draft: Draft) -> ir.Value:
    """Write a Resize."""
    axes, data = _axes(draft), draft.operand(0)
    transformation = draft.text("coordinate_transformation_mode", "half_pixel")
    _refuse_ambiguous(axes, transformation, antialias=bool(draft.integer("antialias")))
    mode = draft.text("mode", "nearest")
    # A matrix has an element for each pair of old and new elements; places have one for each new
    # element.
    widths = (axis.size if mode != "nearest" else 1 for axis in axes.values())
    refuse_large(1, *(w * one.resized for w, one in zip(widths, axes.values(), strict=True)))
    where = {axis: positions(one, transformation) for axis, one in axes.items()}
    if mode == "nearest":
        rounding = draft.text("nearest_mode", "round_prefer_floor")
        # This mode's offset differs in its last bit between runtimes; others compute the same
        # positions.
        if transformation == "half_pixel_symmetric":
            _refuse_ties(axes, where, rounding)
        value = _pick(draft, {a: nearest(one, where[a], rounding) for a, one in axes.items()})
    elif mode in ("linear", "cubic"):
        # The matrices are of float32, and a product has operands of one type.
        if draft.dtype(data) != ir.DataType.FLOAT:
            raise CannotExpandError("it mixes elements of another type than float32")
        kernel = Kernel(
            mode,
            draft.number("cubic_coeff_a", -0.75),
            bool(draft.integer("exclude_outside")),
            bool(draft.integer("antialias")),
        )
        value = _mix(draft, {a: weights(one, where[a], kernel) for a, one in axes.items()})
    else:
        raise CannotExpandError(f"its mode is {mode!r}")
    # Only this mode has positions that are no part of the operand.
    if transformation == _CROPS:
        value = _extrapolate(draft, value, axes, where)
    return value


def _axes(draft: Draft) -> dict[int, Axis]:
    """Return the axes that change, each with its sizes, scale and crop.

    Raises:
        CannotExpandError: One of them is not constant.
    """
    shape, result = draft.shape(draft.operand(0)), draft.shape(draft.node.outputs[0])
    chosen = [axis % len(shape) for axis in draft.list_of("axes")] or list(range(len(shape)))
    scales = draft.optional(2)
    # Where sizes are stated, scales may be an empty tensor instead of being left out.
    if scales is not None and scales.shape is not None and draft.shape(scales) != (0,):
        stated = draft.known(scales, "its scales").numpy().astype(np.float64).tolist()
    else:
        stated = _stated_scales(draft, [shape[axis] for axis in chosen])
    roi = draft.optional(1) if draft.text("coordinate_transformation_mode", "") == _CROPS else None
    crop = [] if roi is None else draft.known(roi, "its crop").numpy().astype(np.float64).tolist()
    axes: dict[int, Axis] = {}
    for place, axis in enumerate(chosen):
        span = (crop[place], crop[place + len(chosen)]) if crop else (0.0, 1.0)
        one = Axis(shape[axis], result[axis], stated[place], span)
        # An axis that nothing changes needs no Gather or product.
        if one != Axis(one.size, one.size, 1.0):
            axes[axis] = one
    return axes


def _refuse_ambiguous(axes: Mapping[int, Axis], transformation: str, *, antialias: bool) -> None:
    """Give up where onnxruntime computes something else than ONNX defines.

    Raises:
        CannotExpandError: An axis keeps its size, though its scale or crop is none that does, which onnxruntime does
            not look at where it filters, or where all axes are so; or it would not crop one whose scale is 1.
    """
    kept = [axis.size == axis.resized for axis in axes.values()]
    if kept and (all(kept) or (antialias and any(kept))):
        raise CannotExpandError(
            "its scales or crop do not change the size of an axis, where runtimes differ"
        )
    if transformation == _CROPS and any(axis.scale == 1.0 for axis in axes.values()):
        raise CannotExpandError("it crops an axis of scale 1, where runtimes differ")


def _refuse_ties(axes: Mapping[int, Axis], where: Mapping[int, Floats], rounding: str) -> None:
    """Give up where the last bit of a position decides which element is nearest.

    Raises:
        CannotExpandError: The offset that keeps an axis symmetric is no whole number of bits, and a position with it
            lies on the border between two elements.
    """
    for axis, one in axes.items():
        # Two units in the last place of the largest position of the axis, by which runtimes may
        # differ.
        step = np.float32(one.size * 2.0**-22)
        sides = [nearest(one, where[axis] + shift, rounding) for shift in (-step, step)]
        if one.resized != one.scale * one.size and (sides[0] != sides[1]).any():
            raise CannotExpandError("a position lies between two elements, where runtimes differ")


def _stated_scales(draft: Draft, shape: list[int]) -> list[float]:
    """Return the scale of each axis that the stated sizes stand for."""
    sizes = draft.known(draft.operand(3), "its sizes").numpy().tolist()
    scales = [size / old for size, old in zip(sizes, shape, strict=True)]
    policy = draft.text("keep_aspect_ratio_policy", "stretch")
    # One scale for all axes keeps the aspect ratio; which one decides whether the result is within
    # or around the stated sizes.
    if policy == "not_larger":
        return [min(scales)] * len(scales)
    if policy == "not_smaller":
        return [max(scales)] * len(scales)
    return scales


def _pick(draft: Draft, places: Mapping[int, Places]) -> ir.Value:
    value = draft.operand(0)
    shape, result = draft.shape(value), draft.shape(draft.node.outputs[0])
    if all(_repeats(taken, shape[axis]) for axis, taken in places.items()):
        # Each axis is split into itself and an axis of 1, which Expand then repeats: elements are
        # copied without an index for each.
        split = [size for axis in range(len(shape)) for size in (shape[axis], 1)]
        wide = [s for axis in range(len(shape)) for s in (shape[axis], result[axis] // shape[axis])]
        # Axes that do not grow need no second one.
        split = [s for at, s in enumerate(split) if wide[at] > 1 or at % 2 == 0]
        wide = [s for at, s in enumerate(wide) if s > 1 or at % 2 == 0]
        value = draft.op("Reshape", value, draft.integers(*split))
        value = draft.op("Expand", value, draft.integers(*wide))
        return draft.op("Reshape", value, draft.integers(*result))
    for axis, taken in places.items():
        value = draft.op("Gather", value, draft.constant(taken), axis=axis)
    return value


def _repeats(places: Places, size: int) -> bool:
    """Return whether every element is taken so many times in a row."""
    factor, rest = divmod(len(places), size)
    return rest == 0 and bool(
        (places == np.arange(size).repeat(max(factor, 1))[: len(places)]).all()
    )


def _mix(draft: Draft, matrices: Mapping[int, Floats]) -> ir.Value:
    value = draft.operand(0)
    shape = list(draft.shape(value))
    # What shrinks the most goes first: later products are smaller.
    for axis in sorted(matrices, key=lambda axis: matrices[axis].shape[0] / shape[axis]):
        matrix = matrices[axis]
        # The last two axes are those of matrices already; any other one needs what is behind it in
        # one axis.
        if axis == len(shape) - 1:
            value = draft.op("MatMul", value, draft.constant(np.ascontiguousarray(matrix.T)))
        elif axis == len(shape) - 2:
            value = draft.op("MatMul", draft.constant(matrix), value)
        else:
            rows = (math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))
            value = draft.op("Reshape", value, draft.integers(*rows))
            value = draft.op("MatMul", draft.constant(matrix), value)
        shape[axis] = len(matrix)
        if axis < len(shape) - 2:
            value = draft.op("Reshape", value, draft.integers(*shape))
    return value


def _extrapolate(
    draft: Draft, value: ir.Value, axes: Mapping[int, Axis], where: Mapping[int, Floats]
) -> ir.Value:
    """Put the stated number where a crop reaches beyond the operand."""
    rank = draft.rank(draft.operand(0))
    within = np.ones((1,) * rank, np.bool_)
    for axis, one in axes.items():
        form = [1] * rank
        form[axis] = one.resized
        within = within & inside(one, where[axis]).reshape(form)
        refuse_large(within.size)
    # A crop within the operand needs no Where.
    if within.all():
        return value
    number = draft.scalar(draft.number("extrapolation_value", 0.0), draft.operand(0))
    return draft.op("Where", draft.constant(within), value, number)
