"""GridSample of constant and computed grids, against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.legalisation.legalise import LegalisePass
from tests.passes.rewrites.applying import numbers, run
from tests.passes.rewrites.legalisation.legalising import Everything, legalised, prepared, refusal

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
    mixes = mode != "nearest" or padding == "zeros"
    assert set(made) == {"Reshape", "Gather"} | ({"Mul", "ReduceSum"} if mixes else set())


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("computed", [False, True])
def test_the_nearest_of_two_that_are_as_near(padding: str, align: int, computed: bool) -> None:
    """Places between two elements, within and beyond the ends: as onnxruntime rounds them."""
    graph = text(
        "1,2,5,6", "1,9,9,2", f'mode="nearest", padding_mode="{padding}", align_corners={align}'
    )
    steps = np.arange(-8, 10, 2, dtype=np.float32)
    rows = (2 * steps / 5, 2 * steps / 6) if align == 0 else (steps / 4, steps / 5)
    grid = np.stack(np.meshgrid(rows[1], rows[0]), axis=-1)[None].astype(np.float32)
    x = numbers(1, 2, 5, 6)
    legalised(graph, [x, grid] if computed else [x], {} if computed else {"grid": grid})


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.filterwarnings("error")
def test_constant_places_that_no_integer_holds(mode: str) -> None:
    """Against the definition of the borders: onnxruntime takes any elements there."""
    grid = np.array([[[[3e20, -3e20], [0, 3e20]], [[-3e20, 0.1], [3e9, -3e9]]]], np.float32)
    x = numbers(1, 2, 5, 6)
    for padding in ("zeros", "border"):
        model = prepared(
            text("1,2,5,6", "1,2,2,2", f'mode="{mode}", padding_mode="{padding}"'), {"grid": grid}
        )
        assert LegalisePass(Everything())(model).modified
        (given,) = run(model, [x])
        expected = np.zeros((1, 2, 2, 2), np.float32)
        if padding == "border":  # places (0, 5), (4, 2.5), (2.25, 0) and (0, 5)
            corner = x[:, :, 0, 5]
            below = x[:, :, 4, 2:4].mean(-1) if mode == "linear" else x[:, :, 4, 2]
            left = (
                0.75 * x[:, :, 2, 0] + 0.25 * x[:, :, 3, 0] if mode == "linear" else x[:, :, 2, 0]
            )
            expected = np.stack([corner, below, left, corner], -1).reshape(1, 2, 2, 2)
        np.testing.assert_allclose(given, expected, atol=ROUNDINGS)


@pytest.mark.parametrize(
    "weights", [{}, {"grid": places(1, 4, 4, 2)}], ids=["computed", "constant"]
)
def test_weights_have_the_type_of_the_data(weights: dict[str, np.ndarray]) -> None:
    graph = text("1,2,5,6", "1,4,4,2", "align_corners=1").replace(
        "float[1,2,5,6]", "bfloat16[1,2,5,6]"
    )
    model = prepared(graph.replace("(float[a,b,c,d] y)", "(bfloat16[1,2,4,4] y)"), weights)
    rewrite = LegalisePass(Everything())
    assert rewrite(model).modified, rewrite.refusals.lines()
    InferShapesPass()(model)
    assert {
        value.dtype
        for node in model.graph
        if node.op_type == "Mul"
        for value in node.inputs[1:]
        if value
    } >= {ir.DataType.BFLOAT16}


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("same", [True, False])
def test_a_batch_with_one_grid_or_its_own(mode: str, same: bool) -> None:
    grid = places(2, 4, 5, 2)
    if same:
        grid[:] = grid[0]
    graph = text("2,3,5,6", "2,4,5,2", f'mode="{mode}"')
    made = legalised(graph, [numbers(2, 3, 5, 6)], {"grid": grid}, atol=ROUNDINGS)
    assert ("Transpose" in made) is not same


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_volumes(mode: str, padding: str) -> None:
    graph = text("1,2,3,4,5", "1,2,3,4,3", f'mode="{mode}", padding_mode="{padding}"')
    weights = {"grid": places(1, 2, 3, 4, 3)}
    legalised(graph, [numbers(1, 2, 3, 4, 5)], weights, atol=ROUNDINGS)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(("align", "batch"), [(0, 1), (1, 3)])
def test_planes_by_a_computed_grid(mode: str, padding: str, align: int, batch: int) -> None:
    graph = text(
        f"{batch},3,5,6",
        f"{batch},7,4,2",
        f'mode="{mode}", padding_mode="{padding}", align_corners={align}',
    )
    # Places between two elements, where nearest must choose the one that onnxruntime does, are among them.
    grid = places(batch, 7, 4, 2) if align else np.round(places(batch, 7, 4, 2) * 15) / 15
    atol = 0.0 if mode == "nearest" else ROUNDINGS
    made = legalised(graph, [numbers(batch, 3, 5, 6), grid.astype(np.float32)], atol=atol)
    assert made.count("Gather") == 3, "two coordinates and the elements"
    assert made.count("Transpose") == (0 if batch == 1 else 2)
    assert ("ReduceSum" in made) == (mode != "nearest" or padding == "zeros")


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_volumes_by_a_computed_grid(padding: str) -> None:
    graph = text("2,2,3,4,5", "2,2,3,4,3", f'mode="linear", padding_mode="{padding}"')
    legalised(graph, [numbers(2, 2, 3, 4, 5), places(2, 2, 3, 4, 3)], atol=ROUNDINGS)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_places_far_outside(mode: str, padding: str) -> None:
    graph = text("1,2,5,6", "1,4,4,2", f'mode="{mode}", padding_mode="{padding}"')
    grid = places(1, 4, 4, 2) * np.float32(2000)
    # Of 2,000 reflections a position keeps 13 of its 24 digits.
    atol = 0.0 if mode == "nearest" else 2e-3 if padding == "reflection" else ROUNDINGS
    legalised(graph, [numbers(1, 2, 5, 6), grid], atol=atol)


def test_an_axis_of_one_element_reflects_into_it() -> None:
    graph = text("1,2,1,6", "1,4,4,2", 'padding_mode="reflection", align_corners=1')
    legalised(graph, [numbers(1, 2, 1, 6), places(1, 4, 4, 2)], atol=ROUNDINGS)


def test_places_that_are_no_number_stop_nothing() -> None:
    graph = text("1,1,4,4", "1,2,2,2", 'padding_mode="border"')
    grid = np.array([[[[np.nan, 0], [0, 0]], [[0, np.nan], [0.5, -0.5]]]], np.float32)
    model = prepared(graph)
    LegalisePass(Everything())(model)
    (result,) = run(model, [numbers(1, 1, 4, 4), grid])
    assert np.array_equal(np.isnan(result[0, 0]), [[True, False], [True, False]])


def test_a_computed_grid_of_another_type_stays() -> None:
    graph = text("1,3,5,6", "1,7,4,2", "align_corners=0").replace(
        "float[1,7,4,2]", "double[1,7,4,2]"
    )
    assert refusal(graph) == "GridSample 'y': its grid is computed in double"


def test_too_many_neighbours_stay() -> None:
    graph = text("1,1,4,4", "1,1024,1024,2", "align_corners=0")
    assert refusal(graph) == "GridSample 'y': it takes more than 1,048,576 elements"


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("align", [0, 1])
def test_places_far_beyond_the_ends_are_reflected_several_times(mode: str, align: int) -> None:
    grid = np.random.default_rng(1).uniform(-9, 9, (1, 7, 4, 2)).astype(np.float32)
    attributes = f'mode="{mode}", padding_mode="reflection", align_corners={align}'
    atol = 0.0 if mode == "nearest" else 2 * ROUNDINGS  # places that far are rounded more coarsely
    legalised(
        text("1,3,5,6", "1,7,4,2", attributes), [numbers(1, 3, 5, 6)], {"grid": grid}, atol=atol
    )


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_places_beyond_the_ends_of_two_elements_are_reflected(mode: str) -> None:
    graph = text("1,1,2,2", "1,4,4,2", f'mode="{mode}", padding_mode="reflection", align_corners=1')
    weights = {"grid": places(1, 4, 4, 2)}
    legalised(graph, [numbers(1, 1, 2, 2)], weights, atol=ROUNDINGS)
