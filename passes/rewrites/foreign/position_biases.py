"""Addends of attention that depend on how far apart two positions are."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from samba_onnx.facts.domains import ONNXRUNTIME_DOMAIN
from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.foreign.rules import expands


@expands(ONNXRUNTIME_DOMAIN, "RelativePositionBias")
def relative_position_bias(draft: Draft) -> ir.Value:
    """Numbers of a table by the distance of two positions, as T5 looks them up, ``[1, heads, queries, keys]``.

    The table's shape is ``[buckets, heads]``, but its numbers lie column by column.
    """
    table = draft.operand(0)
    if draft.rank(table) != 2:
        raise CannotExpandError(f"its table has {draft.rank(table)} dimensions, not 2")
    buckets, heads = draft.shape(table)
    # Lengths decide the shape of the result, so that they must be constant.
    queries, keys = (int(draft.known_number(draft.operand(at), "its length")) for at in (1, 2))
    largest, both = draft.count("max_distance"), bool(draft.integer("is_bidirectional"))
    # Fewer buckets or nearer ends would leave none for far distances: the logarithm below would be
    # of 1 or less.
    if buckets < 4 or largest <= buckets // (4 if both else 2) or min(queries, keys) < 1:
        raise CannotExpandError(
            f"its {buckets} buckets, {queries} and {keys} positions and distance of {largest} make none"
        )
    distances = np.arange(keys)[None, :] - np.arange(queries)[:, None]
    # Its numbers lie column by column, so that a Reshape is what reads them right, not a Transpose.
    rows = draft.op("Reshape", table, draft.integers(heads, buckets))
    places = draft.constant(_buckets(distances, buckets, largest, both=both))
    return draft.op("Unsqueeze", draft.op("Gather", rows, places, axis=1), draft.integers(0))


def _buckets(
    distances: NDArray[np.int64], buckets: int, largest: int, *, both: bool
) -> NDArray[np.int64]:
    """Return the bucket of each distance from a query to a key.

    Half of the buckets are of one distance each, the others of ever more up to ``largest``. Where only
    earlier keys count, later ones are in the first; else they have half of all for themselves.
    """
    first = np.zeros_like(distances)
    if both:
        buckets //= 2
        first = np.where(distances > 0, buckets, 0)
        sizes = np.abs(distances)
    else:
        sizes = np.maximum(-distances, 0)
    single = buckets // 2
    # In float32, as onnxruntime and transformers compute it: it decides at the ends of buckets.
    # At least 1: distance 0 has a bucket of its own, and no logarithm.
    ratios = np.log(np.maximum(sizes, 1).astype(np.float32) / np.float32(single))
    steps = ratios / np.float32(math.log(largest / single)) * np.float32(buckets - single)
    far = np.minimum(single + steps.astype(np.int64), buckets - 1)
    return first + np.where(sizes < single, sizes, far)
