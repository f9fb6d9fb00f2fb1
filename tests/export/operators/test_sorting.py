from __future__ import annotations

import pytest
import torch

from tests.export.operators.harness import check_operator

aten = torch.ops.aten

_TIES = torch.tensor([[3.0, 1.0, 3.0, 2.0, 1.0, 3.0], [0.0, 0.0, 0.0, -1.0, -1.0, 5.0]])


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dim", [0, 1])
def test_equal_elements_stay_in_order(descending: bool, dim: int) -> None:
    check_operator(aten.sort.stable, _TIES, stable=True, dim=dim, descending=descending)


@pytest.mark.parametrize("operator", [aten.median.dim, aten.nanmedian.dim])
def test_medians_with_what_is_no_number(operator: torch._ops.OpOverload) -> None:
    values = torch.tensor([[1.0, 5.0, 3.0], [2.0, float("nan"), 1.0], [float("nan")] * 3])
    check_operator(operator, values, 1, ignore=(1,))


@pytest.mark.parametrize("right", [False, True])
def test_places_in_a_sequence(right: bool) -> None:
    boundaries = torch.tensor([-1.0, 0.0, 0.0, 2.5])
    values = torch.tensor([[-2.0, -1.0, 0.0], [2.5, 3.0, float("nan")]])
    check_operator(aten.bucketize.Tensor, values, boundaries, right=right)
    check_operator(aten.searchsorted.Tensor, boundaries, values, right=right)


@pytest.mark.parametrize("operator", [aten.cummax.default, aten.cummin.default])
def test_the_last_of_equal_extremes_and_what_is_no_number(
    operator: torch._ops.OpOverload,
) -> None:
    row = torch.tensor([1.0, 3.0, 3.0, 2.0, float("inf"), 2.0, float("nan"), 9.0, -1.0])
    check_operator(operator, torch.stack([row[:6], -row[:6], row[3:]]), 1)


@pytest.mark.parametrize("length", [1, 2, 7, 16])
def test_products_and_logarithms_of_sums(length: int) -> None:
    values = torch.randn(3, length, generator=torch.Generator().manual_seed(0))
    check_operator(aten.cumprod.default, values, 1)
    check_operator(aten.logcumsumexp.default, values * 40, 1)
