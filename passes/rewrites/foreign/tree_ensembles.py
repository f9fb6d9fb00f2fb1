"""Small ensembles of decision trees, as products of matrices.

Every condition of a tree is computed, and a leaf is reached when all conditions on its way came out as they
do there: with a row of ones and minus ones per leaf, the product with the outcomes is the number of edges that
lead there on "true" exactly then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from samba_onnx.facts.domains import ML_DOMAIN
from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.foreign.linear_models import (
    as_floats,
    binary,
    class_labels,
    transform,
    transform_targets,
)
from samba_onnx.passes.rewrites.foreign.rules import expands

LARGEST = 1 << 22
"""Elements of the matrices of ways, for all trees together: beyond, the products cost more than they save."""

_COMPARE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "BRANCH_LEQ": "LessOrEqual",
        "BRANCH_LT": "Less",
        "BRANCH_GTE": "GreaterOrEqual",
        "BRANCH_GT": "Greater",
        "BRANCH_EQ": "Equal",
    }
)
"""The comparison that each mode of a node makes."""


@dataclass(frozen=True)
class _Trees:
    """All trees, padded to equal numbers of conditions and leaves."""

    features: NDArray[np.int64]
    """``[trees, conditions]``: the column that each condition looks at."""
    thresholds: NDArray[np.float32]
    """``[trees, conditions]``."""
    ways: NDArray[np.float32]
    """``[trees, conditions, leaves]``: 1 where a leaf's way goes on "true", -1 on "false", else 0."""
    trues: NDArray[np.float32]
    """``[trees, 1, leaves]``: edges on "true" of each leaf's way; -1 for padding, which is never reached."""
    weights: NDArray[np.float32]
    """``[trees, leaves, results]``."""
    mode: str


@expands(ML_DOMAIN, "TreeEnsembleRegressor")
def tree_ensemble_regressor(draft: Draft) -> ir.Value:
    """Sum or mean over trees of the weights of the leaves that a row reaches."""
    results = draft.integer("n_targets", 1)
    trees = _read(draft, "target", results)
    total = _sums(draft, trees)
    aggregate = draft.text("aggregate_function", "SUM")
    # The kernel divides by the number of trees, after it has summed them up.
    if aggregate == "AVERAGE":
        count = draft.constant(np.array(len(trees.features), np.float32))
        total = draft.op("Div", total, count)
    elif aggregate != "SUM":
        raise CannotExpandError(f"it takes the {aggregate.lower()} over trees")
    return transform_targets(draft, _based(draft, total), results)


@expands(ML_DOMAIN, "TreeEnsembleClassifier")
def tree_ensemble_classifier(draft: Draft) -> tuple[ir.Value, ir.Value]:
    """The class with the highest score, and all scores."""
    labels = class_labels(draft, "classlabels_int64s")
    if len(labels) == 2:
        return _binary(draft, labels)
    total = _based(draft, _sums(draft, _read(draft, "class", len(labels))))
    best = draft.op("ArgMax", total, axis=1, keepdims=0)
    return draft.op("Gather", draft.constant(labels), best), transform(draft, total)


def _binary(draft: Draft, labels: NDArray[np.int64]) -> tuple[ir.Value, ir.Value]:
    """Write a classifier whose leaves all score class 0, by which onnxruntime means the second.

    Scores of which none is negative are probabilities to it: the second class is chosen above one half,
    and the first has what is left of 1. Where both classes are scored it returns 0 or 1, whatever
    their labels are.
    """
    if set(draft.list_of("class_ids")) != {0}:
        raise CannotExpandError("it scores the second of two classes apart from the first")
    scores = _based(draft, _sums(draft, _read(draft, "class", 1)))
    if min(draft.list_of("class_weights")) < 0:
        return binary(draft, scores, labels, total=0.0)
    return binary(draft, scores, labels, total=1.0, threshold=0.5)


def _based(draft: Draft, total: ir.Value) -> ir.Value:
    base = draft.floats("base_values")
    # Base values of zero are left out: a node for nothing.
    return draft.op("Add", total, draft.constant(base)) if base.any() else total


def _sums(draft: Draft, trees: _Trees) -> ir.Value:
    """Return the weights of the reached leaves, summed over trees: ``[batch, results]``."""
    value = as_floats(draft, draft.operand(0))
    number, conditions = trees.features.shape
    # Columns are taken once for all conditions of all trees, so that one comparison does for them
    # all.
    columns = draft.op("Gather", value, draft.constant(trees.features.ravel()), axis=1)
    true = draft.op(_COMPARE[trees.mode], columns, draft.constant(trees.thresholds.ravel()))
    outcomes = draft.op("Cast", true, to=ir.DataType.FLOAT)
    apart = draft.op("Reshape", outcomes, draft.integers(-1, number, conditions))
    by_tree = draft.op("Transpose", apart, perm=[1, 0, 2])
    # Small whole numbers are exact in float32 in any order of sums, so that Equal is safe.
    reached = draft.op(
        "Equal",
        draft.op("MatMul", by_tree, draft.constant(trees.ways)),
        draft.constant(trees.trues),
    )
    chosen = draft.op("Cast", reached, to=ir.DataType.FLOAT)
    scores = draft.op("MatMul", chosen, draft.constant(trees.weights))
    return draft.op("ReduceSum", scores, draft.integers(0), keepdims=0)


def _read(draft: Draft, what: str, results: int) -> _Trees:
    """Return the trees that a node's attributes describe.

    Raises:
        CannotExpandError: They mix modes, treat missing numbers apart, have float64 thresholds, are too
            many, or are no trees; or their leaves score some results only, which onnxruntime tells
            from a score of zero.
    """
    if any(draft.list_of("nodes_missing_value_tracks_true")):
        raise CannotExpandError("its trees treat missing numbers apart")
    # float32 would round thresholds, and a row on one of them would go another way.
    for name in ("nodes_values", "base_values", f"{what}_weights"):
        if f"{name}_as_tensor" in draft.node.attributes:
            raise CannotExpandError(f"its {name} are given as a tensor of float64")
    modes = draft.list_of("nodes_modes")
    kinds = set(modes) - {"LEAF"}
    # One comparison is made for all conditions.
    if len(kinds) != 1 or not kinds <= _COMPARE.keys():
        raise CannotExpandError(f"its nodes compare in {len(kinds)} ways")
    try:
        reader = _Reader(draft, what)
    except (KeyError, ValueError) as error:
        raise CannotExpandError("its lists of nodes and weights do not agree") from error
    trees = [reader.tree(tree) for tree in dict.fromkeys(reader.tree_ids)]
    _check_scores(draft, reader, trees, what, results)
    conditions = max(len(tree.conditions) for tree in trees)
    leaves = max(len(tree.leaves) for tree in trees)
    if len(trees) * conditions * leaves > LARGEST:
        raise CannotExpandError(
            f"its {len(trees)} trees of up to {leaves} leaves are too large for products"
        )
    return _padded(reader, trees, (conditions, leaves, results), kinds.pop())


def _check_scores(
    draft: Draft, reader: _Reader, trees: list[_Tree], what: str, results: int
) -> None:
    """Give up if a row may reach leaves none of which scores a result, and that is not a score of 0.

    To onnxruntime a class without a score is none to choose, and a base value is added to scores only.
    """
    every = set(range(results))
    scores = [[reader.weights.get(row, {}).keys() for row, _ in tree.leaves] for tree in trees]
    if any(ids - every for tree in scores for ids in tree):
        raise CannotExpandError(f"its leaves score more than {results} results")
    # One tree whose every leaf scores a result is enough for that result to have a score.
    always = {
        result for result in every if any(all(result in ids for ids in tree) for tree in scores)
    }
    if always != every and (what == "class" or draft.floats("base_values").any()):
        raise CannotExpandError(f"its leaves do not score every {what}")


@dataclass(frozen=True)
class _Tree:
    """One tree, by rows of the node's attributes."""

    conditions: list[int]
    leaves: list[tuple[int, dict[int, bool]]]
    """Rows of the leaves, each with the conditions on its way and how they come out."""


class _Reader:
    """Reads the attributes of an ensemble."""

    def __init__(self, draft: Draft, what: str) -> None:
        self.tree_ids = draft.list_of("nodes_treeids")
        self.features = draft.list_of("nodes_featureids")
        self.values = draft.floats("nodes_values")
        self._modes = draft.list_of("nodes_modes")
        ids = list(zip(self.tree_ids, draft.list_of("nodes_nodeids"), strict=True))
        # Numbers of nodes begin anew in each tree.
        self._rows = {key: row for row, key in enumerate(ids)}
        self._ways = tuple(
            [
                # Leaves state targets that do not exist: -1 is an error only where a way leads
                # there.
                self._rows.get((tree, target), -1)
                for tree, target in zip(
                    self.tree_ids, draft.list_of(f"nodes_{way}nodeids"), strict=True
                )
            ]
            for way in ("true", "false")
        )
        self.weights: dict[int, dict[int, float]] = {}
        entries = (
            draft.list_of(f"{what}_{name}") for name in ("treeids", "nodeids", "ids", "weights")
        )
        for tree, node, result, weight in zip(*entries, strict=True):
            row = self.weights.setdefault(self._rows[tree, node], {})
            # A leaf may state several weights for one result, which add up.
            row[result] = row.get(result, 0.0) + weight

    def tree(self, tree: int) -> _Tree:
        """Return one tree; its first row is its root.

        Raises:
            CannotExpandError: A node is reached twice.
        """
        conditions: list[int] = []
        leaves: list[tuple[int, dict[int, bool]]] = []
        root = self.tree_ids.index(tree)
        waiting: list[tuple[int, dict[int, bool]]] = [(root, {})]
        while waiting:
            row, way = waiting.pop()
            # A row on its own way is a circle; more nodes than there are means that one is reached
            # twice.
            if row < 0 or row in way or len(leaves) + len(conditions) > len(self.tree_ids):
                raise CannotExpandError(f"its tree {tree} is no tree")
            if self._modes[row] == "LEAF":
                leaves.append((row, way))
                continue
            conditions.append(row)
            for outcome, targets in zip((True, False), self._ways, strict=True):
                # Each way has its own dictionary, since both outcomes of a condition go on from
                # here.
                waiting.append((targets[row], {**way, row: outcome}))
        return _Tree(conditions, leaves)


def _padded(reader: _Reader, trees: list[_Tree], sizes: tuple[int, int, int], mode: str) -> _Trees:
    """Return trees side by side, padded with conditions that decide nothing and leaves that no row reaches."""
    conditions, leaves, results = sizes
    number = len(trees)
    features = np.zeros((number, conditions), np.int64)
    thresholds = np.zeros((number, conditions), np.float32)
    ways = np.zeros((number, conditions, leaves), np.float32)
    # A padded leaf has no conditions, so that its product is 0, which never equals -1.
    trues = np.full((number, 1, leaves), -1, np.float32)
    weights = np.zeros((number, leaves, results), np.float32)
    for index, tree in enumerate(trees):
        columns = {row: column for column, row in enumerate(tree.conditions)}
        features[index, : len(columns)] = [reader.features[row] for row in tree.conditions]
        thresholds[index, : len(columns)] = reader.values[tree.conditions]
        for leaf, (row, way) in enumerate(tree.leaves):
            for condition, outcome in way.items():
                ways[index, columns[condition], leaf] = 1 if outcome else -1
            trues[index, 0, leaf] = sum(way.values())
            for result, weight in reader.weights.get(row, {}).items():
                weights[index, leaf, result] = weight
    return _Trees(features, thresholds, ways, trues, weights, mode)
