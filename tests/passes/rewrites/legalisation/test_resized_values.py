"""Resize by places and products, against onnxruntime: for linear and cubic the sums are rounded otherwise."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.rewrites.applying import numbers
from tests.passes.rewrites.legalisation.legalising import legalised, refusal

ROUNDINGS = 5e-6
"""Largest difference of sums of up to 64 products of numbers around one, each rounded to float32."""
MODES = [
    "half_pixel",
    "pytorch_half_pixel",
    "half_pixel_symmetric",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
]


def text(sizes: str, attributes: str, roi: str = "r") -> str:
    return f"""g (float[1,2,6,5] x) => (float[a,b,c,d] y)
<float[8] r = {{0, 0, 0.4, -0.2, 1, 1, 0.6, 0.7}}, int64[4] s = {{1, 2, {sizes}}}>
{{ y = Resize<{attributes}>(x, {roi}, , s) }}"""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sizes", ["9, 3", "12, 10", "1, 7"])
@pytest.mark.parametrize("interpolation", ["nearest", "linear", "cubic"])
def test_every_transformation(interpolation: str, sizes: str, mode: str) -> None:
    attributes = f'mode="{interpolation}", coordinate_transformation_mode="{mode}"'
    atol = 0.0 if interpolation == "nearest" else ROUNDINGS
    made = legalised(text(sizes, attributes), [numbers(1, 2, 6, 5)], atol=atol)
    assert set(made) <= {"Gather", "Reshape", "Expand", "MatMul", "Where"}


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_every_rounding(rounding: str) -> None:
    legalised(text("9, 4", f'nearest_mode="{rounding}"'), [numbers(1, 2, 6, 5)])


@pytest.mark.parametrize(
    "attributes",
    [
        'mode="cubic", cubic_coeff_a=-0.5, exclude_outside=1',
        'mode="linear", antialias=1',
        'mode="cubic", antialias=1',
        'mode="linear", coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=7.5',
    ],
)
@pytest.mark.parametrize("sizes", ["9, 8", "2, 3"])
def test_kernels(attributes: str, sizes: str) -> None:
    legalised(text(sizes, attributes), [numbers(1, 2, 6, 5)], atol=ROUNDINGS)


def test_whole_factors_repeat_without_places() -> None:
    attributes = 'coordinate_transformation_mode="asymmetric", nearest_mode="floor"'
    made = legalised(text("12, 15", attributes), [numbers(1, 2, 6, 5)])
    assert made == ["Reshape", "Expand", "Reshape"]


def test_all_axes_may_change() -> None:
    body = """g (float[2,3,4] x) => (float[a,b,c] y) <float[3] s = {1.5, 2.0, 0.5}>
{ y = Resize<mode="linear">(x, , s) }"""
    assert "Reshape" in legalised(body, [numbers(2, 3, 4)], atol=ROUNDINGS)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_the_aspect_ratio_is_kept(policy: str) -> None:
    body = f"""g (float[1,1,6,5] x) => (float[a,b,c,d] y) <int64[2] s = {{9, 9}}>
{{ y = Resize<axes=[2, 3], keep_aspect_ratio_policy="{policy}">(x, , , s) }}"""
    legalised(body, [numbers(1, 1, 6, 5)])


def test_scales_that_are_computed_stay() -> None:
    body = "g (float[1,1,4,4] x, float[4] s) => (float[1,1,8,8] y) { y = Resize(x, , s) }"
    assert refusal(body) == "Resize 'y': its scales 's' is not constant"


def test_numbers_of_less_precision_are_not_mixed() -> None:
    body = """g (float16[1,1,4,4] x) => (float16[1,1,8,8] y) <float[4] s = {1, 1, 2, 2}>
{ y = Resize<mode="linear">(x, , s) }"""
    assert refusal(body) == "Resize 'y': it mixes elements of another type than float32"


def test_infinities_stay_where_they_are() -> None:
    x = numbers(1, 2, 6, 5)
    x[0, 0, 0, 0] = np.inf
    legalised(text("12, 10", 'mode="nearest"'), [x])


@pytest.mark.parametrize(
    ("scales", "roi", "attributes"),
    [
        ("1.1, 1.0", "", 'mode="nearest", coordinate_transformation_mode="asymmetric"'),
        ("1.1, 1.0", "", 'mode="linear"'),
        ("1.1, 2.0", "", 'mode="linear", antialias=1'),
        ("1.0, 1.0", "r", 'mode="linear", coordinate_transformation_mode="tf_crop_and_resize"'),
    ],
)
def test_an_axis_that_keeps_its_size_stays_where_runtimes_differ(
    scales: str, roi: str, attributes: str
) -> None:
    body = f"""g (float[4,6] x) => (float[a,b] y) <float[2] s = {{{scales}}}, float[4] r = {{0.1, 0, 0.9, 1}}>
{{ y = Resize<{attributes}>(x, {roi}, s) }}"""
    assert refusal(body).endswith("do not change the size of an axis, where runtimes differ")


def test_a_position_between_two_elements_stays_where_runtimes_differ() -> None:
    body = """g (float[4,5] x) => (float[a,b] y) <float[2] s = {2.0, 1.1}>
{ y = Resize<coordinate_transformation_mode="half_pixel_symmetric", nearest_mode="floor">(x, , s) }"""
    assert refusal(body) == (
        "Resize 'y': a position lies between two elements, where runtimes differ"
    )


def test_a_crop_of_an_axis_of_scale_one_stays() -> None:
    body = """g (float[4,6] x) => (float[a,b] y) <float[2] s = {1, 2}, float[4] r = {0.1, 0, 0.9, 1}>
{ y = Resize<coordinate_transformation_mode="tf_crop_and_resize">(x, r, s) }"""
    assert refusal(body) == "Resize 'y': it crops an axis of scale 1, where runtimes differ"


def test_an_axis_that_keeps_its_size_beside_one_that_does_not() -> None:
    body = """g (float[4,6] x) => (float[a,b] y) <float[2] s = {1.1, 2.0}>
{ y = Resize<mode="linear">(x, , s) }"""
    legalised(body, [numbers(4, 6)], atol=ROUNDINGS)


def test_symmetric_places_of_fractions_that_lie_clearly_near_one_element() -> None:
    text = """g (float[1,2,6,5] x) => (float[a,b,c,d] y) <float[4] s = {1, 1, 0.7, 2.3}>
    { y = Resize<coordinate_transformation_mode="half_pixel_symmetric">(x, , s) }"""
    legalised(text, [numbers(1, 2, 6, 5)])


def test_one_size_of_two_operands_and_one_scale() -> None:
    graph = """g (float[1,4] x, float[1,5] z) => (float[1,8] y, float[1,8] w, float[1,10] v)
<int64[2] s = {1, 8}, float[1] twice = {2.0}> {
  y = Resize<mode="linear">(x, , , s)
  w = Resize<mode="linear">(z, , , s)
  v = Resize<mode="linear", axes=[1]>(z, , twice)
}"""
    legalised(graph, [numbers(1, 4), numbers(1, 5)], atol=ROUNDINGS)
