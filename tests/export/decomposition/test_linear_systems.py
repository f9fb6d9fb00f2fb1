"""Functions of matrices as they are written to be differentiated, against torch's own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from samba_onnx.export.decomposition.linear_systems import (
    log_determinant,
    logarithm_of_determinant,
)

MATRICES = torch.tensor(
    [
        [[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [1.0, 0.0, 4.0]],
        [[0.0, 1.0, 0.0], [2.0, 0.0, 1.0], [0.0, 0.0, 4.0]],  # its determinant is negative
        [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]],  # that of two equal rows is zero,
        [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],  # and that of a row of zeros
    ]
)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_logarithms_of_determinants(requires_grad: bool) -> None:
    """A number, nan and minus infinity."""
    value = MATRICES.clone().requires_grad_(requires_grad)
    found = logarithm_of_determinant(value)
    torch.testing.assert_close(found, torch.logdet(MATRICES), equal_nan=True)
    assert found.isnan().tolist() == [False, True, False, False]
    assert found.isneginf().tolist() == [False, False, True, True]


@pytest.mark.parametrize("requires_grad", [False, True])
def test_signs_and_logarithms_of_determinants(requires_grad: bool) -> None:
    value = MATRICES.clone().requires_grad_(requires_grad)
    for found, expected in zip(log_determinant(value), torch.linalg.slogdet(MATRICES), strict=True):
        torch.testing.assert_close(found, expected)


def gradient(result: Tensor, value: Tensor) -> Tensor:
    (found,) = torch.autograd.grad(result.sum(), value)
    return found


def test_gradients_of_logarithms_of_determinants_that_are_positive() -> None:
    value = MATRICES[:1].clone().requires_grad_()
    expected = gradient(torch.logdet(value), value)
    torch.testing.assert_close(gradient(logarithm_of_determinant(value), value), expected)
