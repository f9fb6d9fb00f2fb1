from __future__ import annotations

from typing import Any

import pytest
import torch

from samba_onnx.errors import ModelError
from tests.export.operators.harness import check_operator

aten = torch.ops.aten

_DATA = torch.arange(120).reshape(2, 3, 4, 5)
_ROWS = torch.tensor([[1, -2], [0, 2]])
_COLUMNS = torch.tensor([3, -1])


@pytest.mark.parametrize(
    "indices",
    [
        [_ROWS % 2 - 1],
        [None, _ROWS],
        [None, None, _COLUMNS],
        [None, _ROWS, _COLUMNS],
        [None, None, _COLUMNS, _ROWS],
        [_ROWS % 2, None, _COLUMNS],
        [_ROWS % 2, _ROWS],
        [torch.tensor(1), None, None, _ROWS],
        [_ROWS % 2, _ROWS, _COLUMNS, _ROWS.int()],
    ],
    ids=lambda indices: "".join("-" if i is None else str(i.dim()) for i in indices),
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_several_index_tensors(indices: list[Any], dtype: torch.dtype) -> None:
    data = (_DATA % 7 > 3) if dtype == torch.bool else _DATA.to(dtype)
    check_operator(aten.index.Tensor, data, indices)
    result = aten.index(data, indices)
    news = ~result if dtype == torch.bool else -result
    check_operator(aten.index_put.default, data, indices, news)
    if dtype not in (torch.bool, torch.bfloat16):
        check_operator(aten.index_put.default, data, indices, news, True)


def test_a_mask_is_refused_where_its_shape_would_depend_on_the_data() -> None:
    with pytest.raises(ModelError, match="boolean mask"):
        check_operator(aten.index.Tensor, _DATA, [_DATA > 3])


@pytest.mark.parametrize("covered", [1, 2, 4])
@pytest.mark.parametrize("before", [0, 1])
def test_values_are_put_where_a_mask_is_true(covered: int, before: int) -> None:
    data = _DATA.float()
    covered = min(covered, 4 - before)
    mask = torch.rand(data.shape[before : before + covered]) > 0.5
    mask.view(-1)[0] = True
    indices = [None] * before + [mask]
    check_operator(aten.index_put.default, data, indices, torch.tensor(-1.0))
    rows = -data[(slice(None),) * before + (mask,)]
    check_operator(aten.index_put.default, data, indices, rows)
    check_operator(aten.index_put.default, data, indices, rows, True)


def test_elements_of_a_source_follow_each_other() -> None:
    mask = torch.rand(3, 4) > 0.3
    source = torch.arange(12.0)[: max(int(mask.sum()), 1)]
    check_operator(aten.masked_scatter.default, torch.randn(3, 4), mask, source)


@pytest.mark.parametrize(("start", "end", "step"), [(0, 3, 1), (1, 9, 1), (-7, -1, 2), (0, 9, 4)])
def test_slices_are_put_back(start: int, end: int, step: int) -> None:
    gradient = torch.randn(2, 9, 3)[:, start:end:step]
    check_operator(aten.slice_backward.default, gradient, [2, 9, 3], 1, start, end, step)
    check_operator(aten.slice_backward.default, gradient, [2, 9, 3], -2, start, end, step)


@pytest.mark.parametrize("index", [0, -1, 2])
def test_rows_are_put_back(index: int) -> None:
    check_operator(aten.select_backward.default, torch.randn(2, 3), [2, 4, 3], 1, index)


@pytest.mark.parametrize("offset", [-2, 0, 3])
@pytest.mark.parametrize(("dim1", "dim2"), [(0, 1), (2, 0), (-1, -2)])
def test_diagonals_are_put_back(offset: int, dim1: int, dim2: int) -> None:
    gradient = torch.diagonal(torch.randn(4, 5, 6), offset, dim1, dim2).clone()
    shape = [4, 5, 6]
    check_operator(aten.diagonal_backward.default, gradient, shape, offset, dim1, dim2)


@pytest.mark.parametrize(("size", "step"), [(3, 1), (3, 2), (2, 2), (2, 3), (9, 1)])
@pytest.mark.parametrize("dim", [0, 1])
def test_windows_are_added_up(size: int, step: int, dim: int) -> None:
    gradient = torch.randn(9, 9, 2).unfold(dim, size, step).clone()
    check_operator(aten.unfold_backward.default, gradient, [9, 9, 2], dim, size, step)
