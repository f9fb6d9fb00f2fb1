"""Support vector machines of ONNX's domain for machine learning."""

from __future__ import annotations

import itertools

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from samba_onnx.facts.domains import ML_DOMAIN
from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.foreign.linear_models import as_floats, class_labels
from samba_onnx.passes.rewrites.foreign.rules import expands


@expands(ML_DOMAIN, "SVMRegressor")
def svm_regressor(draft: Draft) -> ir.Value:
    """A sum over the support vectors, each by its kernel and coefficient, and ``rho``.

    Without support vectors there is one coefficient per feature. A model of one class returns the sign.
    """
    draft.refuse_attributes(post_transform="NONE")
    coefficients, rho = draft.floats("coefficients"), draft.floats("rho")
    count = draft.integer("n_supports")
    if rho.size != 1 or not coefficients.size or (count and coefficients.size != count):
        raise CannotExpandError(f"it has {coefficients.size} coefficients and {rho.size} rho")
    value = _batch(draft)
    kernels = _kernels(draft, value, _vectors(draft, count)) if count else value
    scores = _weighted(draft, kernels, coefficients[:, None], rho)
    if not draft.integer("one_class"):
        return scores
    zero = draft.constant(np.zeros(1, np.float32))
    signs = [draft.constant(np.array([sign], np.float32)) for sign in (1, -1)]
    return draft.op("Where", draft.op("Greater", scores, zero), *signs)


@expands(ML_DOMAIN, "SVMClassifier")
def svm_classifier(draft: Draft) -> tuple[ir.Value, ir.Value]:
    """A score for every pair of classes; each pair votes for one of them, and most votes win.

    Only for three classes and more, and without probabilities, which are found by iteration.
    """
    draft.refuse_attributes(post_transform="NONE", prob_a=[], prob_b=[])
    labels = class_labels(draft, "classlabels_ints")
    sizes = draft.list_of("vectors_per_class")
    # Two classes are scored by rules of their own in onnxruntime.
    if len(labels) < 3 or len(sizes) != len(labels):
        raise CannotExpandError("it has two classes, or no support vectors")
    pairs = list(itertools.combinations(range(len(labels)), 2))
    rho = draft.floats("rho")
    coefficients = draft.floats("coefficients")
    if rho.size != len(pairs) or coefficients.size != (len(labels) - 1) * sum(sizes):
        raise CannotExpandError(f"it has {coefficients.size} coefficients and {rho.size} rho")
    weights = _pair_weights(coefficients.reshape(len(labels) - 1, -1), sizes, pairs)
    kernels = _kernels(draft, _batch(draft), _vectors(draft, sum(sizes)))
    scores = _weighted(draft, kernels, weights, rho)
    zero = draft.constant(np.zeros(1, np.float32))
    first = draft.op("Cast", draft.op("Greater", scores, zero), to=ir.DataType.FLOAT)
    votes = np.zeros((len(pairs), len(labels)), np.float32)
    for place, (one, other) in enumerate(pairs):
        votes[place, one], votes[place, other] = 1, -1
    # Each pair votes for its second class, until its score moves the vote to the first one.
    behind = np.bincount([other for _, other in pairs], minlength=len(labels)).astype(np.float32)
    best = draft.op("ArgMax", _weighted(draft, first, votes, behind), axis=1, keepdims=0)
    return draft.op("Gather", draft.constant(labels), best), scores


def _batch(draft: Draft) -> ir.Value:
    """Return the features, with a dimension for the batch."""
    if draft.rank(draft.operand(0)) != 2:
        raise CannotExpandError("its input is no batch of features")
    return as_floats(draft, draft.operand(0))


def _vectors(draft: Draft, count: int) -> NDArray[np.float32]:
    vectors = draft.floats("support_vectors")
    if not vectors.size or vectors.size % count:
        raise CannotExpandError(f"it has {vectors.size} numbers for {count} support vectors")
    return vectors.reshape(count, -1)


def _kernels(draft: Draft, value: ir.Value, vectors: NDArray[np.float32]) -> ir.Value:
    """Write the kernel of each row with each support vector, ``[batch, vectors]``."""
    kind, parameters = draft.text("kernel_type", "LINEAR"), draft.floats("kernel_params")
    if kind != "LINEAR" and parameters.size != 3:
        raise CannotExpandError(f"its kernel {kind} has {parameters.size} parameters, not 3")
    gamma, shift, degree = map(float, parameters) if parameters.size == 3 else (0.0, 0.0, 0.0)
    if kind == "RBF":
        # Of the differences: the difference of squares would lose what neighbours differ by.
        rows = draft.op("Unsqueeze", value, draft.integers(1))
        apart = draft.op("Sub", rows, draft.constant(vectors))
        squares = draft.op("ReduceSumSquare", apart, draft.integers(2), keepdims=0)
        return draft.op("Exp", draft.op("Mul", squares, _number(draft, -gamma)))
    products = draft.op("MatMul", value, draft.constant(np.ascontiguousarray(vectors.T)))
    if kind == "LINEAR":
        return products
    scaled = draft.op("Mul", products, _number(draft, gamma))
    moved = draft.op("Add", scaled, _number(draft, shift))
    if kind == "POLY":
        return draft.op("Pow", moved, _number(draft, degree))
    if kind == "SIGMOID":
        return draft.op("Tanh", moved)
    raise CannotExpandError(f"its kernel {kind} is none of ONNX's")


def _weighted(
    draft: Draft, value: ir.Value, weights: NDArray[np.float32], rho: NDArray[np.float32]
) -> ir.Value:
    product = draft.op("MatMul", value, draft.constant(np.ascontiguousarray(weights)))
    return draft.op("Add", product, draft.constant(rho))


def _pair_weights(
    coefficients: NDArray[np.float32], sizes: list[int], pairs: list[tuple[int, int]]
) -> NDArray[np.float32]:
    """Return the weight of each support vector in the score of each pair of classes.

    Args:
        coefficients: The weight of a vector against each class that is not its own, ``[classes - 1, vectors]``.
        sizes: How many support vectors each class has; they follow each other.
        pairs: The places of the classes of each pair.
    """
    starts = np.concatenate([[0], np.cumsum(sizes)])
    weights = np.zeros((coefficients.shape[1], len(pairs)), np.float32)
    for place, (one, other) in enumerate(pairs):
        of_one = slice(starts[one], starts[one + 1])
        of_other = slice(starts[other], starts[other + 1])
        # A vector has coefficients against all classes but its own, which closes the gap behind it
        # by one.
        weights[of_one, place] = coefficients[other - 1, of_one]
        weights[of_other, place] = coefficients[one, of_other]
    return weights


def _number(draft: Draft, number: float) -> ir.Value:
    return draft.constant(np.array(number, np.float32))
