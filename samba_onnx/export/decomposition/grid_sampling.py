"""Sampling of planes and volumes at positions, in terms of operators whose gradients can be written in ONNX."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor
from torch._decomp import decomposition_table

_LINEAR, _NEAREST = 0, 1
_ZEROS, _BORDER = 0, 1


def grid_sampler(
    value: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """Sample planes or volumes; names and meaning are torch's.

    Args:
        value: (N, C, H, W), or with D before H.
        grid: (N, h, w, 2), positions x, y from -1 to 1; or (N, d, h, w, 3), x, y, z.
        interpolation_mode: 0 for linear, 1 for nearest, 2 for cubic, which is of planes only.
        padding_mode: 0 for zeros, 1 for the border, 2 for reflection outside of what is sampled.
        align_corners: Whether -1 and 1 mean the centres of the outermost elements.

    Returns:
        (N, C, h, w), or with d before h.
    """
    options = (padding_mode, align_corners)
    if interpolation_mode != _LINEAR and value.dim() == 4:
        rule = decomposition_table[torch.ops.aten.grid_sampler_2d.default]
        result: Tensor = rule(value, grid, interpolation_mode, *options)
        return result
    sizes = value.shape[2:]
    # A grid has the last axis first.
    axes = reversed(grid.unbind(-1))
    places = [
        _padded(_scaled(axis, size, align_corners), size, *options)
        for axis, size in zip(axes, sizes, strict=True)
    ]
    if interpolation_mode == _NEAREST:
        return _taken(value, [place.detach().round() for place in places])
    # Which elements are read has no gradient; what they weigh has one.
    below = [place.detach().floor() for place in places]
    parts = []
    for corner in itertools.product((0, 1), repeat=len(sizes)):
        weight = torch.ones_like(places[0])
        for place, start, step in zip(places, below, corner, strict=True):
            weight = weight * (place - start if step else start + 1 - place)
        at = [start + step for start, step in zip(below, corner, strict=True)]
        # An upper corner that nothing weighs may lie outside of the border.
        parts.append(_taken(value, at) * weight.unsqueeze(1))
    return torch.stack(parts).sum(0)


def _scaled(place: Tensor, size: int, align_corners: bool) -> Tensor:
    """Return positions in elements."""
    if align_corners:
        return (place + 1) * ((size - 1) / 2)
    return ((place + 1) * size - 1) / 2


def _padded(place: Tensor, size: int, padding_mode: int, align_corners: bool) -> Tensor:
    """Return where positions outside are read."""
    if padding_mode == _ZEROS:
        return place
    if padding_mode != _BORDER:
        place = _reflected(place, *((0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)))
    # On the border itself, torch's gradient is zero already.
    inside = (place > 0) & (place < size - 1)
    return torch.where(inside, place, place.detach().clamp(0, size - 1))


def _reflected(place: Tensor, low: float, high: float) -> Tensor:
    span = high - low
    # A single element is where all positions lie.
    if span == 0:
        return torch.zeros_like(place)
    way = (place - low).abs()
    # How often a position is reflected is constant almost everywhere.
    turns = (way.detach() / span).floor()
    rest = way - turns * span
    return torch.where(turns % 2 == 0, low + rest, high - rest)


def _taken(value: Tensor, places: Sequence[Tensor]) -> Tensor:
    """Return the elements at whole positions; zeros where there are none."""
    batch, channels, *sizes = value.shape
    index = torch.zeros_like(places[0], dtype=torch.int64)
    inside = torch.ones_like(places[0], dtype=torch.bool)
    for place, size in zip(places, sizes, strict=True):
        inside = inside & (place >= 0) & (place < size)
        # Clamped to what can be read; what lay outside is zero in the end.
        index = index * size + place.clamp(0, size - 1).to(torch.int64)
    flat = index.reshape(batch, 1, -1).expand(-1, channels, -1)
    samples = value.reshape(batch, channels, -1).gather(2, flat)
    samples = samples.reshape(batch, channels, *index.shape[1:])
    return torch.where(inside.unsqueeze(1), samples, 0.0)
