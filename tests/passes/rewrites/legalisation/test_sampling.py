"""GridSample of a constant grid, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.rewrites.applying import numbers
from tests.passes.rewrites.legalisation.legalising import legalised, refusal

ROUNDINGS = 5e-6
"""Largest difference of sums of 16 products of numbers around one, and of weights in float32."""


def text(shape: str, grid: str, attributes: str) -> str:
    rank = ",".join("abcde"[: shape.count(",") + 1])
    return f"g (float[{shape}] x, float[{grid}] grid) => (float[{rank}] y) {{ y = GridSample<{attributes}>(x, grid) }}"


def places(*shape: int, seed: int = 0) -> np.ndarray:
    """Return a grid of places within and beyond the ends, which themselves are among them."""
    draw = np.random.default_rng(seed)
    grid = draw.uniform(-1.6, 1.6, shape)
    grid.reshape(-1)[:4] = -1, 1, 0, -1
    return grid.astype(np.float32)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [0, 1])
def test_planes(mode: str, padding: str, align: int) -> None:
    graph = text(
        "1,3,5,6", "1,7,4,2", f'mode="{mode}", padding_mode="{padding}", align_corners={align}'
    )
    atol = 0.0 if mode == "nearest" else ROUNDINGS
    weights = {"grid": places(1, 7, 4, 2)}
    made = legalised(graph, [numbers(1, 3, 5, 6)], weights, atol=atol)
    assert set(made) <= {"Reshape", "Gather", "Mul", "ReduceSum"}


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("same", [True, False])
def test_a_batch_with_one_grid_or_its_own(mode: str, same: bool) -> None:
    grid = places(3, 4, 5, 2)
    if same:
        grid[:] = grid[0]
    graph = text("3,2,5,6", "3,4,5,2", f'mode="{mode}"')
    made = legalised(graph, [numbers(3, 2, 5, 6)], {"grid": grid}, atol=ROUNDINGS)
    assert ("Transpose" in made) is not same


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_volumes(mode: str, padding: str) -> None:
    graph = text("1,2,3,4,5", "1,2,3,4,3", f'mode="{mode}", padding_mode="{padding}"')
    weights = {"grid": places(1, 2, 3, 4, 3)}
    legalised(graph, [numbers(1, 2, 3, 4, 5)], weights, atol=ROUNDINGS)


def test_a_computed_grid_stays() -> None:
    graph = text("1,3,5,6", "1,7,4,2", 'mode="nearest"')
    assert refusal(graph) == "GridSample 'y': its grid 'grid' is not constant"
