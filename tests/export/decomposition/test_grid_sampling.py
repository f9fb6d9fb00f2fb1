"""Sampling as it is written to be differentiated, against torch's own, at places on edges and halfway."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.nn import functional

from samba_onnx.export.decomposition.grid_sampling import grid_sampler

MODES = {"bilinear": 0, "nearest": 1, "bicubic": 2}
PADDINGS = {"zeros": 0, "border": 1, "reflection": 2}
SIZES = {True: ((3, 5), (1, 9), (5, 3, 2)), False: ((4, 8), (1, 2), (2, 4, 2))}
"""By whether the outermost centres are at -1 and 1: sizes whose places halfway are binary fractions."""


def halfway(size: int, align: bool) -> torch.Tensor:
    """Return places of all elements, between all neighbours, and beyond both ends: exactly, in binary."""
    steps = torch.arange(-2 * size, 4 * size, dtype=torch.float64) / 2
    if align:
        return 2 * steps / max(size - 1, 1) - 1
    return (2 * steps + 1) / size - 1


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize(
    ("mode", "align", "sizes"),
    [
        (mode, align, sizes)
        for mode in MODES
        for align in SIZES
        for sizes in SIZES[align]
        if mode != "bicubic" or len(sizes) == 2  # torch has no cubic sampling of volumes
    ],
)
def test_values_and_gradients_are_torchs(
    mode: str, sizes: tuple[int, ...], padding: str, align: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    value = torch.randn(1, 2, *sizes, generator=generator, dtype=torch.float64).requires_grad_()
    axes = [halfway(size, align) for size in reversed(sizes)]
    rows = torch.tensor(list(itertools.product(*axes)), dtype=torch.float64)
    grid = rows.reshape(1, -1, *(1,) * (len(sizes) - 1), len(sizes))
    found = grid_sampler(value, grid, MODES[mode], PADDINGS[padding], align)
    expected = functional.grid_sample(value, grid, mode, padding, align)
    torch.testing.assert_close(found, expected)
    weights = torch.randn(expected.shape, generator=generator, dtype=torch.float64)
    one, other = (torch.autograd.grad((r * weights).sum(), value)[0] for r in (found, expected))
    torch.testing.assert_close(one, other)
