from __future__ import annotations

import pytest
import torch

from samba_onnx.errors import ModelError
from tests.export.operators.harness import check_operator

_ATTENTION = torch.ops.aten.scaled_dot_product_attention.default


def _operands(
    heads: int = 4, shared: int = 4, dtype: torch.dtype = torch.float32
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, heads, 5, 8), (2, shared, 7, 8), (2, shared, 7, 6)]
    query, key, value = (torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
    return query, key, value


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_without_a_mask(dtype: torch.dtype, causal: bool, scale: float | None) -> None:
    check_operator(_ATTENTION, *_operands(dtype=dtype), is_causal=causal, scale=scale)


@pytest.mark.parametrize("shape", [(5, 7), (1, 7), (2, 1, 5, 7), (2, 4, 5, 7)])
@pytest.mark.parametrize("boolean", [False, True])
@pytest.mark.parametrize("shared", [4, 2])
def test_masks(shape: tuple[int, ...], boolean: bool, shared: int) -> None:
    mask = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    options = {"enable_gqa": shared != 4}
    given = mask > 0 if boolean else mask
    check_operator(_ATTENTION, *_operands(shared=shared), given, **options)


@pytest.mark.parametrize("boolean", [False, True])
def test_a_row_without_anything_to_attend_to_gives_zeros(boolean: bool) -> None:
    mask = torch.ones(5, 7, dtype=torch.bool)
    mask[2], mask[3, 4] = False, False
    given = mask if boolean else torch.zeros(5, 7).masked_fill(~mask, float("-inf"))
    check_operator(_ATTENTION, *_operands(), given)


def test_the_form_that_graphs_of_a_cpu_have() -> None:
    query, key, _ = _operands()
    operator = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    check_operator(operator, query, key, torch.randn(2, 4, 7, 8))


def test_a_dropout_is_refused() -> None:
    with pytest.raises(ModelError, match="dropout_p"):
        check_operator(_ATTENTION, *_operands(), dropout_p=0.5)
