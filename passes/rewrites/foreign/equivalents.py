"""Operators of onnxruntime's domain that ONNX's default one has under a name of its own, or nearly so."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from samba_onnx.facts.domains import ONNXRUNTIME_DOMAIN
from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.foreign.rules import expands


@expands(ONNXRUNTIME_DOMAIN, "SampleOp")
def sample_op(draft: Draft) -> ir.Value:
    """The value itself: the operator is onnxruntime's example of one."""
    return draft.operand(0)


@expands(ONNXRUNTIME_DOMAIN, "Trilu")
def trilu(draft: Draft) -> ir.Value:
    """Upper or lower triangle of matrices, under the same name in ONNX."""
    value, diagonal = draft.operand(0), draft.optional(1)
    inputs = [value, *([] if diagonal is None else [diagonal])]
    return draft.op("Trilu", *inputs, upper=draft.integer("upper", 1))


@expands(ONNXRUNTIME_DOMAIN, "ExpandDims")
def expand_dims(draft: Draft) -> ir.Value:
    """A new axis of size one, which ONNX calls Unsqueeze."""
    # Constant, since the place of the axis decides the shape of the result.
    axis = int(draft.known_number(draft.operand(1), "its axis"))
    return draft.op("Unsqueeze", draft.operand(0), draft.integers(axis))


@expands(ONNXRUNTIME_DOMAIN, "GatherND")
def gather_nd(draft: Draft) -> ir.Value:
    """Slices by tuples of indices, which are int64 in ONNX."""
    indices = draft.operand(1)
    # int32 is allowed here and not in ONNX.
    if draft.dtype(indices) != ir.DataType.INT64:
        indices = draft.op("Cast", indices, to=ir.DataType.INT64)
    return draft.op("GatherND", draft.operand(0), indices)


@expands(ONNXRUNTIME_DOMAIN, "Pad")
def pad(draft: Draft) -> ir.Value:
    """Padding whose sizes are an operand, as in ONNX; sizes and value may come as one row."""
    # Constant, since the shape of the result depends on them.
    sizes = draft.known(draft.operand(1), "its sizes").numpy().ravel()
    inputs = [draft.operand(0), draft.integers(*(int(size) for size in sizes))]
    if draft.optional(2) is not None:
        number = draft.known_number(draft.operand(2), "its value")
        inputs.append(draft.scalar(float(number), draft.operand(0)))
    return draft.op("Pad", *inputs, mode=draft.text("mode", "constant"))


@expands(ONNXRUNTIME_DOMAIN, "Range")
def numbers_of_a_range(draft: Draft) -> ir.Value:
    """Numbers from a first one on; they are a step of one apart unless it is stated."""
    names = ("its start", "its limit", "its step")
    operands = [draft.optional(at) for at in range(3)]
    known = [
        None if operand is None else draft.known_number(operand, name)
        for operand, name in zip(operands, names, strict=True)
    ]
    # Only the step has a default.
    start, limit, step = known[0], known[1], 1 if known[2] is None else known[2]
    if start is None or limit is None:
        raise CannotExpandError("its start or its limit is left out")
    like = draft.operand(0)
    return draft.op("Range", *(draft.scalar(number, like) for number in (start, limit, step)))


@expands(ONNXRUNTIME_DOMAIN, "TorchEmbedding")
def torch_embedding(draft: Draft) -> ir.Value:
    """Rows of a table; the other operands are about gradients."""
    return draft.op("Gather", draft.operand(0), draft.operand(1))


@expands(ONNXRUNTIME_DOMAIN, "UnfoldTensor")
def unfold_tensor(draft: Draft) -> ir.Value:
    """Windows of ``size`` numbers along an axis, which stand along a new last one."""
    value = draft.operand(0)
    rank = draft.rank(value)
    axis = draft.axis(value, draft.integer("dim", -1))
    size, step = draft.integer("size"), draft.integer("step", 1)
    if size < 1 or step < 1:
        raise CannotExpandError(f"its windows of {size} numbers, {step} apart, are none")
    # Windows that would reach beyond the end are left out.
    starts = np.arange(0, draft.size(value, axis) - size + 1, step, dtype=np.int64)
    windows = draft.constant(starts[:, None] + np.arange(size, dtype=np.int64))
    gathered = draft.op("Gather", value, windows, axis=axis)
    # Gather puts the numbers of a window behind its place; they belong at the very end.
    order = [*range(axis + 1), *range(axis + 2, rank + 1), axis + 1]
    return gathered if axis == rank - 1 else draft.op("Transpose", gathered, perm=order)


@expands(ONNXRUNTIME_DOMAIN, "CDist")
def distances(draft: Draft) -> ir.Value:
    """Distances of the rows of two matrices, ``a² - 2ab + b²`` as onnxruntime computes them.

    Rounding may make a square negative, which is cut off.
    """
    metric = draft.text("metric", "sqeuclidean")
    if metric not in ("euclidean", "sqeuclidean"):
        raise CannotExpandError(f"its metric {metric} is none that onnxruntime computes")
    left, right = draft.operand(0), draft.operand(1)
    rows, columns = (
        draft.op("ReduceSum", draft.op("Mul", value, value), draft.integers(1), keepdims=1)
        for value in (left, right)
    )
    # By the same formula, and so with the same cancellation for points that are close.
    product = draft.op("MatMul", left, draft.op("Transpose", right, perm=[1, 0]))
    twice = draft.op("Mul", product, draft.scalar(2.0, left))
    squares = draft.op("Add", rows, draft.op("Transpose", columns, perm=[1, 0]))
    result = draft.op("Relu", draft.op("Sub", squares, twice))
    return result if metric == "sqeuclidean" else draft.op("Sqrt", result)


@expands(ONNXRUNTIME_DOMAIN, "BiasAdd")
def bias_add(draft: Draft) -> ir.Value:
    """Sum of a value, its bias and a residual."""
    total = draft.op("Add", draft.operand(0), draft.operand(1))
    return draft.op("Add", total, draft.operand(2))


@expands(ONNXRUNTIME_DOMAIN, "BiasDropout", "BitmaskBiasDropout")
def bias_dropout(draft: Draft) -> ir.Value:
    """A value with its bias and the residual; when it does not train, nothing is dropped."""
    _refuse_training(draft, 4)
    total = draft.op("Add", draft.operand(0), draft.operand(1))
    residual = draft.optional(2)
    return total if residual is None else draft.op("Add", total, residual)


@expands(ONNXRUNTIME_DOMAIN, "BitmaskDropout")
def bitmask_dropout(draft: Draft) -> ir.Value:
    """The value itself: when it does not train, nothing is dropped."""
    _refuse_training(draft, 2)
    return draft.operand(0)


def _refuse_training(draft: Draft, position: int) -> None:
    """Give up if a dropout may train, as its operand ``position`` says."""
    mode = draft.optional(position)
    # A computed mode may be true in some run; constant and false is inference for certain.
    if mode is not None and draft.known_number(mode, "its training mode"):
        raise CannotExpandError("it drops values at random, in training mode")
