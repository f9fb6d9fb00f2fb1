"""Running sums in other orders, triangles and rows of one: constants and comparisons do what is missing.

Evidence: the vendor's table has ``cumsum`` without an exclusive and a reverse form, ``masked_fill`` for selection, and
comparison of integers in the model zoo. Running sums are added in the order in which onnxruntime adds them; all else
is selected, not computed. Results are equal to the bit.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.legalisation.bounds import refuse_large
from samba_onnx.passes.rewrites.legalisation.rules import legalises


@legalises(
    "CumSum",
    name="cumsum",
    makes="a CumSum between two Gathers for the reverse order, of a shifted operand for the exclusive one",
    needs="a constant axis of static size",
)
def cumsum(draft: Draft) -> ir.Value:
    """Write a CumSum that is exclusive or reverse."""
    value = draft.operand(0)
    rank = draft.rank(value)
    axis = int(draft.known(draft.operand(1), "its axis").numpy().item()) % rank
    size, reverse = draft.size(value, axis), draft.integer("reverse")
    exclusive = draft.integer("exclusive")
    refuse_large(size)
    # A plain CumSum has no order that could be changed: its type or rank is what the target
    # refuses.
    if not reverse and not exclusive:
        raise CannotExpandError("it is refused for another reason than its order")
    # The last element first, so that the sum from the end is one from the beginning.
    backwards = draft.constant(np.arange(size - 1, -1, -1, dtype=np.int64))
    if reverse:
        value = draft.op("Gather", value, backwards, axis=axis)
    # An exclusive sum is the sum of everything before: zero goes in front, and the last element
    # drops out.
    if exclusive:
        axes = draft.integers(axis)
        value = draft.op("Slice", value, draft.integers(0), draft.integers(size - 1), axes)
        value = draft.op("Pad", value, draft.integers(1, 0), None, axes)
    value = draft.op("CumSum", value, draft.constant(np.array(axis, np.int64)))
    # Back into the order of the operand.
    return draft.op("Gather", value, backwards, axis=axis) if reverse else value


@legalises(
    "Trilu",
    name="trilu",
    makes="a Where with a triangle, of truth values an And: constant, or compared at run time where the diagonal is computed",
    needs="static sizes of the last two axes",
)
def trilu(draft: Draft) -> ir.Value:
    """Write a Trilu."""
    value, diagonal = draft.operand(0), draft.optional(1)
    rows, columns = draft.size(value, -2), draft.size(value, -1)
    upper = draft.integer("upper", 1)
    refuse_large(rows * columns)
    # An element lies on or above a diagonal if its column minus its row is at least the diagonal's
    # number.
    distance = np.arange(columns, dtype=np.int64) - np.arange(rows, dtype=np.int64)[:, None]
    number = draft.constant(np.array(0, np.int64)) if diagonal is None else diagonal
    # ONNX allows a vector of one here, which would broadcast the comparison to a dimension more.
    if diagonal is not None and draft.rank(diagonal) > 0:
        number = draft.op("Reshape", diagonal, draft.integers())
    comparison = "GreaterOrEqual" if upper else "LessOrEqual"
    kept = draft.op(comparison, draft.constant(distance), number)
    if draft.dtype(value) == ir.DataType.BOOL:
        return draft.op("And", kept, value)  # onnxruntime has no Where of truth values
    return draft.op("Where", kept, value, draft.scalar(0, value))


@legalises(
    "OneHot",
    name="onehot",
    makes="comparison with the numbers of the classes, and a Where",
    needs="a constant depth",
)
def one_hot(draft: Draft) -> ir.Value:
    """Write a OneHot."""
    indices, values = draft.operand(0), draft.operand(2)
    depth = int(draft.known(draft.operand(1), "its depth").numpy().item())
    refuse_large(depth)
    rank = draft.rank(indices)
    axis = draft.integer("axis", -1) % (rank + 1)
    dtype = draft.dtype(indices)
    # A float that is no whole number is no class: a Cast would make it one.
    if dtype.is_integer() and dtype != ir.DataType.INT64:
        indices, dtype = draft.op("Cast", indices, to=ir.DataType.INT64), ir.DataType.INT64
    spread = draft.op("Unsqueeze", indices, draft.integers(axis))
    classes = np.arange(depth).astype(dtype.numpy()).reshape([-1] + [1] * (rank - axis))
    is_class = draft.op("Equal", spread, draft.constant(classes))
    # A negative index counts from the end, so that every class has a second number.
    from_end = draft.op("Equal", spread, draft.constant((classes - depth).astype(dtype.numpy())))
    off = draft.op("Gather", values, draft.constant(np.array(0, np.int64)), axis=0)
    on = draft.op("Gather", values, draft.constant(np.array(1, np.int64)), axis=0)
    return draft.op("Where", draft.op("Or", is_class, from_end), on, off)
