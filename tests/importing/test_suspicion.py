"""Exports that were optimised for inference are recognised, others are not."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models.cache import cached_onnx
from samba_onnx.errors import FoldedWeightsWarning
from samba_onnx.importing import module_from_onnx
from tests.importing.building import exported


class _Norms(nn.Module):
    """Two layer norms as torch initialises them, all alike; maybe one applied twice."""

    def __init__(self, *, tied: bool) -> None:
        super().__init__()
        self.first = nn.LayerNorm(8)
        self.second = self.first if tied else nn.LayerNorm(8)
        self.linear = nn.Linear(8, 8)
        if tied:
            nn.init.uniform_(self.first.weight)
            nn.init.uniform_(self.first.bias)

    def forward(self, value: Tensor) -> Tensor:
        return self.second(self.linear(self.first(value)))


def _warnings(model: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        module_from_onnx(model)
    return [str(one.message) for one in found if one.category is FoldedWeightsWarning]


def test_merged_norms_are_recognised() -> None:
    value = torch.randn(2, 8)
    (text,) = _warnings(exported(_Norms(tied=False), value, optimize=True))
    assert "read by layers that have nothing else in common" in text
    assert "optimize=False" in text


def test_unoptimised_and_tied_norms_are_not_suspected() -> None:
    value = torch.randn(2, 8)
    assert not _warnings(exported(_Norms(tied=False), value, optimize=False))
    assert not _warnings(exported(_Norms(tied=True), value, optimize=True))


@pytest.mark.parametrize("name", ["resnet50", "mobilenet_v3", "unet"])
def test_folded_batch_normalisations_are_recognised(name: str) -> None:
    (text,) = _warnings(cached_onnx(name, "tiny"))
    assert "batch normalisations were probably folded" in text


@pytest.mark.parametrize("name", ["lenet", "lstm", "vit"])
def test_models_without_them_are_not_suspected(name: str) -> None:
    assert not _warnings(cached_onnx(name, "tiny"))
