"""What may be computed at conversion time, and at which size and number that ends."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.evaluation import FOLDABLE, LARGEST_RESULT, MOST_WORK, evaluate
from samba_onnx.passes.rewrites.refusals import Refusal
from tests.passes.rewrites.applying import numbers

OPSET = 21
MOST = LARGEST_RESULT // 8
"""Elements of the largest result that is computed; of fewer than eight bytes they count as eight."""


def evaluated(
    op_type: str,
    *operands: Any,
    attributes: dict[str, Any] | None = None,
    outputs: int = 1,
    dtype: ir.DataType | None = None,
    shape: tuple[int | str, ...] | None = None,
) -> list[np.ndarray] | str:
    """Evaluate a node; return its results, or why it stays."""
    assert op_type in FOLDABLE
    values = [None if operand is None else ir.Value() for operand in operands]
    node = ir.node(op_type, values, attributes or {}, num_outputs=outputs)
    if dtype is not None:
        node.outputs[0].type = ir.TensorType(dtype)
    if shape is not None:
        node.outputs[0].shape = ir.Shape(shape)
    arrays = [None if operand is None else np.asarray(operand) for operand in operands]
    result = evaluate(node, arrays, OPSET)
    return result.reason if isinstance(result, Refusal) else result


LOWEST = np.iinfo(np.int64).min


@pytest.mark.parametrize(
    ("left", "right", "quotient"),
    [
        ([LOWEST, 6], [2, 3], [LOWEST // 2, 2]),
        ([LOWEST, 6], [1, 3], [LOWEST, 2]),
        ([4, 6], [-1, 3], [-4, 2]),
        ([-7, 7], [2, -2], [-3, -3]),
        ([LOWEST, 6], [-1, 3], None),
        ([4, 6], [0, 3], None),
    ],
)
def test_a_quotient_is_computed_unless_it_traps(
    left: list[int], right: list[int], quotient: list[int] | None
) -> None:
    result = evaluated("Div", np.array(left), np.array(right))
    if quotient is None:
        assert isinstance(result, str)
        assert "divide by zero, overflow" in result
    else:
        assert [array.tolist() for array in result if not isinstance(array, str)] == [quotient]


def test_floats_are_divided_by_zero_without_a_warning() -> None:
    with np.errstate(all="raise"):
        (result,) = evaluated("Div", np.float32([1, -1]), np.float32([0, 0]))
    assert not isinstance(result, str)
    assert result.tolist() == [np.inf, -np.inf]


def test_a_division_without_an_operand_stays() -> None:
    assert isinstance(evaluated("Div", np.array([4]), None), str)


@pytest.mark.parametrize("operator", ["Div", "Mod"])
def test_a_division_of_different_types_stays(operator: str) -> None:
    for left, right in ((np.float32([4]), np.int64([2])), (np.int32([4]), np.int64([2]))):
        assert isinstance(evaluated(operator, left, right), str)


@pytest.mark.parametrize(
    ("source", "target", "result"),
    [
        (np.float32([-128, 126.7]), ir.DataType.INT8, [-128, 126]),
        (np.float32([0, 254]), ir.DataType.UINT8, [0, 254]),
        (np.float64([-(2.0**63), 2.0**62]), ir.DataType.INT64, [-(2**63), 2**62]),
        (np.int64([300, -1]), ir.DataType.UINT8, [44, 255]),
        (np.array([True, False]), ir.DataType.INT32, [1, 0]),
        (np.float32([1e30, np.inf]), ir.DataType.DOUBLE, [np.float64(np.float32(1e30)), np.inf]),
        (np.float32([0.5, 0]), ir.DataType.BOOL, [True, False]),
        # what the type cannot hold, and what no number says
        (np.float64([2.0**63]), ir.DataType.INT64, None),
        (np.float64([-(2.0**64)]), ir.DataType.INT64, None),
        (np.float32([128]), ir.DataType.INT8, None),
        (np.float32([-129]), ir.DataType.INT8, None),
        (np.float32([-1]), ir.DataType.UINT8, None),
        (np.float32([np.nan]), ir.DataType.INT32, None),
        (np.float32([1, -np.inf]), ir.DataType.INT32, None),
        # types of which runtimes differ
        (np.float32([1]), ir.DataType.INT4, None),
        (np.int64([1]), ir.DataType.UINT4, None),
        (np.int64([1]), ir.DataType.STRING, None),
    ],
)
def test_a_cast_is_computed_when_every_number_fits(
    source: np.ndarray, target: ir.DataType, result: list[float] | None
) -> None:
    found = evaluated("Cast", source, attributes={"to": int(target)}, dtype=target)
    if result is None:
        assert isinstance(found, str)
        assert "undefined for these operands" in found
    else:
        assert not isinstance(found, str)
        assert found[0].tolist() == result
        assert found[0].dtype == target.numpy()


def test_a_cast_of_text_is_computed_if_it_is_a_number() -> None:
    to = {"to": int(ir.DataType.INT64)}
    found = evaluated("Cast", np.array(["12"], object), attributes=to, dtype=ir.DataType.INT64)
    assert isinstance(found, str) or found[0].tolist() == [12]
    found = evaluated("Cast", np.array(["twelve"], object), attributes=to, dtype=ir.DataType.INT64)
    assert isinstance(found, str)


def test_a_cast_to_an_unknown_type_stays() -> None:
    assert isinstance(evaluated("Cast", np.float32([1]), attributes={"to": 7}), str)
    assert isinstance(evaluated("CastLike", np.float32([1e30]), np.int64([1]), dtype=ir.DataType.INT64), str)  # fmt: skip


SIZES: dict[str, Any] = {
    "ConstantOfShape": lambda size: [np.array([size // 2, 2])],
    "Expand": lambda size: [np.zeros((1, 2), np.int8), np.array([size // 2, 2])],
    "Expand a matrix": lambda size: [np.zeros((size // 2, 1), np.int8), np.array([2])],
    "Tile": lambda size: [np.zeros((2, 2), np.int8), np.array([size // 8, 2])],
    "Range": lambda size: [np.int64(5), np.int64(5 + 2 * size), np.int64(2)],
    "Range down": lambda size: [np.float32(0), np.float32(-size), np.float32(-1)],
    "Gather": lambda size: [np.zeros((2, 2), np.int8), np.zeros(size // 2, np.int64)],
    "Gather from one row": lambda size: [np.zeros((1, 2), np.int8), np.zeros(size // 2, np.int64)],
    "GatherND": lambda size: [np.zeros((3, 2), np.int8), np.zeros((size // 2, 1), np.int64)],
    "GatherND of rows": lambda size: [
        np.zeros((4, 3, 2), np.int8),
        np.zeros((2, size // 4, 2), np.int64),
    ],
    "Add": lambda size: [np.zeros((size // 2, 1), np.int8), np.zeros(2, np.int8)],
    "MatMul": lambda size: [np.zeros((size // 32, 1), np.int8), np.zeros((1, 32), np.int8)],
    "MatMul in a batch": lambda size: [np.zeros((1, size // 32, 1)), np.zeros((1, 32))],
}


@pytest.mark.parametrize("case", SIZES)
def test_a_result_is_computed_up_to_the_limit(case: str) -> None:
    """The size is known exactly before anything is allocated."""
    op_type = case.split(maxsplit=1)[0]
    (result,) = evaluated(op_type, *SIZES[case](MOST))
    assert isinstance(result, np.ndarray)
    assert result.size == MOST
    assert evaluated(op_type, *SIZES[case](MOST + 32)) == "its result would take too much space"


def test_wide_numbers_count_as_wide_and_narrow_ones_as_eight_bytes() -> None:
    wide = np.zeros((MOST // 2, 1), np.complex128)
    assert evaluated("Reshape", wide, np.array([-1])) != []
    column = np.zeros((MOST // 2, 1), np.complex128)
    assert isinstance(evaluated("Expand", column, np.array([1, 2])), str)
    assert not isinstance(evaluated("Expand", column, np.array([1, 1])), str)


def test_what_does_not_grow_is_computed_whatever_its_size() -> None:
    large = np.arange(2 * MOST)
    (result,) = evaluated("Reshape", large, np.array([2, -1]))
    assert isinstance(result, np.ndarray)
    assert result.shape == (2, MOST)


def test_a_result_without_elements_is_computed() -> None:
    for op_type, operands in (
        ("ConstantOfShape", [np.array([0, 4])]),
        ("Range", [np.int64(5), np.int64(1), np.int64(1)]),
        ("Gather", [np.zeros((0, 4)), np.zeros(0, np.int64)]),
        ("MatMul", [np.zeros((2, 0)), np.zeros((0, 3))]),
    ):
        (result,) = evaluated(op_type, *operands)
        assert isinstance(result, np.ndarray)
        assert result.sum() == 0


def test_a_gather_along_any_axis_is_measured_along_it() -> None:
    data, rows = numbers(2, 8, MOST // 64), np.tile([1, 0, 1, 1], 8)
    (result,) = evaluated("Gather", data, rows, attributes={"axis": 1})
    assert isinstance(result, np.ndarray)
    assert result.size == MOST
    np.testing.assert_array_equal(result, data[:, rows])
    assert isinstance(evaluated("Gather", data, np.tile(rows, 2), attributes={"axis": 1}), str)


def test_a_product_of_much_work_and_small_result_stays() -> None:
    inner = math.isqrt(MOST * MOST_WORK)
    assert inner**2 == MOST * MOST_WORK
    ones = np.ones((1, inner), np.int8)
    assert evaluated("MatMul", ones, ones.T.astype(np.int8))
    longer = np.ones((1, inner + 1), np.int8)
    assert isinstance(evaluated("MatMul", longer, longer.T), str)


def test_a_product_of_vectors_is_computed() -> None:
    (result,) = evaluated("MatMul", np.array([1, 2]), np.array([3, 4]))
    assert not isinstance(result, str)
    assert result.tolist() == 11


def test_a_parameter_of_a_function_is_no_number() -> None:
    node = ir.node("Concat", [ir.Value()])
    node.attributes["axis"] = ir.RefAttr("axis", "outer", ir.AttributeType.INT)
    result = evaluate(node, [np.array([1])], OPSET)
    assert isinstance(result, Refusal)
    assert "parameter of a function" in result.reason


def test_a_split_returns_its_parts() -> None:
    even = evaluated("Split", np.arange(6), outputs=3, attributes={"num_outputs": 3})
    assert [np.asarray(part).tolist() for part in even] == [[0, 1], [2, 3], [4, 5]]
    sized = evaluated("Split", np.arange(6), np.array([2, 4]), outputs=2)
    assert [np.asarray(part).tolist() for part in sized] == [[0, 1], [2, 3, 4, 5]]


def test_a_tensor_attribute_is_read() -> None:
    value = ir.tensor(np.array([2.5], np.float32))
    (result,) = evaluated("ConstantOfShape", np.array([2]), attributes={"value": value})
    assert not isinstance(result, str)
    assert (result.dtype, result.tolist()) == (np.float32, [2.5, 2.5])


def test_what_the_evaluator_fails_of_is_said() -> None:
    reason = evaluated("Reshape", np.array([1, 2]), np.array([5]))
    assert isinstance(reason, str)
    assert reason.startswith("it cannot be evaluated: ")
    assert "reshape" in reason


class Answers:
    """An evaluator that answers the same to everything."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def eval(self, *_: np.ndarray, **__: object) -> object:
        return self.answer


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (np.array([1, 2]), None),
        ((np.array([1, 2]), np.array([1])), "number of outputs"),
        ([1, 2], "number of outputs"),
        ({1: 2}, "other than arrays"),
        (np.array([1, 2], np.int32), "another type"),
        (np.array([[1, 2]]), "another shape"),
        (np.array([1, 2, 3]), "another shape"),
        (np.int64(1), "another shape"),
    ],
)
def test_a_result_that_contradicts_what_is_known_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, answer: object, found: str | None
) -> None:
    from onnx.reference import ops

    monkeypatch.setattr(ops, "load_op", lambda *_: Answers(answer))
    result = evaluated("Neg", np.array([1, 2]), dtype=ir.DataType.INT64, shape=(2,))
    if found is None:
        assert not isinstance(result, str)
    else:
        assert isinstance(result, str)
        assert found in result


def test_a_dynamic_dimension_is_whatever_is_computed() -> None:
    for shape in (("n",), None):
        result = evaluated("Neg", np.array([1, 2]), dtype=ir.DataType.INT64, shape=shape)
        assert not isinstance(result, str)
        assert result[0].tolist() == [-1, -2]
    assert isinstance(evaluated("Neg", np.array([1, 2]), shape=("n", 2)), str)


def test_a_gather_in_batches_is_that_of_each_batch() -> None:
    data = np.arange(12).reshape(2, 3, 2)
    places = np.array([[[0], [2]], [[1], [1]]])
    (result,) = evaluated("GatherND", data, places, attributes={"batch_dims": 1})
    np.testing.assert_array_equal(result, [data[0, [0, 2]], data[1, [1, 1]]])


def test_a_gather_in_batches_is_measured_by_what_one_of_them_takes() -> None:
    data, many = np.zeros((2, 3, 5), np.int8), MOST // 10
    places = np.zeros((2, many, 1), np.int64)
    (result,) = evaluated("GatherND", data, places, attributes={"batch_dims": 1})
    assert isinstance(result, np.ndarray)
    assert result.size == 2 * many * 5
