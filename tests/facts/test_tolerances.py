from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from samba_onnx.facts.tolerances import OUTPUT, near_torch, output_roundings, rounding_unit, spacing

FLOATS = ["float64", "float32", "float16", "bfloat16", "complex64", "complex128"]


@pytest.mark.parametrize("name", FLOATS)
def test_a_tolerance_lies_between_one_rounding_and_nonsense(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    one_rounding = float(ml_dtypes.finfo(dtype).eps) / 2
    assert one_rounding < near_torch(name) < 0.1


@pytest.mark.parametrize("name", ["int64", "bool", "object"])
def test_what_is_exact_must_be_equal(name: str) -> None:
    assert near_torch(name) == spacing(name) == 0.0


@pytest.mark.parametrize("name", FLOATS)
def test_a_rounding_is_the_distance_of_one_and_the_next_number(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    assert spacing(name) == float(ml_dtypes.finfo(dtype).eps)


def test_outputs_of_wide_types_keep_four_digits() -> None:
    assert (OUTPUT.relative, OUTPUT.absolute) == (1e-4, 1e-5)
    assert all(rounding_unit(name) is None for name in ("float32", "float64", "complex64", "int8"))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_the_unit_of_16_bits_is_its_largest_rounding(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    assert rounding_unit(name) == float(ml_dtypes.finfo(dtype).eps) / 2
    numbers = np.linspace(1, 2, 100_001)
    largest = np.abs(numbers.astype(dtype).astype(np.float64) - numbers).max()
    assert largest == pytest.approx(rounding_unit(name), rel=0.01)


def test_roundings_grow_like_the_root_of_their_number() -> None:
    assert output_roundings(0) == 4
    assert output_roundings(100) == 14
