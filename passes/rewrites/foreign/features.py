"""Operators of ONNX's domain for machine learning that prepare features for a model."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from samba_onnx.facts.domains import ML_DOMAIN
from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.foreign.linear_models import as_floats
from samba_onnx.passes.rewrites.foreign.rules import expands


@expands(ML_DOMAIN, "Scaler")
def scaler(draft: Draft) -> ir.Value:
    """Features shifted, then scaled."""
    value = as_floats(draft, draft.operand(0))
    offset, scale = draft.floats("offset"), draft.floats("scale")
    # Offsets of zero need no node.
    if offset.any():
        value = draft.op("Sub", value, draft.constant(offset))
    return draft.op("Mul", value, draft.constant(scale))


@expands(ML_DOMAIN, "Normalizer")
def normalizer(draft: Draft) -> ir.Value:
    """Rows divided by their norm; a row of zeros stays as it is."""
    if draft.rank(draft.operand(0)) > 2:
        raise CannotExpandError("its input has more than two dimensions")
    value = as_floats(draft, draft.operand(0))
    name, last = draft.text("norm", "MAX"), draft.integers(-1)
    if name == "MAX":
        # As onnxruntime takes it: the largest number, not the largest size.
        norm = draft.op("ReduceMax", value, last)
    elif name == "L1":
        norm = draft.op("ReduceL1", value, last)
    elif name == "L2":
        norm = draft.op("ReduceL2", value, last)
    else:
        raise CannotExpandError(f"its norm {name} is unknown")
    zero, one = (draft.constant(np.full((), number, np.float32)) for number in (0, 1))
    divisor = draft.op("Where", draft.op("Equal", norm, zero), one, norm)
    return draft.op("Div", value, divisor)


@expands(ML_DOMAIN, "Binarizer")
def binarizer(draft: Draft) -> ir.Value:
    """One for what is beyond a threshold, zero for the rest."""
    value = draft.operand(0)
    beyond = draft.op("Greater", value, draft.scalar(draft.number("threshold", 0.0), value))
    return draft.op("Cast", beyond, to=draft.dtype(value))


@expands(ML_DOMAIN, "Imputer")
def imputer(draft: Draft) -> ir.Value:
    """Features in which stated numbers take the place of a value that stands for a missing one."""
    value = draft.operand(0)
    missing: NDArray[np.generic]
    filling: NDArray[np.generic]
    if draft.dtype(value) == ir.DataType.FLOAT:
        missing = np.array(draft.number("replaced_value_float", 0.0), np.float32)
        filling = draft.floats("imputed_value_floats")
    elif draft.dtype(value) == ir.DataType.INT64:
        missing = np.array(draft.integer("replaced_value_int64"), np.int64)
        filling = np.array(draft.list_of("imputed_value_int64s"), np.int64)
    else:
        raise CannotExpandError(f"its input has the type {draft.dtype(value).name}")
    # NaN equals nothing, not even itself.
    if np.isnan(missing):
        hit = draft.op("IsNaN", value)
    else:
        hit = draft.op("Equal", value, draft.constant(missing))
    return draft.op("Where", hit, draft.constant(filling), value)


@expands(ML_DOMAIN, "ArrayFeatureExtractor")
def array_feature_extractor(draft: Draft) -> ir.Value:
    """Columns that are chosen by number."""
    value, columns = draft.operand(0), draft.operand(1)
    if draft.rank(value) == 1:
        # A single row is a matrix of one row in the result.
        value = draft.op("Unsqueeze", value, draft.integers(0))
    flat = draft.op("Reshape", columns, draft.integers(-1))
    return draft.op("Gather", value, flat, axis=-1)


@expands(ML_DOMAIN, "FeatureVectorizer")
def feature_vectorizer(draft: Draft) -> ir.Value:
    """Columns of several tensors side by side, as float32."""
    parts = []
    for value in draft.node.inputs:
        if value is None or draft.rank(value) != 2:
            raise CannotExpandError("one of its inputs is no matrix")
        parts.append(as_floats(draft, value))
    widths = [draft.size(value, 1) for value in draft.node.inputs if value is not None]
    # Its kernel cuts or fills up columns where widths differ from those of the inputs.
    if draft.list_of("inputdimensions") != widths:
        raise CannotExpandError("its inputs have other widths than it states")
    return draft.op("Concat", *parts, axis=1)


@expands(ML_DOMAIN, "OneHotEncoder")
def one_hot_encoder(draft: Draft) -> ir.Value:
    """A one at the place of a number's category; zeros for a number that is none."""
    # Otherwise an unknown number stops the run with an error, which no operator of ONNX does.
    draft.refuse_attributes(zeros=1)
    value, categories = draft.operand(0), draft.list_of("cats_int64s")
    if not categories or draft.dtype(value) not in (ir.DataType.INT32, ir.DataType.INT64):
        raise CannotExpandError("its categories are no integers")
    wide = draft.op("Unsqueeze", draft.op("Cast", value, to=ir.DataType.INT64), draft.integers(-1))
    equal = draft.op("Equal", wide, draft.constant(np.array(categories, np.int64)))
    return draft.op("Cast", equal, to=ir.DataType.FLOAT)
