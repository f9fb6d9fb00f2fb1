"""Tables that give a number for a number."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from samba_onnx.facts.domains import ML_DOMAIN
from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.foreign.rules import expands

_LARGEST = 1024
"""Rows of a table: every number is compared with each."""


@expands(ML_DOMAIN, "LabelEncoder")
def label_encoder(draft: Draft) -> ir.Value:
    """The value that stands beside a key, or the default."""
    keys, values, default = _table(draft)
    if not 0 < len(keys) <= _LARGEST or len(keys) != len(values):
        raise CannotExpandError(f"its table has {len(keys)} keys and {len(values)} values")
    # NaN equals no key, and of equal keys the first one would have to win.
    if np.isnan(keys.astype(np.float64)).any() or len(set(keys.tolist())) < len(keys):
        raise CannotExpandError("its keys are not distinct numbers")
    wide = draft.op("Unsqueeze", draft.operand(0), draft.integers(-1))
    equal = draft.op("Equal", wide, draft.constant(keys))
    # Places start at one, so that zero, where no key is equal, is the default in front of the
    # values.
    counted = draft.op("Cast", equal, to=ir.DataType.INT64)
    # Keys are distinct, so at most one is equal: the sum of their places is its place.
    places = draft.constant(np.arange(1, len(keys) + 1, dtype=np.int64))
    place = draft.op("ReduceSum", draft.op("Mul", counted, places), draft.integers(-1), keepdims=0)
    return draft.op("Gather", draft.constant(np.concatenate([default, values])), place)


def _table(
    draft: Draft,
) -> tuple[NDArray[np.generic], NDArray[np.generic], NDArray[np.generic]]:
    """Return keys, values and the default as a vector of one."""
    keys = _numbers(draft, "keys")
    values = _numbers(draft, "values")
    if values.dtype == np.int64:
        default = np.array([draft.integer("default_int64", -1)])
    else:
        # -0.0 is the default that ONNX states for floats.
        default = np.array([draft.number("default_float", -0.0)], np.float32)
    return keys, values, default


def _numbers(draft: Draft, what: str) -> NDArray[np.generic]:
    integers = draft.list_of(f"{what}_int64s")
    if integers:
        return np.array(integers, np.int64)
    floats = draft.floats(f"{what}_floats")
    if floats.size:
        return floats
    raise CannotExpandError(f"its {what} are no lists of numbers")
