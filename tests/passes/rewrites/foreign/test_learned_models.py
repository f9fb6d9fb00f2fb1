"""Models that scikit-learn fits and skl2onnx writes, held against onnxruntime's kernels."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import pytest

from tests.passes.rewrites.foreign.expanding import (
    LEARNING,
    assert_computes,
    assert_expands,
    expanded,
    one_node,
    refusal,
)

skl2onnx = pytest.importorskip("skl2onnx")

ROWS, COLUMNS = 60, 5


def features() -> np.ndarray:
    """Return seeded features, some of them equal so that thresholds are met exactly."""
    return np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).round(1).astype(np.float32)


def classes(number: int) -> np.ndarray:
    """Return a class per row that depends on its features."""
    columns = features()
    return np.digitize(columns[:, 0] + columns[:, 1] ** 2, np.linspace(0.2, 2, number - 1))


def targets(number: int) -> np.ndarray:
    """Return numbers per row that depend on its features."""
    numbers = features() @ np.random.default_rng(1).standard_normal((COLUMNS, number))
    return numbers[:, 0] if number == 1 else numbers


def written(estimator: Any, wanted: np.ndarray) -> onnx.ModelProto:
    """Return a fitted estimator as skl2onnx writes it, for a batch as large as the data."""
    from sklearn.base import is_classifier

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(features(), wanted)
        options = {"zipmap": False} if is_classifier(estimator) else {}
        proto = skl2onnx.to_onnx(
            estimator, features(), target_opset={"": 21, "ai.onnx.ml": 3},
            options={id(estimator): options} if options else None,
        )  # fmt: skip
    proto.graph.input[0].name, old = "x0", proto.graph.input[0].name
    for node in proto.graph.node:
        node.input[:] = ["x0" if name == old else name for name in node.input]
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = ROWS
    return proto


def estimators() -> dict[str, tuple[Any, np.ndarray]]:
    """Return estimators by name, each with what it is fitted to."""
    from sklearn import ensemble, linear_model, svm, tree

    return {
        "linear regression": (linear_model.LinearRegression(), targets(1)),
        "linear regression of two": (linear_model.LinearRegression(), targets(2)),
        "logistic regression of two": (linear_model.LogisticRegression(), classes(2)),
        "logistic regression of three": (linear_model.LogisticRegression(), classes(3)),
        "support vectors": (svm.SVR(), targets(1)),
        "linear support vectors": (svm.SVR(kernel="linear"), targets(1)),
        "support vectors with a polynomial": (svm.SVR(kernel="poly", degree=2, coef0=0.5), targets(1)),
        "support vectors with a sigmoid": (svm.SVR(kernel="sigmoid", gamma=0.1), targets(1)),
        "support vectors of one class": (svm.OneClassSVM(nu=0.3), targets(1)),
        "support vectors of three classes": (svm.SVC(), classes(3)),
        "support vectors of four classes": (svm.SVC(kernel="poly", decision_function_shape="ovo"), classes(4)),
        "boosting of two classes": (ensemble.GradientBoostingClassifier(n_estimators=5, random_state=0), classes(2)),
        "tree": (tree.DecisionTreeRegressor(max_depth=4, random_state=0), targets(1)),
        "trees of two": (tree.DecisionTreeRegressor(random_state=0), targets(2)),
        "forest": (ensemble.RandomForestRegressor(8, random_state=0), targets(1)),
        "boosting": (ensemble.GradientBoostingRegressor(n_estimators=9, random_state=0), targets(1)),
        "tree of classes": (tree.DecisionTreeClassifier(max_depth=3, random_state=0), classes(3)),
        "forest of classes": (ensemble.RandomForestClassifier(7, max_depth=4, random_state=0), classes(3)),
        "boosting of classes": (ensemble.GradientBoostingClassifier(n_estimators=5, random_state=0), classes(3)),
    }  # fmt: skip


@pytest.mark.parametrize("name", sorted(estimators()))
def test_estimators(name: str) -> None:
    estimator, wanted = estimators()[name]
    assert_expands(written(estimator, wanted), [features()], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("estimator", ["SVC(probability=True)", "SVC() of two classes"])
def test_support_vectors_whose_scores_are_found_by_iteration_or_of_two_stay_whole(
    estimator: str,
) -> None:
    from sklearn.svm import SVC

    two = estimator.endswith("classes")
    machine = SVC() if two else SVC(probability=True, random_state=0)
    model, notes = expanded(written(machine, classes(2 if two else 3)))
    assert "SVMClassifier" in [node.op_type for node in model.graph]
    assert "SVMClassifier is not expanded: it" in " ".join(notes)


def test_an_ensemble_beyond_the_limit_stays_whole() -> None:
    from sklearn.ensemble import RandomForestRegressor

    rows = np.random.default_rng(0).standard_normal((4000, COLUMNS)).astype(np.float32)
    forest = RandomForestRegressor(4, random_state=0).fit(rows, rows[:, 0] * rows[:, 1])
    proto = skl2onnx.to_onnx(forest, rows[:1], target_opset={"": 21, "ai.onnx.ml": 3})
    model, notes = expanded(proto)
    assert [node.op_type for node in model.graph] == ["TreeEnsembleRegressor"]
    assert "are too large for products" in " ".join(notes)


@pytest.mark.parametrize(
    ("shape", "kernel", "reason"),
    [
        ((2, 3), "COSINE", "its kernel COSINE is none of ONNX's"),
        ((3,), "RBF", "its input is no batch of features"),
    ],
)
def test_support_vectors_of_no_batch_or_another_kernel_stay(
    shape: tuple[int, ...], kernel: str, reason: str
) -> None:
    proto = one_node(
        LEARNING, "SVMRegressor", [np.zeros(shape, np.float32)], ["y"], kernel_type=kernel,
        n_supports=1, support_vectors=[1.0, 2.0, 3.0], coefficients=[1.0], rho=[0.0],
        kernel_params=[0.5, 0.0, 3.0],
    )  # fmt: skip
    assert refusal(proto) == reason


def _one_vector(**attributes: Any) -> onnx.ModelProto:
    stated: dict[str, Any] = {
        "n_supports": 1, "support_vectors": [1.0, 2.0, 3.0], "coefficients": [2.0], "rho": [0.25]
    }  # fmt: skip
    rows = np.zeros((2, 3), np.float32)
    stated = {name: item for name, item in (stated | attributes).items() if item != []}
    return one_node(LEARNING, "SVMRegressor", [rows], ["y"], **stated)


def test_a_kernel_that_is_not_named_is_linear() -> None:
    rows = np.arange(6, dtype=np.float32).reshape(2, 3) / 3
    assert_expands(_one_vector(kernel_params=[0.5, 0.25, 2.0]), [rows])
    # onnxruntime wants parameters that a linear kernel does not have
    expected = 2 * rows @ np.array([[1], [2], [3]], np.float32) + np.float32(0.25)
    assert_computes(_one_vector(), [rows], expected)


def test_a_score_of_zero_is_outside_of_one_class() -> None:
    """Scores of exactly -0.5, 0 and 0.5, as binary fractions add up."""
    rows = np.array([[-0.25, 0, 0], [0.125, 0, -0.125], [0, 0.125, 0], [0, 0, 0]], np.float32)
    proto = one_node(
        LEARNING, "SVMRegressor", [rows], ["y"], one_class=1, kernel_params=[0.5, 0.0, 3.0],
        n_supports=1, support_vectors=[1.0, 2.0, 3.0], coefficients=[2.0], rho=[0.0],
    )  # fmt: skip
    assert set((rows @ np.float32([2, 4, 6])).tolist()) == {-0.5, 0.0, 0.5}
    assert_expands(proto, [rows], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"kernel_type": "POLY"}, "its kernel POLY has 0 parameters, not 3"),
        ({"kernel_type": "RBF", "kernel_params": [0.5]}, "its kernel RBF has 1 parameters, not 3"),
        ({"support_vectors": []}, "it has 0 numbers for 1 support vectors"),
        ({"n_supports": 2, "coefficients": [1.0, 2.0]}, "it has 3 numbers for 2 support vectors"),
    ],
)
def test_support_vectors_that_are_not_stated_in_full_stay(
    attributes: dict[str, Any], reason: str
) -> None:
    assert refusal(_one_vector(**attributes)) == reason
