from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from tests.passes.rewrites.applying import numbers
from tests.passes.rewrites.foreign.expanding import (
    MICROSOFT,
    assert_expands,
    assert_stays,
    one_node,
)
from tests.passes.rewrites.foreign.quantities import ONE_STEP, point, scale, signed, unsigned

IMAGE, KERNEL = unsigned(1, 3, 6, 6), signed(4, 3, 3, 3, seed=1)
COLUMNS, NONE = scale(0.01, 0.02, 0.01, 0.02, 0.03), point([0] * 5, np.int8)
WHOLE = np.array([100, -7, 30, 2, -60], np.int32)
ALL = tuple(range(1, 9))


@pytest.mark.parametrize(
    ("scales", "points"),
    [(scale(0.01), point(3, np.int8)), (scale(0.01, 0.02, 0.015, 0.03), point([0] * 4, np.int8))],
)
@pytest.mark.parametrize("bias", [[], [WHOLE[:4]]])
@pytest.mark.parametrize(
    "attributes",
    [{"pads": [1, 1, 1, 1]}, {"strides": [2, 2], "auto_pad": "SAME_UPPER"}, {"dilations": [2, 2]}],
)
def test_convolutions(
    scales: Any, points: Any, bias: list[Any], attributes: dict[str, Any]
) -> None:
    operands = [IMAGE, scale(0.1), point(120), KERNEL, scales, points, scale(0.5), point(128)]
    operands += bias
    proto = one_node("", "QLinearConv", operands, ["y"], ALL, **attributes)
    assert_expands(proto, operands, **ONE_STEP)


@pytest.mark.parametrize("last", [0, 1])
def test_convolutions_in_onnxruntimes_domain(last: int) -> None:
    image = np.ascontiguousarray(IMAGE.transpose(0, 2, 3, 1)) if last else IMAGE
    operands = [image, scale(0.1), point(120), KERNEL, scale(0.01), point(0, np.int8),
                scale(0.5), point(128), WHOLE[:4]]  # fmt: skip
    attributes = {"pads": [1, 0, 1, 0], "channels_last": last}
    proto = one_node(MICROSOFT, "QLinearConv", operands, ["y"], ALL, **attributes)
    assert_expands(proto, operands, **ONE_STEP)


def test_convolutions_by_groups() -> None:
    operands = [unsigned(1, 4, 6, 6), scale(0.1), point(120), signed(4, 1, 3, 3), scale(0.01),
                point(0, np.int8), scale(0.2), point(128)]  # fmt: skip
    proto = one_node("", "QLinearConv", operands, ["y"], ALL, group=4)
    assert_expands(proto, operands, **ONE_STEP)


@pytest.mark.parametrize(
    ("left", "zero", "right", "scales", "points"),
    [
        (unsigned(2, 3, 8), point(120), signed(8, 5), COLUMNS, NONE),
        (signed(2, 3, 8), point(-3, np.int8), signed(2, 8, 5), scale(0.01), point(2, np.int8)),
        (unsigned(3, 8), point(0), unsigned(8, 5), scale(0.01), point(128)),
    ],
)
def test_products(left: Any, zero: Any, right: Any, scales: Any, points: Any) -> None:
    operands = [left, scale(0.1), zero, right, scales, points, scale(0.05), zero]
    proto = one_node("", "QLinearMatMul", operands, ["y"], (1, 2, 4, 5, 6, 7))
    assert_expands(proto, operands, **ONE_STEP)


@pytest.mark.parametrize("batch", [(), (2,)])
def test_scales_of_more_than_one_dimension_stay(batch: tuple[int, ...]) -> None:
    rows = np.ones((*batch, 3, 1), np.float32)
    operands = [unsigned(*batch, 3, 8), rows, rows.astype(np.uint8), signed(8, 5), COLUMNS, NONE,
                scale(0.05), point(128)]  # fmt: skip
    proto = one_node("", "QLinearMatMul", operands, ["y"], (1, 2, 4, 5, 6, 7))
    assert_stays(proto, "its scales 'x1' are no vector")


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_general_products(transposed: int, rounded: bool, alpha: float) -> None:
    weight = signed(5, 8) if transposed else signed(8, 5)
    operands = [unsigned(3, 8), scale(0.1), point(100), weight, COLUMNS, NONE, WHOLE]
    operands += [scale(0.05), point(128)] if rounded else []
    proto = one_node(MICROSOFT, "QGemm", operands, ["y"], ALL, transB=transposed, alpha=alpha)
    # numbers up to 100, of sums of 8 products
    assert_expands(proto, operands, **(ONE_STEP if rounded else {"rtol": 1e-5, "atol": 1e-4}))


@pytest.mark.parametrize("bias", [[], [numbers(5)]])
def test_products_that_are_scaled_to_numbers(bias: list[Any]) -> None:
    operands = [unsigned(3, 8), signed(8, 5), scale(0.1), COLUMNS, point(100), NONE, *bias]
    proto = one_node(MICROSOFT, "MatMulIntegerToFloat", operands, ["y"], (1, 2, 3, 4, 5, 6))
    assert_expands(proto, operands, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("bias", [[], [numbers(5)]])
@pytest.mark.parametrize("value", [numbers(3, 8), np.zeros((3, 8), np.float32)])
def test_products_of_what_is_quantised_by_its_range(value: Any, bias: list[Any]) -> None:
    operands = [value, signed(8, 5), COLUMNS, NONE, *bias]
    proto = one_node(MICROSOFT, "DynamicQuantizeMatMul", operands, ["y"], (1, 2, 3, 4))
    model = assert_expands(proto, operands, rtol=1e-5, atol=1e-5)
    assert all(node.outputs[0].dtype != ir.DataType.UINT8 for node in model.graph)
