"""Weights of resized axes, against onnx's own implementation of Resize; positions that it lacks, by their formula."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError
from samba_onnx.passes.rewrites.legalisation.interpolation import (
    Axis,
    Kernel,
    inside,
    nearest,
    positions,
    weights,
)
from tests.versions import is_older

MODES = [
    "half_pixel",
    "pytorch_half_pixel",
    "half_pixel_symmetric",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
]
ROI = (0.1, 0.7)


def resized(data: np.ndarray, count: int, **attributes: object) -> np.ndarray:
    """Resize a vector by onnx's reference."""
    node = helper.make_node(
        "Resize", ["x", "roi", "", "sizes"], ["y"], extrapolation_value=9.0, **attributes
    )
    kinds = {"x": onnx.TensorProto.FLOAT, "roi": onnx.TensorProto.FLOAT, "sizes": 7}
    inputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items()]
    output = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    model = helper.make_model(helper.make_graph([node], "g", inputs, [output]))
    feeds = {"x": data, "roi": np.array(ROI, np.float32), "sizes": np.array([count])}
    (result,) = ReferenceEvaluator(model).run(None, feeds)
    return np.asarray(result)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kernel", ["linear", "cubic"])
@pytest.mark.parametrize(("size", "count"), [(6, 9), (6, 4), (5, 2), (3, 4)])
@pytest.mark.parametrize("exclude", [0, 1])
def test_weights(size: int, count: int, kernel: str, mode: str, exclude: int) -> None:
    if exclude and kernel == "linear" and is_older("onnx", "1.22"):
        pytest.skip("onnx's reference before 1.22 divides whole numbers in place")
    data = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    axis = Axis(size, count, count / size, ROI)
    where = positions(axis, mode)
    within = inside(axis, where) if mode == "tf_crop_and_resize" else np.ones(count, bool)
    for antialias in (0, 1) if exclude == 0 and mode == "half_pixel" else (0,):
        matrix = weights(axis, where, Kernel(kernel, -0.6, bool(exclude), bool(antialias)))
        assert (matrix.dtype, matrix.shape) == (np.float32, (count, size))
        expected = resized(
            data, count, mode=kernel, coordinate_transformation_mode=mode,
            cubic_coeff_a=-0.6, exclude_outside=exclude, antialias=antialias,
        )  # fmt: skip
        given = np.where(within, matrix @ data, 9)
        # Weights are rounded to float32, positions of some elements by half a unit before.
        np.testing.assert_allclose(given, expected, rtol=1e-5, atol=1e-5)


def test_positions_that_onnx_lacks() -> None:
    np.testing.assert_allclose(
        positions(Axis(2, 4, 2.0), "tf_half_pixel_for_nn"), [0.25, 0.75, 1.25, 1.75]
    )
    assert positions(Axis(5, 1, 0.2), "pytorch_half_pixel").tolist() == [0]
    cropped = positions(Axis(5, 1, 0.2, (0.25, 1.0)), "tf_crop_and_resize")
    assert (cropped.tolist(), cropped.dtype) == ([2.5], np.float32)
    for mode in (*MODES, "tf_half_pixel_for_nn"):
        assert positions(Axis(3, 6, 2.0), mode).dtype == np.float32
    with pytest.raises(CannotExpandError, match=r"its coordinate_transformation_mode is 'middle'"):
        positions(Axis(2, 4, 2.0), "middle")


def test_ends_are_inside() -> None:
    where = np.array([-0.25, 0, 0.5, 3.5, 4, 4.25], np.float32)
    assert inside(Axis(5, 6, 1.2), where).tolist() == [False, True, True, True, True, False]


@pytest.mark.parametrize(
    ("resized", "scale", "rounding", "places"),
    [
        (3, 0.75, "round_prefer_floor", [0, 1, 2, 3]),
        (3, 0.75, "round_prefer_ceil", [1, 2, 3, 3]),
        (3, 0.75, "floor", [0, 1, 2, 3]),
        (3, 0.75, "ceil", [1, 2, 3, 3]),
        # onnxruntime takes the same elements where nothing is resized, whichever way halves are rounded.
        (4, 1.0, "round_prefer_ceil", [0, 1, 2, 3]),
        (4, 1.0, "ceil", [1, 2, 3, 3]),
        (4, 2.0, "round_prefer_ceil", [1, 2, 3, 3]),
        (3, 1.0, "round_prefer_ceil", [1, 2, 3, 3]),
    ],
)
def test_halves_are_rounded(resized: int, scale: float, rounding: str, places: list[int]) -> None:
    where = np.array([0.5, 1.5, 2.5, 3.5], np.float32)
    assert nearest(Axis(4, resized, scale), where, rounding).tolist() == places


def test_other_roundings_are_refused() -> None:
    with pytest.raises(CannotExpandError, match="its nearest_mode is 'up'"):
        nearest(Axis(4, 2, 0.5), np.zeros(2, np.float32), "up")
