from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from tests.backend_cases import run_onnxruntime
from tests.passes.rewrites.applying import numbers
from tests.passes.rewrites.foreign.expanding import LEARNING, assert_expands, expanded, one_node

MATRIX = numbers(4, 3)
HOLES = np.where(np.arange(12).reshape(4, 3) % 4 == 0, np.nan, MATRIX).astype(np.float32)
WHOLE = np.array([[3, -1, 7], [9, 3, 0]])


@pytest.mark.parametrize(
    ("op_type", "operands", "attributes"),
    [
        ("Scaler", [MATRIX], {"offset": [0.5, -1.0, 2.0], "scale": [2.0, 3.0, 0.5]}),
        ("Scaler", [WHOLE], {"offset": [0.0], "scale": [0.1]}),
        ("Normalizer", [MATRIX], {"norm": "L1"}),
        ("Normalizer", [MATRIX], {"norm": "L2"}),
        ("Normalizer", [MATRIX], {"norm": "MAX"}),
        ("Normalizer", [np.zeros((2, 3), np.float32)], {"norm": "L2"}),
        ("Normalizer", [np.zeros((2, 3), np.float32)], {"norm": "L1"}),
        ("Binarizer", [MATRIX], {"threshold": 0.25}),
        ("Imputer", [HOLES], {"imputed_value_floats": [1.0, 2.0, 3.0], "replaced_value_float": float("nan")}),
        ("Imputer", [WHOLE], {"imputed_value_int64s": [5], "replaced_value_int64": 3}),
        ("ArrayFeatureExtractor", [MATRIX, np.array([2, 0])], {}),
        ("FeatureVectorizer", [MATRIX, MATRIX[:, :2]], {"inputdimensions": [3, 2]}),
        ("OneHotEncoder", [WHOLE], {"cats_int64s": [0, 3, 9], "zeros": 1}),
        ("LabelEncoder", [WHOLE], {"keys_int64s": [3, 9], "values_int64s": [30, 90], "default_int64": -7}),
        ("LabelEncoder", [WHOLE], {"keys_int64s": [3, 9], "values_floats": [0.5, 1.5], "default_float": 9.0}),
        ("LabelEncoder", [WHOLE], {"keys_int64s": [3, 9], "values_floats": [0.5, 1.5]}),
        ("LabelEncoder", [MATRIX.round()], {"keys_floats": [0.0, 1.0], "values_int64s": [4, 5]}),
    ],
)  # fmt: skip
def test_features(op_type: str, operands: list[Any], attributes: dict[str, Any]) -> None:
    assert_expands(one_node(LEARNING, op_type, operands, ["y"], **attributes), operands, rtol=1e-6)


def test_a_norm_of_negative_numbers_is_what_onnxruntime_takes() -> None:
    operands = [-np.abs(MATRIX)]
    assert_expands(one_node(LEARNING, "Normalizer", operands, ["y"], norm="MAX"), operands)


def test_texts_stay_on_the_cpu() -> None:
    attributes = {"keys_int64s": [3], "values_strings": ["three"]}
    proto = one_node(LEARNING, "LabelEncoder", [WHOLE], ["y"], **attributes)
    model, notes = expanded(proto)
    assert [node.op_type for node in model.graph] == ["LabelEncoder"]
    assert "its values are no lists of numbers" in " ".join(notes)


def test_the_default_of_a_table_of_floats_is_minus_zero() -> None:
    proto = one_node(
        LEARNING, "LabelEncoder", [WHOLE], ["y"], keys_int64s=[3, 9], values_floats=[0.5, 1.5]
    )
    models = (proto, ir.to_proto(expanded(proto)[0]))
    before, after = (run_onnxruntime(model.SerializeToString(), [WHOLE])[0] for model in models)
    np.testing.assert_array_equal(np.signbit(after), np.signbit(before))
    assert np.signbit(after).any()
