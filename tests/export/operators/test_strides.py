"""Looking at memory: what lies where depends on how torch made a tensor."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from samba_onnx.errors import ModelError
from tests.export.exporting import check


class Views(nn.Module):
    """Looks at memory that is not in the order of the axes."""

    def forward(self, first: Tensor, second: Tensor) -> tuple[Tensor, ...]:
        turned = (first * 2).transpose(0, 1)
        rolled = (second + 1).permute(2, 0, 1)
        return (
            turned.as_strided((2, 3), (1, 2), 1),
            rolled.as_strided((4, 2), (3, 5)),
            rolled[:, :, :].as_strided((3,), (2,)),
            torch.as_strided_scatter(turned, torch.ones(2, 2), (2, 2), (3, 2), 1),
        )


class Rest(nn.Module):
    """Looks at the memory of rows that begin somewhere."""

    def forward(self, value: Tensor) -> Tensor:
        rows: Tensor = (value + 1)[1:]
        return rows.as_strided((2, 2), (1, 3), 7)


class Inner(nn.Module):
    """Looks at memory between the elements of a tensor."""

    def forward(self, value: Tensor) -> Tensor:
        part: Tensor = (value + 1)[1:, 2:]
        return part.as_strided((2, 2), (1, 3), 1)


def test_places_are_those_of_torchs_memory() -> None:
    check(Views(), (torch.randn(4, 5), torch.randn(2, 3, 4)))
    check(Rest(), (torch.randn(4, 5),))


def test_memory_that_a_tensor_does_not_have_is_refused() -> None:
    with pytest.raises(ModelError, match=r"as_strided.* at test_strides.py:\d+: .* contiguous"):
        check(Inner(), (torch.randn(4, 5),))
