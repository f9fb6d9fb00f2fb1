"""Fake quantisation, as training for integers has it: numbers are rounded to steps, and gradients pass.

Names and formulas are those of torch's kernels. A gradient passes where a number lies within the range, and
steps and zero points that are learnt have gradients of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

_SMALLEST_STEP: Final = 6.1e-5
"""Below it torch makes the range wider."""


class _Rounded(torch.autograd.Function):
    """Numbers rounded to steps, and where they lie within the range."""

    @staticmethod
    def forward(
        ctx: Any, value: Tensor, scale: Tensor, zero: Tensor, low: int, high: int
    ) -> tuple[Tensor, Tensor]:
        steps = _steps(value, scale, zero)
        mask = (steps >= low) & (steps <= high)
        ctx.save_for_backward(mask)
        ctx.mark_non_differentiable(mask)
        return ((steps.clamp(low, high) - zero) * scale).to(value.dtype), mask

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (mask,) = ctx.saved_tensors
        return gradients[0] * mask, None, None, None, None


class _Learnt(torch.autograd.Function):
    """The same, with gradients for the size of a step and the zero point as well."""

    @staticmethod
    def forward(
        ctx: Any, value: Tensor, scale: Tensor, zero: Tensor, limits: tuple[int, int], factor: float
    ) -> Tensor:
        low, high = limits
        # To the nearest, half to even; the backward for a whole tensor rounds half up.
        rounded = zero.round().clamp(low, high)
        ctx.save_for_backward(value, scale, zero)
        ctx.limits, ctx.factor = limits, factor
        steps = torch.round(value * (1.0 / scale)) + rounded
        return (steps.clamp(low, high) - rounded) * scale

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        value, scale, zero = ctx.saved_tensors
        gradient, (low, high) = gradients[0], ctx.limits
        half_up = (zero + 0.5).clamp(low, high).trunc()
        rounded = half_up if zero.dim() == 1 else zero.round().clamp(low, high)
        steps = torch.round(value * (1.0 / scale)) + rounded
        inside = (steps >= low) & (steps <= high)
        levels = steps.clamp(low, high) - rounded
        # Within the range the gradient of a step is that of the rounding error, outside that of the
        # limit.
        by_scale = torch.where(inside, (levels * scale - value) / scale, levels)
        by_zero = torch.where(inside, 0.0, -scale)
        return (
            gradient * inside,
            (gradient * by_scale * ctx.factor).sum_to_size(scale.shape),
            (gradient * by_zero * ctx.factor).sum_to_size(zero.shape),
            None,
            None,
        )


def _steps(value: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """Return which step each number is nearest to."""
    # torch multiplies by the reciprocal, which rounds differently from a division.
    scaled = value * (1.0 / scale)
    # A zero point that is no whole number is added before rounding.
    return torch.round(scaled + zero) if zero.is_floating_point() else torch.round(scaled) + zero


def _along(value: Tensor, parameter: Tensor, axis: int) -> Tensor:
    """Return a number per channel in the shape that fits along an axis."""
    return parameter.reshape([-1 if i == axis % value.dim() else 1 for i in range(value.dim())])


def per_tensor(
    value: Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    """Round to steps of one size; returns where numbers lie within the range, too."""
    step = torch.tensor(scale, dtype=torch.float32, device=value.device)
    zero = torch.tensor(zero_point, device=value.device)
    result: tuple[Tensor, Tensor] = _Rounded.apply(value, step, zero, quant_min, quant_max)  # type: ignore[no-untyped-call]
    return result


def per_tensor_if_enabled(
    value: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    enabled: Tensor,
    quant_min: int,
    quant_max: int,
) -> tuple[Tensor, Tensor]:
    """Round to steps of one size, unless that is switched off."""
    step, zero = scale.reshape(()), zero_point.reshape(())
    rounded, mask = _Rounded.apply(value, step, zero, quant_min, quant_max)  # type: ignore[no-untyped-call]
    # A tensor says so, and another run may be told otherwise: both are computed.
    is_on = enabled.reshape(()) != 0
    return torch.where(is_on, rounded, value), mask | ~is_on


def per_channel(
    value: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    """Round each channel to steps of its own size."""
    operands = (_along(value, scale, axis), _along(value, zero_point, axis))
    result: tuple[Tensor, Tensor] = _Rounded.apply(value, *operands, quant_min, quant_max)  # type: ignore[no-untyped-call]
    return result


def learnable_per_tensor(
    value: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> Tensor:
    """Round to steps whose size and zero point are learnt."""
    operands = (scale, zero_point, (quant_min, quant_max), grad_factor)
    result: Tensor = _Learnt.apply(value, *operands)  # type: ignore[no-untyped-call]
    return result


def learnable_per_channel(
    value: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    axis: int,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> Tensor:
    """Round each channel to steps whose size and zero point are learnt."""
    operands = (_along(value, scale, axis), _along(value, zero_point, axis))
    limits = (quant_min, quant_max)
    result: Tensor = _Learnt.apply(value, *operands, limits, grad_factor)  # type: ignore[no-untyped-call]
    return result


def observed(
    value: Tensor,
    observer_on: Tensor,
    fake_quant_on: Tensor,
    running_min: Tensor,
    running_max: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    averaging_const: float,
    quant_min: int,
    quant_max: int,
    ch_axis: int,
    per_row_fake_quant: bool = False,
    symmetric_quant: bool = False,
) -> tuple[Tensor, ...]:
    """Follow the range of numbers by a moving average, and round to steps that fill it."""
    watches = observer_on.reshape(()) != 0
    # Ranges are observed and not trained.
    data = value.detach()
    axes = [i for i in range(value.dim()) if i != ch_axis] if per_row_fake_quant else None
    least = data.amin(axes) if axes is not None else data.amin()
    most = data.amax(axes) if axes is not None else data.amax()
    low = torch.where(watches, _averaged(running_min, least, averaging_const), running_min)
    high = torch.where(watches, _averaged(running_max, most, averaging_const), running_max)
    step, zero = _parameters(low, high, (quant_min, quant_max), symmetric_quant)
    is_on = fake_quant_on.reshape(()) != 0
    step = torch.where(is_on, step.to(scale.dtype).reshape(scale.shape), scale)
    zero = torch.where(is_on, zero.to(zero_point.dtype).reshape(zero_point.shape), zero_point)
    if axes is None:
        shaped = step.reshape(()), zero.reshape(())
    else:
        shaped = _along(value, step, ch_axis), _along(value, zero, ch_axis)
    rounded, mask = _Rounded.apply(value, *shaped, quant_min, quant_max)  # type: ignore[no-untyped-call]
    return torch.where(is_on, rounded, value), mask | ~is_on, low, high, step, zero


def resized(value: Tensor, size: Sequence[int], *, memory_format: object = None) -> Tensor:
    """Give a tensor the size that it has, as observers of ranges do; another would leave numbers undefined."""
    if list(value.shape) != list(size):
        raise NotImplementedError
    return value.clone()


def _averaged(running: Tensor, now: Tensor, part: float) -> Tensor:
    now = now.reshape(running.shape)
    # Infinite before the first batch, which then counts as a whole.
    return torch.where(running.isinf(), now, running + part * (now - running))


def _parameters(
    low: Tensor, high: Tensor, limits: tuple[int, int], symmetric: bool
) -> tuple[Tensor, Tensor]:
    """Return the size of a step and the zero point for a range, as torch chooses them."""
    least, most = limits
    both = (low < 0) & (high > 0)
    if symmetric:
        half = (most - least) // 2
        largest = torch.maximum((low / -(half + 1)).abs(), (high / half).abs())
        low, high = (
            torch.where(both, largest * -(half + 1), low),
            torch.where(both, largest * half, high),
        )
    # The range is made to contain 0, which has to be a step itself.
    exact = (high.clamp(min=0) - low.clamp(max=0)) / (most - least)
    # As in torch, a range of nothing has steps of this size.
    exact = torch.where(exact == 0, 0.1, exact)
    step = exact.clamp(min=_SMALLEST_STEP)
    low, high = low * (step / exact), high * (step / exact)
    below, above = low / step, high / step
    # From the end with the smaller terms, whose sum is off by less.
    nearer_below = abs(least) + below.abs() < abs(most) + above.abs()
    zero = torch.where(nearer_below, least - below, most - above)
    if symmetric:
        zero = torch.where(both, (least + most) / 2, zero)
    return step, zero.clamp(least, most).round()
