"""Fake quantisation against torch's own kernels: numbers, masks, state and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from samba_onnx.export.decomposition.rewriting import REWRITINGS

aten = torch.ops.aten
LIMITS = [(0, 255), (-8, 7), (-128, 127), (0, 127)]
SCALES = torch.tensor([0.1, 0.03, 0.7, 1.3])
WHOLE = torch.tensor([3, 0, 2, 5], dtype=torch.int32)
ULPS = 4 * 2.0**-23
"""A sum is rounded after the product on one side and with it on the other."""


def values(*, halves: bool = True) -> Tensor:
    """Numbers inside and outside of all ranges, and halves of steps.

    Args:
        halves: Left out where torch's kernel adds a zero point to a product that it does not round.
    """
    torch.manual_seed(0)
    drawn = 6 * torch.randn(4, 50)
    edges = torch.arange(-8, 8).repeat(4, 1) * 0.35
    return torch.cat([drawn, edges], 1).requires_grad_() if halves else drawn.requires_grad_()


def close(ours: Any, theirs: Any) -> None:
    ours, theirs = (one if isinstance(one, tuple | list) else (one,) for one in (ours, theirs))
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=ULPS, atol=ULPS)


def both(target: Any, operands: tuple[Any, ...], leaves: list[Tensor]) -> None:
    """Compare an operator with what is called in its place, with gradients for leaves."""
    with torch.no_grad():
        close(REWRITINGS[target](*operands), target(*operands))
    results = REWRITINGS[target](*operands)
    first = results[0] if isinstance(results, tuple) else results
    seed = torch.linspace(-1, 2, first.numel()).reshape(first.shape)
    pairs = zip(
        torch.autograd.grad(first, leaves, seed),
        torch.autograd.grad(public(target, operands), leaves, seed),
        strict=True,
    )
    for one, other in pairs:
        # Those of a scale or zero point are sums of 264 numbers of both signs, in another order.
        terms = 1 if one.dim() > 1 else 264
        torch.testing.assert_close(one, other, rtol=ULPS, atol=terms * ULPS)


def public(target: Any, operands: tuple[Any, ...]) -> Tensor:
    results = target(*operands)
    tensor: Tensor = results[0] if isinstance(results, tuple) else results
    return tensor


@pytest.mark.parametrize("limits", LIMITS)
def test_steps_of_one_size(limits: tuple[int, int]) -> None:
    value = values()
    both(aten.fake_quantize_per_tensor_affine_cachemask.default, (value, 0.1, 3, *limits), [value])


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("enabled", [0, 1])
def test_steps_that_may_be_switched_off(enabled: int, limits: tuple[int, int]) -> None:
    value = values()
    operands = (value, SCALES[:1], WHOLE[:1], torch.tensor([enabled]), *limits)
    both(aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default, operands, [value])


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("zero", [WHOLE, WHOLE + 0.3, WHOLE.float()])
def test_steps_of_each_channel(zero: Tensor, axis: int, limits: tuple[int, int]) -> None:
    value = values(halves=not zero.is_floating_point()).detach()
    value = (value if axis == 0 else value.T.contiguous()).requires_grad_()
    operands = (value, SCALES, zero, axis, *limits)
    both(aten.fake_quantize_per_channel_affine_cachemask.default, operands, [value])


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("zero", [3.0, 0.4, -1.5, 300.0])
def test_steps_that_are_learnt(zero: float, limits: tuple[int, int]) -> None:
    value = values()
    scale, point = torch.tensor([0.13]).requires_grad_(), torch.tensor([zero]).requires_grad_()
    operands = (value, scale, point, *limits, 0.5)
    leaves = [value, scale, point]
    both(aten._fake_quantize_learnable_per_tensor_affine.default, operands, leaves)


@pytest.mark.parametrize("limits", LIMITS)
def test_steps_of_each_channel_that_are_learnt(limits: tuple[int, int]) -> None:
    value = values(halves=False)
    scale, point = SCALES.clone().requires_grad_(), (WHOLE + 0.2).requires_grad_()
    operands = (value, scale, point, 0, *limits, 0.25)
    leaves = [value, scale, point]
    both(aten._fake_quantize_learnable_per_channel_affine.default, operands, leaves)


RANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "both signs": lambda x: x,
    "positive": lambda x: x.abs() + 1,
    "negative": lambda x: -x.abs() - 1,
    "zero": torch.zeros_like,
}


@pytest.mark.parametrize("kind", RANGES)
@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize("flags", [(1, 1), (0, 1), (1, 0)])
@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("limits", [(0, 127), (-128, 127)])
def test_ranges_that_are_followed(
    limits: tuple[int, int],
    symmetric: bool,
    per_row: bool,
    flags: tuple[int, int],
    seen: bool,
    kind: str,
) -> None:
    value = RANGES[kind](values().detach())
    size = 4 if per_row else 1
    least, most = (
        torch.full((size,), end) for end in ((-1.5, 2.5) if seen else (float("inf"), float("-inf")))
    )
    if not seen and not flags[0]:
        pytest.skip("nothing was seen, and nothing is: there is no range")
    state = (least, most, SCALES[:size].clone(), torch.zeros(size, dtype=torch.int32))
    on, off = (torch.tensor([flag]) for flag in flags)
    operands = (value, on, off, *state, 0.01, *limits, 0, per_row, symmetric)
    target = aten._fused_moving_avg_obs_fq_helper_functional.default
    with torch.no_grad():
        copies = tuple(one.clone() if isinstance(one, Tensor) else one for one in operands)
        close(REWRITINGS[target](*operands), target(*copies))
