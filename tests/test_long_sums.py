"""Long sums from the user's program to the device: as near to float64 as eager torch, values and gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import samba_onnx as samba
from samba_onnx.sessions import SESSION
from tests.training.trajectory import prepare

EPS = 2.0**-23
FEW_ULPS = 8
COUNT = 200_000
NUMBERS: dict[str, Callable[[], Tensor]] = {
    "equal": lambda: torch.full((COUNT,), 0.1),
    "random": lambda: torch.rand(COUNT),
    "far from zero": lambda: torch.randn(COUNT) + 100,
}


class Sums(nn.Module):
    """Whatever adds many numbers, each its own way; the first result is the sum of all losses."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(1) + 0.5)
        self.bias = nn.Parameter(torch.rand(8))
        self.channels = nn.Parameter(torch.rand(8, 1))
        self.weight = nn.Parameter(torch.rand(8, 3))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        scaled = x * self.scale
        rows = x.reshape(-1, 8)
        losses = (
            functional.mse_loss(scaled, torch.ones_like(x)),
            functional.l1_loss(scaled, torch.full_like(x, -1.0)),
            ((rows + self.bias) ** 2).mean(),
            ((x.reshape(4, 8, -1) + self.channels) ** 2).mean(),
            (rows @ self.weight).mean(),
            functional.cross_entropy(rows + self.bias, torch.zeros(len(rows), dtype=torch.long)),
        )
        others = (
            scaled.sum(),
            scaled.norm(),
            scaled.logsumexp(0),
            scaled.cumsum(0),
            x.reshape(2, 4, -1).mean((0, 2)),
            functional.adaptive_avg_pool2d(scaled.reshape(2, 4, -1, 10), 1),
        )
        return torch.stack(losses).sum(), *losses, *others


def in_torch(model: Sums, x: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """Return results and gradients of eager torch."""
    model = copy.deepcopy(model).to(dtype)
    outputs = model(x.to(dtype))
    outputs[0].backward()
    return [
        *(y.detach() for y in outputs),
        *(p.grad for p in model.parameters() if p.grad is not None),
    ]


def error(result: Tensor, exact: Tensor) -> float:
    return float((result.double() - exact).abs().max() / exact.abs().max())


@pytest.fixture(autouse=True)
def _session() -> Iterator[None]:
    SESSION.reset()
    yield
    SESSION.reset()


@pytest.mark.parametrize("kind", NUMBERS)
def test_sums_and_their_gradients_are_as_near_to_float64_as_torchs(
    kind: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model, x = Sums(), NUMBERS[kind]()
    exact, single = (in_torch(model, x, dtype) for dtype in (torch.float64, torch.float32))
    samba.from_torch_model_(model)
    optimizer = samba.optim.SGD(model.parameters(), lr=0.0)
    prepared = prepare(model, {"x": x}, [optimizer], tmp_path, loss_indices=[0])
    results = [*prepared.run({"x": x}), *prepared.gradients().values()]
    errors = [error(result, true) for result, true in zip(results, exact, strict=True)]
    allowed = [
        max(2 * error(rounded, true), FEW_ULPS * EPS)
        for rounded, true in zip(single, exact, strict=True)
    ]
    assert [e for e, most in zip(errors, allowed, strict=True) if e > most] == []


def test_a_long_sum_is_verified_against_float64(tmp_path: Path) -> None:
    """onnxruntime's own sum of these is off by 9e-4: it cannot be the measure."""
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> g (float[1000000] x) => (float y, float[1000000] z) '
        "<int64[1] a = {0}, int64 axis = {0}> { y = ReduceMean<keepdims=0>(x, a) z = CumSum(x, axis) }"
    )
    model = onnx.parser.parse_model(text)
    onnx.save(model, tmp_path / "m.onnx")
    x = np.full(1_000_000, 0.1, np.float32)
    with samba.convert(tmp_path / "m.onnx") as pef, samba.Device(pef) as device:
        outputs: dict[str, Any] = device.run({"x": x})
        assert samba.verify(model, pef, inputs={"x": x}).passed
        assert samba.self_test(pef).passed
    wide = x.astype(np.float64)
    np.testing.assert_allclose(outputs["y"], wide.mean(), rtol=FEW_ULPS * EPS)
    np.testing.assert_allclose(outputs["z"], wide.cumsum(), rtol=EPS)
