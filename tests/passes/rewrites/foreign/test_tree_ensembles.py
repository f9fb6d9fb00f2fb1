"""Trees that no library had to write, held against onnxruntime's kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from tests.passes.rewrites.applying import numbers
from tests.passes.rewrites.foreign.expanding import LEARNING, assert_expands, one_node, refusal

ROWS = numbers(9, 2).round(1)


def attributes(prefix: str, ids: list[int], weights: list[float]) -> dict[str, Any]:
    """Return two trees: one asks twice, and its leaves are nodes 2, 3 and 4; one is a stump."""
    return {
        "nodes_treeids": [0, 0, 0, 0, 0, 1, 1, 1],
        "nodes_nodeids": [0, 1, 2, 3, 4, 0, 1, 2],
        "nodes_featureids": [0, 1, 0, 0, 0, 1, 0, 0],
        "nodes_values": [0.1, -0.3, 0.0, 0.0, 0.0, 0.4, 0.0, 0.0],
        "nodes_modes": [*2 * ["BRANCH_LEQ"], *3 * ["LEAF"], "BRANCH_LEQ", *2 * ["LEAF"]],
        "nodes_truenodeids": [1, 3, 0, 0, 0, 1, 0, 0],
        "nodes_falsenodeids": [2, 4, 0, 0, 0, 2, 0, 0],
        f"{prefix}_treeids": [0, 0, 0, 1, 1],
        f"{prefix}_nodeids": [2, 3, 4, 1, 2],
        f"{prefix}_ids": ids,
        f"{prefix}_weights": weights,
    }


def regressor(**changes: Any) -> onnx.ModelProto:
    stated = attributes("target", [0] * 5, [1.0, -2.0, 0.5, 0.25, 3.0]) | {"n_targets": 1} | changes
    stated = {name: value for name, value in stated.items() if value is not None}
    return one_node(LEARNING, "TreeEnsembleRegressor", [ROWS], ["y"], **stated)


def classifier(weights: list[float], ids: list[int], **changes: Any) -> onnx.ModelProto:
    stated = attributes("class", ids, weights) | {"classlabels_int64s": [30, 10]} | changes
    stated = {name: value for name, value in stated.items() if value is not None}
    return one_node(LEARNING, "TreeEnsembleClassifier", [ROWS], ["label", "scores"], **stated)


def dense(prefix: str) -> dict[str, Any]:
    """Return a weight of every leaf for each of two results."""
    return {
        f"{prefix}_treeids": [0, 0, 0, 0, 0, 0, 1, 1, 1, 1],
        f"{prefix}_nodeids": [2, 2, 3, 3, 4, 4, 1, 1, 2, 2],
        f"{prefix}_ids": 5 * [0, 1],
        f"{prefix}_weights": [1.0, 2.0, -0.5, 0.25, 1.0, 0.0, -3.0, 1.0, 0.5, 0.125],
    }


def modes(name: str) -> list[str]:
    return [name, name, *3 * ["LEAF"], name, *2 * ["LEAF"]]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"base_values": [0.75]},
        {"aggregate_function": "AVERAGE"},
        {"n_targets": 2, "target_ids": [0, 1, 1, 0, 1], "post_transform": "SOFTMAX"},
        {"n_targets": 2, **dense("target"), "base_values": [0.5, -1.0]},
        *({"nodes_modes": modes(f"BRANCH_{name}")} for name in ("LT", "GTE", "GT", "EQ")),
    ],
)
def test_regressors(changes: dict[str, Any]) -> None:
    assert_expands(regressor(**changes), [ROWS])


@pytest.mark.parametrize("transformation", ["NONE", "LOGISTIC"])
@pytest.mark.parametrize("base", [{}, {"base_values": [0.5]}])
def test_one_score_decides_between_two_classes(transformation: str, base: dict[str, Any]) -> None:
    weights = [1.0, -2.0, 0.5, 0.25, 1.0]
    assert_expands(classifier(weights, [0] * 5, post_transform=transformation, **base), [ROWS])


@pytest.mark.parametrize("transformation", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_scores_of_three_classes(transformation: str) -> None:
    # The first tree scores two classes, the second the third and, on one side, the first.
    changes = {
        "classlabels_int64s": [30, 10, 20],
        "class_treeids": [0, 0, 0, 0, 0, 0, 1, 1, 1],
        "class_nodeids": [2, 2, 3, 3, 4, 4, 1, 2, 2],
        "class_ids": [0, 1, 0, 1, 0, 1, 2, 2, 0],
        "class_weights": [1.0, 2.0, -0.5, 0.25, 1.0, 0.0, -3.0, 1.5, 0.5],
    }
    assert_expands(classifier([], [], post_transform=transformation, **changes), [ROWS])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"post_transform": "LOGISTIC"}, "onnxruntime leaves out its transformation LOGISTIC of one target"),
        ({"aggregate_function": "MAX"}, "it takes the max over trees"),
        ({"nodes_missing_value_tracks_true": [1] + 7 * [0]}, "its trees treat missing numbers apart"),
        ({"nodes_modes": ["BRANCH_LT", *modes("BRANCH_LEQ")[1:]]}, "its nodes compare in 2 ways"),
        ({"nodes_modes": modes("BRANCH_NEQ")}, "its nodes compare in 1 ways"),
        ({"nodes_modes": 8 * ["LEAF"]}, "its nodes compare in 0 ways"),
        ({"nodes_truenodeids": [1, 0, 0, 0, 0, 1, 0, 0]}, "its tree 0 is no tree"),
        ({"nodes_truenodeids": [1, 3, 0, 0, 0, 9, 0, 0]}, "its tree 1 is no tree"),
        ({"n_targets": 2, "base_values": [1.0, 0.0]}, "its leaves do not score every target"),
        ({"target_nodeids": [2, 3, 4, 1, 9]}, "its lists of nodes and weights do not agree"),
        ({"target_ids": [0, 0, 0]}, "its lists of nodes and weights do not agree"),
        ({"nodes_nodeids": [0, 1, 2, 3, 4, 0, 1]}, "its lists of nodes and weights do not agree"),
        ({"nodes_truenodeids": [1, 3, 0, 0, 0, 1, 0]}, "its lists of nodes and weights do not agree"),
        *(
            ({f"{name}_as_tensor": onnx.numpy_helper.from_array(np.zeros(8))}, f"its {name} are given as a tensor of float64")
            for name in ("nodes_values", "base_values", "target_weights")
        ),
    ],
)  # fmt: skip
def test_regressors_that_stay(changes: dict[str, Any], reason: str) -> None:
    assert refusal(regressor(**changes)) == reason


def test_nodes_that_are_reached_again_and_again_are_no_tree() -> None:
    """Every node leads to the next one on both sides: four nodes, and eight ways to the leaf."""
    proto = one_node(
        LEARNING, "TreeEnsembleRegressor", [ROWS], ["y"], n_targets=1,
        nodes_treeids=[0] * 4, nodes_nodeids=[0, 1, 2, 3], nodes_featureids=[0] * 4,
        nodes_values=[0.5, 0.25, 0.125, 0.0], nodes_modes=[*3 * ["BRANCH_LEQ"], "LEAF"],
        nodes_truenodeids=[1, 2, 3, 0], nodes_falsenodeids=[1, 2, 3, 0],
        target_treeids=[0], target_nodeids=[3], target_ids=[0], target_weights=[1.0],
    )  # fmt: skip
    assert refusal(proto) == "its tree 0 is no tree"


@pytest.mark.parametrize("transformation", ["NONE", "LOGISTIC"])
@pytest.mark.parametrize("base", [{}, {"base_values": [0.125]}, {"base_values": [-2.0]}])
@pytest.mark.parametrize(
    "weights", [[1.0] * 5, [0.0, 2.0, 0.5, 0.25, 1.0], [0.25, 0.5, 0.125, 0.25, 0.0], [0.0] * 5]
)
def test_scores_that_are_never_negative_are_probabilities(
    weights: list[float], base: dict[str, Any], transformation: str
) -> None:
    """The third has sums of exactly one half, which choose the first class."""
    assert_expands(classifier(weights, [0] * 5, post_transform=transformation, **base), [ROWS])


@pytest.mark.parametrize("transformation", ["PROBIT", "SOFTMAX", "SOFTMAX_ZERO"])
def test_probabilities_that_are_transformed_otherwise_stay(transformation: str) -> None:
    reason = f"its transformation {transformation} of one score is not ONNX's softmax"
    assert refusal(classifier([1.0] * 5, [0] * 5, post_transform=transformation)) == reason


def test_a_class_without_weights_stays() -> None:
    reason = "its lists of nodes and weights do not agree"
    assert refusal(classifier([1.0] * 5, [0] * 5, class_weights=None)) == reason


@pytest.mark.parametrize(
    ("labels", "ids", "reason"),
    [
        ([0, 1], [1] * 5, "it scores the second of two classes apart from the first"),
        ([0, 1], [0, 1, 1, 0, 1], "it scores the second of two classes apart from the first"),
        ([0, 1, 2], [0, 0, 0, 1, 2], "its leaves do not score every class"),
        ([0, 1, 2], [0, 1, 3, 0, 2], "its leaves score more than 3 results"),
    ],
)
def test_classes_without_a_score_stay(labels: list[int], ids: list[int], reason: str) -> None:
    proto = classifier([1.0, -2.0, 0.5, 0.25, 1.0], ids, classlabels_int64s=labels)
    assert refusal(proto) == reason
