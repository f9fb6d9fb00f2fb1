from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from tests.passes.rewrites.foreign.expanding import (
    MICROSOFT,
    assert_computes,
    assert_expands,
    assert_stays,
    one_node,
)
from tests.passes.rewrites.foreign.quantities import ONE_STEP, point, scale, signed, unsigned

FACTORS = [scale(0.05), point(120), scale(0.04), point(20)]
SIGNED_FACTORS = [scale(0.05), point(-7, np.int8), scale(0.04), point(3, np.int8)]
TO_ONE = [scale(0.05), point(120), scale(1 / 255), point(0)]


@pytest.mark.parametrize("operator", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_pairs(operator: str, kind: Any) -> None:
    make, zero = (unsigned, 120) if kind == np.uint8 else (signed, -9)
    points = [point(zero + step, kind) for step in range(3)]
    operands = [make(2, 3, 4), scale(0.1), points[0], make(3, 1, seed=1), scale(0.2), points[1],
                scale(0.3), points[2]]  # fmt: skip
    proto = one_node(MICROSOFT, operator, operands, ["y"], (1, 2, 4, 5, 6, 7))
    assert_expands(proto, operands, **ONE_STEP)


@pytest.mark.parametrize(
    ("operator", "data", "factors", "attributes"),
    [
        ("QLinearSigmoid", unsigned(2, 40), TO_ONE, {}),
        ("QLinearLeakyRelu", unsigned(2, 40), FACTORS, {"alpha": 0.2}),
        ("QLinearLeakyRelu", signed(2, 40), SIGNED_FACTORS, {}),
        ("QLinearGlobalAveragePool", unsigned(1, 6, 6, 3), FACTORS, {"channels_last": 0}),
        ("QLinearGlobalAveragePool", unsigned(1, 6, 6, 3), FACTORS, {"channels_last": 1}),
        *(
            ("QLinearAveragePool", unsigned(1, 6, 6, 3), FACTORS,
             {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "channels_last": last,
              "count_include_pad": counted})
            for last in (0, 1) for counted in (0, 1)
        ),
    ],
)  # fmt: skip
def test_operators_of_one_value(
    operator: str, data: Any, factors: list[Any], attributes: dict[str, Any]
) -> None:
    operands = [data, *factors]
    proto = one_node(MICROSOFT, operator, operands, ["y"], (1, 2, 3, 4), **attributes)
    assert_expands(proto, operands, **ONE_STEP)


def _softmax(axis: int, version: int) -> tuple[onnx.ModelProto, list[Any]]:
    operands = [unsigned(2, 3, 20), *TO_ONE]
    proto = one_node(MICROSOFT, "QLinearSoftmax", operands, ["y"], (1, 2, 3, 4), axis=axis)
    proto.graph.node[0].attribute.append(onnx.helper.make_attribute("opset", version))
    return proto, operands


@pytest.mark.parametrize(("axis", "version"), [(-1, 13), (1, 21), (2, 12)])
def test_softmax(axis: int, version: int) -> None:
    assert_expands(*_softmax(axis, version), **ONE_STEP)


def test_softmax_of_an_old_version_stays() -> None:
    assert_stays(_softmax(1, 12)[0], "it is of an old version and over all axes from 1 on")


@pytest.mark.parametrize(("axes", "keep"), [([1], 1), ([0, 2], 0), (None, 1)])
def test_means(axes: list[int] | None, keep: int) -> None:
    operands = [unsigned(2, 3, 4), *FACTORS]
    attributes = {"keepdims": keep, **({} if axes is None else {"axes": axes})}
    mean = (operands[0].astype(np.float32) - 120).mean(
        axis=None if axes is None else tuple(axes), keepdims=bool(keep)
    )
    expected = np.clip(np.rint(mean * 0.05 / 0.04) + 20, 0, 255).astype(np.uint8)
    proto = one_node(MICROSOFT, "QLinearReduceMean", operands, ["y"], (1, 2, 3, 4), **attributes)
    assert_computes(proto, operands, expected, **ONE_STEP)


def test_values_of_several_scales_become_one() -> None:
    operands = [scale(0.1), point(100), unsigned(2, 3), scale(0.2), point(1),
                unsigned(2, 4, seed=1), scale(0.1), point(100)]  # fmt: skip
    proto = one_node(MICROSOFT, "QLinearConcat", operands, ["y"], (0, 1, 3, 4, 6, 7), axis=1)
    assert_expands(proto, operands, **ONE_STEP)


def test_a_choice_between_values_of_two_scales() -> None:
    operands = [np.array([True, False, True]), unsigned(2, 3), scale(0.2), point(1),
                unsigned(2, 3, seed=1), scale(0.1), point(100), scale(0.1), point(3)]  # fmt: skip
    proto = one_node(MICROSOFT, "QLinearWhere", operands, ["y"], (2, 3, 5, 6, 7, 8))
    assert_expands(proto, operands, **ONE_STEP)


@pytest.mark.parametrize("make", [unsigned, signed])
def test_the_largest_of_windows_with_channels_last(make: Any) -> None:
    operands = [make(1, 6, 6, 3)]
    attributes = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 0]}
    proto = one_node(MICROSOFT, "NhwcMaxPool", operands, ["y"], **attributes)
    assert_expands(proto, operands, rtol=0, atol=0)


def test_means_that_onnxruntime_counts_otherwise_stay() -> None:
    operands = [unsigned(1, 5, 5, 3), *FACTORS]
    proto = one_node(
        MICROSOFT, "QLinearAveragePool", operands, ["y"], (1, 2, 3, 4), kernel_shape=[2, 2],
        strides=[2, 2], channels_last=1, count_include_pad=1, ceil_mode=1,
    )  # fmt: skip
    assert_stays(proto, "it counts what is beyond its padding")
