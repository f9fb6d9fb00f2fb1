from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from samba_onnx.facts.tolerances import OUTPUT, near_torch, output_tolerance, rounding

FLOATS = ["float64", "float32", "float16", "bfloat16", "complex64", "complex128"]


@pytest.mark.parametrize("name", FLOATS)
def test_a_tolerance_lies_between_one_rounding_and_nonsense(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    one_rounding = float(ml_dtypes.finfo(dtype).eps) / 2
    assert one_rounding < near_torch(name) < 0.1
    if name not in {"float64", "complex128"}:
        assert one_rounding < output_tolerance(name).relative < 0.1


@pytest.mark.parametrize("name", ["int64", "bool", "object"])
def test_what_is_exact_must_be_equal(name: str) -> None:
    assert near_torch(name) == rounding(name) == 0.0


@pytest.mark.parametrize("name", FLOATS)
def test_a_rounding_is_the_distance_of_one_and_the_next_number(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    assert rounding(name) == float(ml_dtypes.finfo(dtype).eps)


def test_wide_types_have_the_tolerance_of_outputs() -> None:
    assert output_tolerance("float32") is output_tolerance("float64") is OUTPUT
    assert output_tolerance("bfloat16").relative > output_tolerance("float16").relative
