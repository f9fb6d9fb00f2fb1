from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.foreign import integer_products, rule_of
from samba_onnx.passes.rewrites.foreign.drafting import Draft
from samba_onnx.passes.rewrites.foreign.integer_products import EXACT
from tests.passes.rewrites.applying import operators
from tests.passes.rewrites.foreign.expanding import (
    MICROSOFT,
    assert_computes,
    assert_expands,
    assert_stays,
    one_node,
    refusal,
)
from tests.passes.rewrites.foreign.quantities import point, signed, unsigned

EXACTLY = {"rtol": 0.0, "atol": 0.0}


@pytest.mark.parametrize(
    ("left", "right", "points"),
    [
        (unsigned(2, 3, 8), signed(8, 5), [point(7), point([0, 1, 2, 3, 4], np.int8)]),
        (signed(2, 3, 8), signed(2, 8, 5), [point(-7, np.int8), point(100, np.int8)]),
        (unsigned(3, 8), unsigned(8, 5), []),
        (unsigned(8), signed(8, 5), [point(3)]),
        (unsigned(3, 8), signed(8), [None, point(-3, np.int8)]),
    ],
)
@pytest.mark.parametrize("constants", [(), (1,), (1, 2, 3)])
def test_products(left: Any, right: Any, points: list[Any], constants: tuple[int, ...]) -> None:
    operands = [left, right, *points]
    proto = one_node("", "MatMulInteger", operands, ["y"], constants)
    assert_expands(proto, operands, **EXACTLY)


def test_zero_points_of_rows() -> None:
    # onnxruntime has no kernel for it
    left, right, points = unsigned(3, 8), signed(8, 5), point([1, 20, 255])
    expected = (left.astype(np.int32) - points[:, None]) @ right.astype(np.int32)
    proto = one_node("", "MatMulInteger", [left, right, points], ["y"], (1, 2))
    assert_computes(proto, [left, right, points], expected.astype(np.int32), **EXACTLY)


def _extreme(rows: int, columns: int, number: int) -> Any:
    return np.full((rows, columns), number, np.uint8)


@pytest.mark.parametrize("length", [258, 259, 600])
@pytest.mark.parametrize("constants", [(), (1,)])
def test_the_largest_sums_are_exact(length: int, constants: tuple[int, ...]) -> None:
    operands = [_extreme(2, length, 255), _extreme(length, 3, 255)]
    operands[0][0, ::2] = 254  # so that the sums are odd numbers beyond what float32 holds
    proto = one_node("", "MatMulInteger", operands, ["y"], constants)
    model = assert_expands(proto, operands, **EXACTLY)
    assert operators(model).count("MatMul") == -(-length // (EXACT // 255**2))


def test_a_weight_of_small_numbers_needs_no_pieces() -> None:
    right = np.random.default_rng(0).integers(-20, 20, (1500, 4)).astype(np.int8)
    operands = [unsigned(2, 1500), right]
    model = assert_expands(
        one_node("", "MatMulInteger", operands, ["y"], (1,)), operands, **EXACTLY
    )
    assert operators(model).count("MatMul") == 1
    model = assert_expands(one_node("", "MatMulInteger", operands, ["y"], ()), operands, **EXACTLY)
    assert operators(model).count("MatMul") == 3


def test_sums_that_are_too_long_stay() -> None:
    operands = [_extreme(1, 20000, 255), _extreme(20000, 1, 255)]
    proto = one_node("", "MatMulInteger", operands, ["y"])
    assert_stays(proto, "its sums over 20000 products are too long to be exact in float32")


@pytest.mark.parametrize(
    ("data", "weight", "points", "attributes"),
    [
        (unsigned(1, 3, 6, 6), unsigned(4, 3, 3, 3), [point(12), point(3)], {"pads": [1, 1, 1, 1]}),
        (unsigned(1, 4, 6, 6), unsigned(4, 2, 3, 3), [point(12)], {"group": 2, "strides": [2, 2]}),
        (unsigned(1, 60, 4, 4), unsigned(2, 60, 3, 3), [], {"pads": [0, 1, 0, 1]}),
    ],
)
@pytest.mark.parametrize("constants", [(), (1, 2, 3)])
def test_convolutions(
    data: Any,
    weight: Any,
    points: list[Any],
    attributes: dict[str, Any],
    constants: tuple[int, ...],
) -> None:
    operands = [data, weight, *points]
    proto = one_node("", "ConvInteger", operands, ["y"], constants, **attributes)
    assert_expands(proto, operands, **EXACTLY)


def test_convolutions_whose_groups_are_too_large_stay() -> None:
    operands = [np.full((1, 80, 3, 3), 255, np.uint8), np.full((2, 40, 3, 3), 255, np.uint8)]
    proto = one_node("", "ConvInteger", operands, ["y"], (1,), group=2)
    assert_stays(proto, "its sums are too long to be exact, and it has groups")


def test_products_number_by_number() -> None:
    left, right = unsigned(3, 4), unsigned(4, seed=1)
    expected = (left.astype(np.int32) - 3) * (right.astype(np.int32) - 200)
    operands = [left, point(3), right, point(200)]
    assert_computes(
        one_node(MICROSOFT, "MulInteger", operands, ["y"], (1, 3)), operands, expected, **EXACTLY
    )


@pytest.mark.parametrize("attributes", [{"axes": [1]}, {"keepdims": 0, "axes": [0, 2]}, {}])
def test_sums(attributes: dict[str, Any]) -> None:
    value = signed(2, 30, 4)
    axes = attributes.get("axes")
    expected = value.astype(np.int32).sum(
        axis=None if axes is None else tuple(axes), keepdims=bool(attributes.get("keepdims", 1))
    )
    proto = one_node(MICROSOFT, "ReduceSumInteger", [value], ["y"], **attributes)
    assert_computes(proto, [value], expected.astype(np.int32), **EXACTLY)


def test_what_becomes_a_number_again_stays_one() -> None:
    operands = [unsigned(3, 8), signed(8, 5), point(7)]
    proto = one_node("", "MatMulInteger", operands, ["a"], (1, 2))
    proto.graph.node.append(onnx.helper.make_node("Cast", ["a"], ["y"], to=onnx.TensorProto.FLOAT))
    proto.graph.output[0].name = "y"
    model = assert_expands(proto, operands, **EXACTLY)
    assert operators(model) == ["Cast", "Sub", "MatMul"]


def test_a_zero_point_counts_towards_the_size_of_a_weight() -> None:
    """The weight is 61; what is multiplied is 121, and the sum is odd and beyond 24 bits."""
    left, right = np.full((2, 599), 253, np.uint8), np.full((599, 3), 61, np.int8)
    operands = [left, right, point(0), point(-60, np.int8)]
    proto = one_node("", "MatMulInteger", operands, ["y"], (1, 2, 3))
    assert_expands(proto, operands, **EXACTLY)


def test_zero_points_of_the_filters_of_a_long_convolution() -> None:
    # onnxruntime has no kernel for it
    data, weight = unsigned(1, 64, 5, 5), signed(2, 64, 5, 5) // np.int8(16)
    points = np.array([-3, 5], np.int8)
    centered = weight.astype(np.float64) - points[:, None, None, None]
    expected = (data.astype(np.float64)[0][None] * centered).sum((1, 2, 3))
    operands = [data, weight, point(0), points]
    proto = one_node("", "ConvInteger", operands, ["y"], (1, 2, 3))
    assert_computes(proto, operands, expected.astype(np.int32).reshape(1, 2, 1, 1), **EXACTLY)


def test_there_are_at_most_so_many_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    operands = [_extreme(1, 600, 255), _extreme(600, 1, 255)]  # of which three are exact
    proto = one_node("", "MatMulInteger", operands, ["y"])
    monkeypatch.setattr(integer_products, "_MOST_PIECES", 3)
    assert_expands(proto, operands, **EXACTLY)
    monkeypatch.setattr(integer_products, "_MOST_PIECES", 2)
    assert_stays(proto, "its sums over 600 products are too long to be exact in float32")


@pytest.mark.parametrize(
    ("length", "zeros", "constants", "products"),
    [
        # 1024 products of 128 times 128 are 2**24.
        (1024, (128, 0), (2, 3), 1),
        (1025, (128, 0), (2, 3), 2),
        # 258 of 255 times 255: whatever a zero point is that is computed, or at either end of its type.
        (258, (128, 0), (), 1),
        (259, (128, 0), (), 2),
        (514, (0, 0), (2, 3), 1),
        (515, (0, 0), (2, 3), 2),
        (258, (0, -128), (2, 3), 1),
        (259, (0, -128), (2, 3), 2),
        (259, (0, 127), (2, 3), 2),
        # A weight of 3 is known; with its zero point, unless that is computed.
        (1025, (0, 1), (1, 2, 3), 1),
        (259, (0, 1), (1, 2), 2),
    ],
)
def test_zero_points_say_how_long_a_sum_is_exact(
    length: int, zeros: tuple[int, int], constants: tuple[int, ...], products: int
) -> None:
    weight = np.full((length, 2), 3 if 1 in constants else -128 if zeros[1] > 0 else 127, np.int8)
    operands = [_extreme(2, length, 255), weight, point(zeros[0]), point(zeros[1], np.int8)]
    operands[0][0, 0] = 254  # so that one of the sums is odd
    proto = one_node("", "MatMulInteger", operands, ["y"], constants)
    model = assert_expands(proto, operands, **EXACTLY)
    assert operators(model).count("MatMul") == products


def test_zero_points_of_more_than_one_dimension_stay() -> None:
    operands = [unsigned(3, 8), signed(8, 5), np.zeros((3, 1), np.uint8)]
    proto = one_node("", "MatMulInteger", operands, ["y"], (1, 2))
    assert refusal(proto) == "its zero points 'x2' are no vector"


def test_a_long_weight_without_columns() -> None:
    operands = [unsigned(2, 600), signed(600, 0)]
    assert_expands(one_node("", "MatMulInteger", operands, ["y"], (1,)), operands, **EXACTLY)


@pytest.mark.parametrize(("points", "ones"), [(point(3), ()), (point([1, 2, 3]), (3,))])
def test_integers_are_scaled_by_one_in_the_shape_of_their_zero_points(
    points: Any, ones: tuple[int, ...]
) -> None:
    operands = [unsigned(3, 8), signed(8, 5), points]
    (node,) = ir.from_proto(one_node("", "MatMulInteger", operands, ["y"], (1, 2))).graph
    draft = Draft(node)
    rule = rule_of(node)
    assert rule is not None
    rule(draft)
    centered = next(new for new in draft.nodes if new.op_type == "DequantizeLinear")
    scale = centered.inputs[1]
    assert scale is not None
    assert scale.shape == ir.Shape(ones)
