"""The largest elements of an axis, by comparing each with each.

Evidence: comparison, selection, sums and ArgMax of one axis are in the vendor's table and the model zoo; TopK itself
is known to run for one row only. The rank of an element is the number of those that come before it: larger ones,
and equal ones of lower index, which is ONNX's order. Elements are taken, not computed with: results are equal to the
bit. NaN has no order, and where it stands ONNX says nothing.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.legalisation.bounds import refuse_large
from samba_onnx.passes.rewrites.legalisation.rules import legalises

# Comparing each with each takes the square of the elements: 65,536 comparisons for a row of 256.
LONGEST = 256
"""Elements of an axis that are compared with each other at most."""


@legalises(
    "TopK",
    name="topk",
    makes="comparison of each element with each, ranks, ArgMax and GatherElements",
    needs=f"a constant K, and an axis of at most {LONGEST} elements",
)
def topk(draft: Draft) -> list[ir.Value]:
    """Write a TopK."""
    data = draft.operand(0)
    rank = draft.rank(data)
    axis = draft.integer("axis", -1) % rank
    count = int(draft.known(draft.operand(1), "its K").numpy().item())
    size = draft.size(data, axis)
    if size > LONGEST:
        raise CannotExpandError(f"its axis has {size:,} elements, more than {LONGEST}")
    if not 0 < count <= size:
        raise CannotExpandError(f"it takes {count:,} of {size:,} elements")
    # Ranks are counted along the last axis; another one goes there first and comes back at the end.
    last = [*(a for a in range(rank) if a != axis), axis]
    value = data if axis == rank - 1 else draft.op("Transpose", data, perm=last)
    ranks = _ranks(draft, value, size, rank, largest=bool(draft.integer("largest", 1)))
    places = draft.constant(np.arange(count, dtype=np.int64)[:, None])
    is_there = draft.op("Equal", draft.op("Unsqueeze", ranks, draft.integers(rank - 1)), places)
    # ArgMax of floats is what the vendor documents; truth values have none in ONNX.
    number = draft.op("Cast", is_there, to=ir.DataType.FLOAT)
    indices = draft.op("ArgMax", number, axis=rank, keepdims=0)
    values = draft.op("GatherElements", value, indices, axis=rank - 1)
    if axis != rank - 1:
        back = [last.index(a) for a in range(rank)]
        values = draft.op("Transpose", values, perm=back)
        indices = draft.op("Transpose", indices, perm=back)
    return [values, indices]


def _ranks(draft: Draft, value: ir.Value, size: int, rank: int, *, largest: bool) -> ir.Value:
    """Return how many elements come before each along the last axis."""
    one = draft.op("Unsqueeze", value, draft.integers(rank))
    other = draft.op("Unsqueeze", value, draft.integers(rank - 1))
    better = draft.op("Greater" if largest else "Less", other, one)
    # np.tri without its diagonal marks elements of lower index, which go first among equals.
    before = draft.constant(np.tri(size, k=-1, dtype=np.bool_))
    tie = draft.op("And", draft.op("Equal", other, one), before)
    wins = draft.op("Cast", draft.op("Or", better, tie), to=ir.DataType.INT64)
    return draft.op("ReduceSum", wins, draft.integers(rank), keepdims=0)


@legalises(
    "ArgMax",
    "ArgMin",
    name="argmax",
    makes="the extreme, comparison with it, and ArgMax; in reverse order for the last of equal ones",
    needs="a static size of the axis",
)
def argmax(draft: Draft) -> ir.Value:
    """Write an ArgMax or ArgMin of integers, or one that wants the last of equal elements."""
    data = draft.operand(0)
    axis = draft.integer("axis", 0) % draft.rank(data)
    size, last = draft.size(data, axis), draft.integer("select_last_index")
    refuse_large(size)
    if last:
        # ArgMax takes the first of equal elements, so that the last one is the first in reverse
        # order.
        places = np.arange(size - 1, -1, -1, dtype=np.int64)
        data = draft.op("Gather", data, draft.constant(places), axis=axis)
    operator = draft.node.op_type
    # ArgMax of integers is not in the vendor's table: the elements that equal the extreme become
    # ones.
    if not draft.dtype(draft.operand(0)).is_floating_point():
        extreme = "ReduceMax" if operator == "ArgMax" else "ReduceMin"
        best = draft.op(extreme, data, draft.integers(axis), keepdims=1)
        data = draft.op("Cast", draft.op("Equal", data, best), to=ir.DataType.FLOAT)
        # The ones are the largest, whether the extreme was the largest or the smallest.
        operator = "ArgMax"
    elif not last:
        raise CannotExpandError("it is refused for another reason than its type and order")
    index = draft.op(operator, data, axis=axis, keepdims=draft.integer("keepdims", 1))
    return draft.op("Sub", draft.constant(np.array(size - 1)), index) if last else index
