"""Inputs as constants: what takes their type and shape, and what is refused, against numpy."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from samba_onnx.errors import UsageError
from samba_onnx.facts.dtypes import ELEMENT_TYPES
from samba_onnx.loading import fix_inputs, load_model
from samba_onnx.loading.fixed_inputs import FixedInputs
from samba_onnx.pef.decoding import from_tree, to_tree
from samba_onnx.pef.fixed_inputs import MOST_BYTES, FixedInput, fixed_arrays


def model(
    kind: int, shape: list[int | str | None] | None, *, ir_version: int = 10, default: Any = None
) -> ir.Model:
    graph = helper.make_graph(
        [helper.make_node("Identity", ["a"], ["y"])],
        "g",
        [
            helper.make_tensor_value_info("a", kind, shape),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2]),
        ],
        [helper.make_tensor_value_info("y", kind, shape)],
        [] if default is None else [default],
    )
    opset = [helper.make_opsetid("", 21)]
    return load_model(helper.make_model(graph, ir_version=ir_version, opset_imports=opset)).model


def fixed(kind: int, shape: list[int | str | None] | None, value: Any) -> np.ndarray:
    """Fix the input, and return what the graph has in its place; both records must agree."""
    changed = model(kind, shape)
    answer = fix_inputs(changed, {"a": value})
    assert [each.name for each in changed.graph.inputs] == ["x"]
    (record,) = answer.records
    assert not record.problem()
    tensor = changed.graph.initializers["a"].const_value
    assert tensor is not None
    array: np.ndarray = record.array()
    assert array.tobytes() == tensor.numpy().tobytes()
    assert tensor.dtype == kind
    assert array.dtype == tensor.numpy().dtype
    return array


TAKEN = {
    "integer": (TensorProto.INT64, [], 16000),
    "one element": (TensorProto.INT64, [1], 16000),
    "one element of two axes": (TensorProto.FLOAT, [1, 1], 0.5),
    "smallest integer": (TensorProto.INT64, [], -(2**63)),
    "largest integer": (TensorProto.UINT64, [], 2**64 - 1),
    "list": (TensorProto.INT32, [2], [1, -2]),
    "rows": (TensorProto.FLOAT, ["rows", 2], [[1, 2], [3.5, 4]]),
    "no elements": (TensorProto.INT64, ["n"], []),
    "integer for a float": (TensorProto.FLOAT, [], 16000),
    "infinity": (TensorProto.FLOAT, [], float("-inf")),
    "not a number": (TensorProto.FLOAT, [], float("nan")),
    "rounded": (TensorProto.FLOAT, [], 0.1),
    "half": (TensorProto.FLOAT16, [], 65504),
    "bfloat16": (TensorProto.BFLOAT16, [2], [1.0, 3.0e38]),
    "truth": (TensorProto.BOOL, [], True),
    "truths": (TensorProto.BOOL, [2], [True, False]),
    "complex": (TensorProto.COMPLEX64, [], 1 + 2j),
    "four bits": (TensorProto.INT4, [2], [-8, 7]),
    "unknown rank": (TensorProto.INT64, None, [1, 2, 3]),
}


@pytest.mark.parametrize(("kind", "shape", "value"), TAKEN.values(), ids=TAKEN.keys())
def test_numbers_take_the_type_of_the_input(kind: int, shape: Any, value: Any) -> None:
    dtype = ir.DataType(kind).numpy()
    expected = np.asarray(value, dtype)
    array = fixed(kind, shape, value)
    assert array.dtype == dtype
    np.testing.assert_array_equal(array.reshape(expected.shape), expected)
    if shape is not None and not expected.shape:
        assert array.shape == tuple(shape)


@pytest.mark.parametrize("name", ELEMENT_TYPES.keys())
def test_arrays_of_every_type_come_back_as_they_were(name: str) -> None:
    """Numbers in memory, in a manifest's text and read back are one."""
    element = ELEMENT_TYPES[name]
    array = np.array([[1, 0, 1], [0, 1, 1]], np.float32).astype(element.numpy)
    kept = fixed(element.number, [2, "n"], array)
    assert (kept.dtype, kept.shape) == (element.numpy, (2, 3))
    assert kept.tobytes() == array.tobytes()
    record = FixedInput.of("a", element.text, array)
    again = from_tree(FixedInput, json.loads(json.dumps(to_tree(record))))
    assert again == record
    assert fixed_arrays([again])["a"].tobytes() == array.tobytes()


def test_arrays_of_other_layouts_and_widths_are_taken() -> None:
    rows = np.arange(6, dtype=np.float32).reshape(3, 2).T
    np.testing.assert_array_equal(fixed(TensorProto.FLOAT, [2, 3], rows), rows)
    np.testing.assert_array_equal(fixed(TensorProto.INT32, [], np.int64(7)), np.int32(7))
    swapped = np.array([1, 2], np.dtype(">i8"))
    np.testing.assert_array_equal(fixed(TensorProto.INT64, [2], swapped), [1, 2])
    raw = np.array([1.5, -2], ml_dtypes.bfloat16).view(np.dtype("V2"))
    array = fixed(TensorProto.BFLOAT16, [2], raw)
    np.testing.assert_array_equal(array.astype(np.float32), [1.5, -2])


REFUSED = {
    "fraction for an integer": (TensorProto.INT64, [], 1.5, "expected whole numbers"),
    "truth for an integer": (TensorProto.INT64, [], True, "expected whole numbers"),
    "truth for a float": (TensorProto.FLOAT, [], True, "expected numbers"),
    "number for a truth": (TensorProto.BOOL, [], 1, "expected true or false"),
    "word": (TensorProto.INT64, [], "16000", "expected whole numbers"),
    "nothing": (TensorProto.INT64, [], None, "expected whole numbers"),
    "above the range": (TensorProto.INT8, [], 128, "expected numbers from -128 to 127"),
    "below the range": (TensorProto.UINT8, [], -1, "expected numbers from 0 to 255"),
    "far above": (TensorProto.INT64, [], 10**5000, "a very large number"),
    "too large for half": (TensorProto.FLOAT16, [], 70000, "no number as large"),
    "too large for any": (TensorProto.FLOAT, [], 10**400, "no number as large"),
    "complex for a float": (TensorProto.FLOAT, [], 1j, "expected numbers"),
    "another rank": (TensorProto.INT64, [], [1, 2], r"has shape \[\], the constant \[2\]"),
    "another size": (TensorProto.INT64, [3], [1, 2], r"has shape \[3\], the constant \[2\]"),
    "scalar for many": (TensorProto.INT64, ["n"], 1, r"has shape \[n\], the constant \[\]"),
    "lists of different lengths": (TensorProto.INT64, [2, 2], [[1], [2, 3]], "different lengths"),
    "floats of another width": (TensorProto.FLOAT, [], np.float64(1), "convert it with .astype"),
    "integers for floats": (TensorProto.FLOAT, [], np.int64(1), "convert it with .astype"),
    "narrow integers": (TensorProto.INT8, [], np.int64(300), "expected numbers from -128 to 127"),
    "strings": (TensorProto.STRING, [], "a", "only tensors of numbers"),
    "large": (TensorProto.INT8, ["n"], np.zeros(MOST_BYTES + 1, np.int8), "make it an initializer"),
}


@pytest.mark.parametrize(
    ("kind", "shape", "value", "problem"), REFUSED.values(), ids=REFUSED.keys()
)
def test_what_does_not_fit_is_refused_with_the_reason(
    kind: int, shape: Any, value: Any, problem: str
) -> None:
    with pytest.raises(UsageError, match=problem) as caught:
        fix_inputs(model(kind, shape), {"a": value})
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("input 'a' cannot be fixed as a constant")


def test_sequences_stay_inputs() -> None:
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, [2])
    graph = helper.make_graph(
        [helper.make_node("SequenceLength", ["s"], ["y"])],
        "g",
        [helper.make_value_info("s", helper.make_sequence_type_proto(kind))],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [])],
    )
    whole = load_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])).model
    with pytest.raises(UsageError, match="of type seq"):
        fix_inputs(whole, {"s": [1.0]})


def test_unknown_names_list_the_inputs() -> None:
    with pytest.raises(UsageError, match=r"no input 'b' .*; it has a, x"):
        fix_inputs(model(TensorProto.INT64, []), {"b": 1})


def test_nothing_is_changed_without_constants() -> None:
    untouched = model(TensorProto.INT64, [])
    assert fix_inputs(untouched, None) == FixedInputs((), {})
    assert [value.name for value in untouched.graph.inputs] == ["a", "x"]


def test_named_dimensions_get_the_sizes_of_constants() -> None:
    assert fix_inputs(model(TensorProto.INT64, ["n"]), {"a": [1, 2, 3]}).sizes == {"n": 3}
    with pytest.raises(UsageError, match="another one has 3 for 'n'"):
        fix_inputs(
            model(TensorProto.INT64, ["n"]), {"a": [1, 2, 3], "x": np.zeros((4, 2), np.float32)}
        )


def test_a_default_gives_way_and_an_old_initializer_is_no_input() -> None:
    default = helper.make_tensor("a", TensorProto.INT64, [], [8000])
    changed = model(TensorProto.INT64, [], default=default)
    fix_inputs(changed, {"a": 16000})
    assert changed.graph.initializers["a"].const_value.numpy() == 16000  # type: ignore[union-attr]
    with pytest.raises(UsageError, match="no input 'a'"):
        fix_inputs(model(TensorProto.INT64, [], ir_version=3, default=default), {"a": 16000})
