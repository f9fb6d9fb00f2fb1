"""A module that cannot be captured is refused with a sentence, and torch prints nothing of its own."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import _trace

from samba_onnx.errors import ModelError
from samba_onnx.export.capture.captured_modules import capture


class Resized(nn.Module):
    """Gives a tensor for a size, which torch itself takes the value of."""

    def forward(self, x: Tensor) -> Tensor:
        height = x.sum(dtype=torch.int64)
        size: Any = (height, height)
        return nn.functional.interpolate(x, size=size, mode="bilinear", align_corners=True)


def test_torch_prints_no_graph(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    x = torch.ones(1, 1, 2, 2)
    with caplog.at_level(logging.WARNING), pytest.raises(ModelError, match="values of tensors"):
        capture(Resized(), (x,))
    assert capfd.readouterr() == ("", "")
    assert not caplog.records
    assert "print" not in vars(_trace)
