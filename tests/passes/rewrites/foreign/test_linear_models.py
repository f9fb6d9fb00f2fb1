"""Linear models of other forms than scikit-learn's, held against onnxruntime's kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.passes.rewrites.applying import numbers
from tests.passes.rewrites.foreign.expanding import LEARNING, assert_expands, one_node, refusal
from tests.versions import needs

ROWS = numbers(7, 3)
ONE_ROW = {"coefficients": [0.5, -2.0, 1.0], "intercepts": [0.25], "classlabels_ints": [30, 10]}


@pytest.mark.parametrize(
    "transformation",
    [
        "NONE",
        pytest.param("LOGISTIC", marks=needs("onnxruntime", "1.28")),
    ],  # older ones leave it out
)
def test_one_score_decides_between_two_classes(transformation: str) -> None:
    attributes: dict[str, Any] = ONE_ROW | {"post_transform": transformation}
    proto = one_node(LEARNING, "LinearClassifier", [ROWS], ["label", "scores"], **attributes)
    assert_expands(proto, [ROWS], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("operand", [ROWS[:1], np.arange(6).reshape(2, 3)], ids=["one", "integers"])
def test_a_batch_of_one_and_of_integers(operand: np.ndarray) -> None:
    proto = one_node(LEARNING, "LinearClassifier", [operand], ["label", "scores"], **ONE_ROW)
    assert_expands(proto, [operand], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("operand", "attributes"),
    [
        (ROWS, {"coefficients": [0.5, -2.0, 1.0]}),
        (ROWS[0], {"coefficients": [0.5, -2.0, 1.0]}),
        (ROWS, {"coefficients": [1.0, 2, 3, 4, 5, 6], "targets": 2, "post_transform": "SOFTMAX"}),
        (ROWS, {"coefficients": [1.0, 2, 3], "intercepts": [0.5]}),
    ],
)
def test_regressors(operand: np.ndarray, attributes: dict[str, Any]) -> None:
    proto = one_node(LEARNING, "LinearRegressor", [operand], ["y"], **attributes)
    assert_expands(proto, [operand], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("operand", "attributes", "reason"),
    [
        (ROWS.astype(np.float64), {}, "its input has the type DOUBLE"),
        (ROWS, {"post_transform": "PROBIT", "targets": 3}, "its transformation PROBIT is no operator of ONNX's"),
        (ROWS, {"post_transform": "LOGISTIC"}, "onnxruntime leaves out its transformation LOGISTIC of one target"),
        (ROWS, {"targets": 0}, "it has 3 coefficients for 0 results"),
        (ROWS, {"targets": 2}, "it has 3 coefficients for 2 results"),
    ],
)  # fmt: skip
def test_regressors_that_stay(operand: np.ndarray, attributes: dict[str, Any], reason: str) -> None:
    attributes = {"coefficients": [0.5, -2.0, 1.0]} | attributes
    assert refusal(one_node(LEARNING, "LinearRegressor", [operand], ["y"], **attributes)) == reason


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"post_transform": "SOFTMAX"}, "its transformation SOFTMAX of one score is not ONNX's softmax"),
        ({"classlabels_ints": [1, 2, 3]}, "it has 1 rows of coefficients for 3 classes"),
        ({"classlabels_ints": None, "classlabels_strings": ["a", "b"]}, "its classes are texts, which only the CPU has"),
    ],
)  # fmt: skip
def test_classifiers_that_stay(attributes: dict[str, Any], reason: str) -> None:
    stated = {name: value for name, value in (ONE_ROW | attributes).items() if value is not None}
    proto = one_node(LEARNING, "LinearClassifier", [ROWS], ["label", "scores"], **stated)
    assert refusal(proto) == reason
