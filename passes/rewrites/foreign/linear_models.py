"""Linear models of ONNX's domain for machine learning, and what is applied to their scores."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from samba_onnx.facts.domains import ML_DOMAIN
from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.foreign.rules import expands


def as_floats(draft: Draft, value: ir.Value) -> ir.Value:
    """Write an operand as float32, which these operators compute in.

    Raises:
        CannotExpandError: It has float64 numbers, which float32 would round, or no numbers.
    """
    dtype = draft.dtype(value)
    if dtype == ir.DataType.FLOAT:
        return value
    # float32 would round float64, and strings are no numbers.
    if dtype not in (ir.DataType.INT32, ir.DataType.INT64):
        raise CannotExpandError(f"its input has the type {dtype.name}")
    return draft.op("Cast", value, to=ir.DataType.FLOAT)


def transform(draft: Draft, scores: ir.Value) -> ir.Value:
    """Write the node's ``post_transform`` of scores.

    Raises:
        CannotExpandError: It is one that no operator of ONNX's computes.
    """
    name = draft.text("post_transform", "NONE")
    if name == "NONE":
        return scores
    if name == "LOGISTIC":
        return draft.op("Sigmoid", scores)
    if name == "SOFTMAX":
        return draft.op("Softmax", scores, axis=-1)
    # PROBIT and SOFTMAX_ZERO have no operator of their own.
    raise CannotExpandError(f"its transformation {name} is no operator of ONNX's")


def transform_targets(draft: Draft, scores: ir.Value, targets: int) -> ir.Value:
    """Write the ``post_transform`` of a regressor.

    Raises:
        CannotExpandError: It is one that no operator of ONNX's computes, or there is one target, of
            which onnxruntime returns the score as it is.
    """
    name = draft.text("post_transform", "NONE")
    if targets == 1 and name != "NONE":
        raise CannotExpandError(f"onnxruntime leaves out its transformation {name} of one target")
    return transform(draft, scores)


@expands(ML_DOMAIN, "LinearRegressor")
def linear_regressor(draft: Draft) -> ir.Value:
    """Products with the coefficients of each target, and its intercept."""
    targets = draft.integer("targets", 1)
    return transform_targets(draft, _products(draft, targets), targets)


def _products(draft: Draft, rows: int) -> ir.Value:
    coefficients = draft.floats("coefficients")
    if rows <= 0 or coefficients.size % rows:
        raise CannotExpandError(f"it has {coefficients.size} coefficients for {rows} results")
    # Transposed once at compile time, so that a run is a plain product.
    matrix = draft.constant(np.ascontiguousarray(coefficients.reshape(rows, -1).T))
    value = as_floats(draft, draft.operand(0))
    # A vector is a batch of one row.
    if draft.rank(draft.operand(0)) == 1:
        value = draft.op("Unsqueeze", value, draft.integers(0))
    product = draft.op("MatMul", value, matrix)
    intercepts = draft.floats("intercepts")
    return draft.op("Add", product, draft.constant(intercepts)) if intercepts.size else product


def class_labels(draft: Draft, name: str) -> np.ndarray:
    """Return the classes of a classifier.

    Args:
        draft: What is written into.
        name: The attribute that holds them as integers.

    Raises:
        CannotExpandError: They are texts.
    """
    labels = draft.list_of(name)
    if not labels:
        raise CannotExpandError("its classes are texts, which only the CPU has")
    return np.array(labels, np.int64)


@expands(ML_DOMAIN, "LinearClassifier")
def linear_classifier(draft: Draft) -> tuple[ir.Value, ir.Value]:
    """The class with the highest score, and all scores.

    With two classes and one row of coefficients the score is that of the second class, and what is left
    of it that of the first.
    """
    labels = class_labels(draft, "classlabels_ints")
    # ONNX states no number of rows; each has an intercept.
    rows = max(draft.floats("intercepts").size, 1)
    scores = _products(draft, rows)
    if rows == len(labels):
        # The class is chosen by untransformed scores: a sigmoid or softmax would not change which
        # is highest.
        best = draft.op("ArgMax", scores, axis=1, keepdims=0)
        return draft.op("Gather", draft.constant(labels), best), transform(draft, scores)
    if rows != 1 or len(labels) != 2:
        raise CannotExpandError(f"it has {rows} rows of coefficients for {len(labels)} classes")
    return binary(draft, scores, labels, total=1.0)


def binary(
    draft: Draft, scores: ir.Value, labels: np.ndarray, total: float, threshold: float = 0.0
) -> tuple[ir.Value, ir.Value]:
    """Write the label and the two scores of a classifier that computes one score.

    Args:
        draft: What is written into.
        scores: ``[batch, 1]``, of the second class.
        labels: The two classes.
        total: What both scores add up to where they are not transformed.
        threshold: What the score of the second class must be greater than, to be chosen.

    Raises:
        CannotExpandError: The scores are transformed by more than a sigmoid.
    """
    name = draft.text("post_transform", "NONE")
    if name not in ("LOGISTIC", "NONE"):
        raise CannotExpandError(f"its transformation {name} of one score is not ONNX's softmax")
    second = draft.op("Sigmoid", scores) if name == "LOGISTIC" else scores
    # A sigmoid of the negative score is one minus the sigmoid, whatever the raw scores add up to.
    whole = np.full(1, 1.0 if name == "LOGISTIC" else total, np.float32)
    first = draft.op("Sub", draft.constant(whole), second)
    both = draft.op("Concat", first, second, axis=1)
    limit = draft.constant(np.full(1, threshold, np.float32))
    chosen = draft.op("Squeeze", draft.op("Greater", scores, limit), draft.integers(1))
    return draft.op("Where", chosen, *(draft.constant(labels[at]) for at in (1, 0))), both
