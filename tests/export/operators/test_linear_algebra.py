from __future__ import annotations

from typing import Any

import pytest
import torch

from samba_onnx.errors import ModelError
from tests.export.operators.harness import check_operator

aten = torch.ops.aten


def _matrix(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


# Elimination of well-conditioned matrices of eight rows loses one digit of float32's seven.
_LOOSE = 1e-4


@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (2, 3, 8, 8)])
def test_inverses_and_determinants(shape: tuple[int, ...]) -> None:
    value = _matrix(*shape) + torch.eye(shape[-1])
    check_operator(aten.linalg_inv_ex.default, value, tolerance=_LOOSE)


def test_rows_are_exchanged_for_a_zero_on_the_diagonal() -> None:
    value = torch.tensor([[0.0, 2.0, 0.0], [0.0, 0.0, 3.0], [4.0, 0.0, 0.0]])
    check_operator(aten.linalg_inv_ex.default, value)
    check_operator(aten.linalg_lu_factor_ex.default, value)


@pytest.mark.parametrize("shape", [(5, 5), (2, 6, 4), (4, 6)])
def test_triangular_factors(shape: tuple[int, ...]) -> None:
    check_operator(aten.linalg_lu_factor_ex.default, _matrix(*shape), tolerance=_LOOSE)


@pytest.mark.parametrize("mode", ["reduced", "complete"])
@pytest.mark.parametrize("shape", [(5, 5), (2, 6, 4), (4, 6)])
def test_orthogonal_factors(shape: tuple[int, ...], mode: str) -> None:
    check_operator(aten.linalg_qr.default, _matrix(*shape), mode, tolerance=_LOOSE)


def test_large_matrices_are_refused() -> None:
    with pytest.raises(ModelError, match="too many nodes"):
        check_operator(aten.linalg_inv_ex.default, torch.eye(65))


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize("rows", [4, 30])
def test_distances(p: float, rows: int) -> None:
    left, right = _matrix(2, rows, 6), _matrix(5, 6)
    options: dict[str, Any] = {"tolerance": _LOOSE} if rows > 25 else {}
    check_operator(
        aten._cdist_forward.default, left, right.expand(2, 5, 6).clone(), p, None, **options
    )
