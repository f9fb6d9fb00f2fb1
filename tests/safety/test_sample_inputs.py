"""Seeded inputs: reproducible, typed, and harmless where integers index or divide."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from samba_onnx.errors import ModelLimitError, UsageError
from samba_onnx.safety.sample_inputs import random_inputs


def test_same_seed_same_values_and_streams_are_independent() -> None:
    one = random_inputs({"a": (1, (4,)), "b": (1, (5,))}, seed=3)
    two = random_inputs({"a": (1, (400,)), "b": (1, (5,))}, seed=3)
    other = random_inputs({"a": (1, (4,)), "b": (1, (5,))}, seed=4)
    np.testing.assert_array_equal(one["b"], two["b"])
    assert not np.array_equal(one["b"], other["b"])
    assert not np.array_equal(one["a"], one["b"][:4])


def test_values_are_pinned() -> None:
    """A stored sample must stay reproducible: these figures may never change."""
    arrays = random_inputs({"x": (1, (3,)), "i": (7, (6,))}, seed=0)
    np.testing.assert_allclose(arrays["x"], PINNED_FLOATS, rtol=1e-6)
    np.testing.assert_array_equal(arrays["i"], PINNED_INTEGERS)


PINNED_FLOATS = [1.117622, -1.3871249, -0.4265716]
PINNED_INTEGERS = [1, 0, 1, 1, 1, 1]


def test_floats_are_standard_normal() -> None:
    x = random_inputs({"x": ("tensor(double)", (100_000,))}, seed=1)["x"]
    # Standard errors are 0.003 for the mean and 0.002 for the deviation: five of each.
    assert abs(x.mean()) < 0.016
    assert abs(x.std() - 1) < 0.012


def test_integers_and_booleans_never_hide_a_row() -> None:
    for kind in ("tensor(int64)", "tensor(uint8)", "tensor(int4)", "tensor(bool)"):
        rows = random_inputs({"m": (kind, (50, 7))}, seed=2)["m"].astype(np.int64)
        assert set(np.unique(rows)) == {0, 1}
        assert (rows[:, 0] == 1).all()
        assert random_inputs({"n": (kind, ())}, seed=2)["n"].astype(np.int64) == 1


@pytest.mark.parametrize("kind", sorted(set(TensorProto.DataType.values()) - {0, 25, 26, 27, 28}))
def test_every_type_has_its_shape_empty_and_scalar_too(kind: int) -> None:
    text = f"tensor({TensorProto.DataType.Name(kind).lower()})"
    for shape in ((2, 3), (), (0, 4)):
        by_number = random_inputs({"x": (kind, shape)}, seed=0)["x"]
        by_text = random_inputs({"x": (text, shape)}, seed=0)["x"]
        assert isinstance(by_number, np.ndarray)
        assert by_number.shape == shape
        assert by_number.dtype == by_text.dtype
        np.testing.assert_array_equal(by_number, by_text)


def test_what_is_no_tensor_or_too_large_is_refused() -> None:
    with pytest.raises(UsageError, match=r"input 'x' has type seq\(tensor\(float\)\)"):
        random_inputs({"x": ("seq(tensor(float))", ())}, seed=0)
    with pytest.raises(ModelLimitError, match="input 'x' of shape"):
        random_inputs({"x": (1, (1 << 30, 2))}, seed=0)
