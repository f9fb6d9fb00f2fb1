"""What is compiled is left alone: parameters, buffers, gradients, flags, hooks, attributes, generators."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, spectral_norm, weight_norm

import samba_onnx as samba
from samba_onnx.sessions import SambaSession
from tests.export.module_state import changes, state_of

BATCH = 4
Layer = tuple[Callable[[], nn.Module], tuple[int, ...]]


def _indices(table: nn.Module) -> nn.Module:
    """Return a module that makes indices of what it is given, and looks them up."""
    return nn.Sequential(_Indices(), table)


class _Indices(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x.abs() * 2).long().clamp(0, 4)


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(6, 2, dropout=0.1, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, x, x)[0]


class _Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.TransformerDecoderLayer(6, 2, 8, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, x)


class _Classes(nn.Module):
    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, x: Tensor) -> Tensor:
        return self.loss(x, torch.tensor([0, 1, 2, 3]))


def _shared() -> nn.Module:
    layer = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6))
    return nn.Sequential(layer, nn.Sequential(layer, nn.Tanh()), layer)


def _first(layer: nn.Module) -> nn.Module:
    return nn.Sequential(layer, _First())


class _First(nn.Module):
    def forward(self, x: Any) -> Tensor:
        return x[0]


FAST: dict[str, Layer] = {
    "BatchNorm1d": (lambda: nn.BatchNorm1d(6), (6,)),
    "Embedding": (lambda: _indices(nn.Embedding(5, 3, max_norm=0.5)), (6,)),
    "parametrizations.spectral_norm": (
        lambda: parametrizations.spectral_norm(nn.Linear(6, 3)),
        (6,),
    ),
    "shared": (_shared, (6,)),
}
SLOW: dict[str, Layer] = {
    "LSTM": (lambda: _first(nn.LSTM(6, 3, num_layers=2, dropout=0.5)), (5, 6)),
    "TransformerEncoderLayer": (lambda: nn.TransformerEncoderLayer(6, 2, 8), (5, 6)),
    "AlphaDropout": (lambda: nn.AlphaDropout(0.3), (6,)),
    "BatchNorm1d(momentum=None)": (lambda: nn.BatchNorm1d(6, momentum=None), (6,)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(3), (3, 4, 4)),
    "BatchNorm3d": (lambda: nn.BatchNorm3d(2), (2, 2, 3, 3)),
    "Conv1d": (lambda: nn.Conv1d(2, 3, 3), (2, 6)),
    "Conv2d": (lambda: nn.Conv2d(2, 3, 3, padding_mode="circular", padding=1), (2, 6, 6)),
    "Conv3d": (lambda: nn.Conv3d(2, 3, 2), (2, 3, 3, 3)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(2, 3, 2, stride=2), (2, 3, 3)),
    "CrossEntropyLoss": (lambda: _Classes(nn.CrossEntropyLoss(torch.arange(6.0))), (6,)),
    "Dropout": (lambda: nn.Dropout(0.5), (6,)),
    "Dropout2d": (lambda: nn.Dropout2d(0.5), (2, 3, 3)),
    "EmbeddingBag": (lambda: _indices(nn.EmbeddingBag(5, 3, max_norm=0.5)), (6,)),
    "FeatureAlphaDropout": (lambda: nn.FeatureAlphaDropout(0.5), (2, 3, 3)),
    "GRU": (lambda: _first(nn.GRU(6, 3, bidirectional=True)), (5, 6)),
    "GRUCell": (lambda: nn.GRUCell(6, 3), (6,)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), (4, 3)),
    "InstanceNorm1d": (lambda: nn.InstanceNorm1d(3, track_running_stats=True), (3, 5)),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(3, affine=True), (3, 4, 4)),
    "LSTMCell": (lambda: nn.Sequential(nn.LSTMCell(6, 3), _First()), (6,)),
    "LayerNorm": (lambda: nn.LayerNorm(6), (6,)),
    "Linear": (lambda: nn.Linear(6, 3), (6,)),
    "LocalResponseNorm": (lambda: nn.LocalResponseNorm(2), (4, 3, 3)),
    "MultiheadAttention": (_Attention, (5, 6)),
    "NLLLoss": (
        lambda: nn.Sequential(nn.LogSoftmax(1), _Classes(nn.NLLLoss(torch.arange(6.0)))),
        (6,),
    ),
    "PReLU": (lambda: nn.PReLU(6), (6,)),
    "RMSNorm": (lambda: nn.RMSNorm(6), (6,)),
    "RNN": (lambda: _first(nn.RNN(6, 3)), (5, 6)),
    "SyncBatchNorm": (lambda: nn.SyncBatchNorm(6), (6,)),
    "TransformerDecoderLayer": (_Decoder, (5, 6)),
    "Upsample": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (2, 3, 3)),
    "orthogonal": (lambda: parametrizations.orthogonal(nn.Linear(6, 6)), (6,)),
    "spectral_norm": (lambda: spectral_norm(nn.Conv1d(2, 3, 3)), (2, 6)),
    "weight_norm": (lambda: weight_norm(nn.Linear(6, 3)), (6,)),
    "parametrizations.weight_norm": (lambda: parametrizations.weight_norm(nn.Linear(6, 3)), (6,)),
}


class Network(nn.Module):
    """A layer behind a parameter, with what users have on their modules."""

    def __init__(self, layer: nn.Module, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(shape))
        self.layer = layer
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("passing", torch.ones(2), persistent=False)
        self.count = 0
        self.history: list[float] = []
        self.offset = torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        self.history.append(self.count)
        self.calls += 1
        result: Tensor = (self.layer(x * self.scale) + self.offset).float().square().mean()
        return result


TABLE = [
    *(pytest.param(name, *layer) for name, layer in FAST.items()),
    *(pytest.param(name, *layer, marks=pytest.mark.slow) for name, layer in SLOW.items()),
]


@pytest.mark.parametrize(
    "converted",
    [True, pytest.param(False, marks=pytest.mark.slow)],  # the same, but for from_torch_model_
    ids=["converted", "plain"],
)
@pytest.mark.parametrize(("name", "make", "shape"), TABLE)
def test_compiling_and_tracing_leave_the_module_alone(
    name: str,
    make: Callable[[], nn.Module],
    shape: tuple[int, ...],
    converted: bool,
    tmp_path: Path,
    session: SambaSession,
) -> None:
    torch.manual_seed(0)
    model = Network(make(), shape).train()
    x = torch.randn(BATCH, *shape)
    model(x).backward()  # gradients that are there already
    if converted:
        samba.from_torch_model_(model)
    model.layer.register_forward_hook(lambda _module, _inputs, output: output)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = (samba.from_torch_tensor(x, name="x"),)
    given, before = x.clone(), state_of(model)
    path = session.compile(model, inputs, optimizer, output=tmp_path / "trained.pef")
    assert changes(before, state_of(model)) == []
    session.compile(model, inputs, optimizer, output=tmp_path / "again.pef")
    assert changes(before, state_of(model)) == []
    samba.utils.trace_graph(model, inputs, optimizer, pef=path)
    # SambaFlow's own: where users find the outputs.
    known = [*changes(before, state_of(model))]
    assert [change for change in known if "output_tensors" not in change] == []
    assert torch.equal(x, given)
