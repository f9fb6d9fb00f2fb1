"""Lazy parameters: no memory before they are needed, and then always the same values."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import samba_onnx as samba
from samba_onnx.errors import UsageError
from samba_onnx.sessions import SambaSession
from samba_onnx.tensor.lazy_parameters import LazyParameter

MAKERS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(30, 20),
    "convolution": lambda: nn.Conv2d(3, 8, 3),
    "embedding": lambda: nn.Embedding(10, 4, padding_idx=3),
    "recurrent": lambda: nn.LSTM(6, 5, num_layers=2, bidirectional=True),
    "attention": lambda: nn.MultiheadAttention(8, 2),
    "norm": lambda: nn.BatchNorm1d(6),
    "encoder": lambda: nn.TransformerEncoderLayer(8, 2, 16),
}


def lazily(session: SambaSession, make: Callable[[], nn.Module], **options: object) -> nn.Module:
    session.enable_lazy_param(**{"seed": 5, **options})
    try:
        return make()
    finally:
        session.disable_lazy_param()


@pytest.mark.parametrize("name", MAKERS)
def test_parameters_are_made_when_they_are_needed(session: SambaSession, name: str) -> None:
    module = lazily(session, MAKERS[name])
    plain = MAKERS[name]()
    assert not session.use_lazy_param()
    samba.from_torch_model_(module)
    for (key, lazy), other in zip(module.named_parameters(), plain.parameters(), strict=True):
        assert isinstance(lazy, LazyParameter), key
        assert not lazy.has_data, key
        assert (lazy.shape, lazy.dtype) == (other.shape, other.dtype)
        value = lazy.torch_tensor()
        torch.testing.assert_close(value, lazy.torch_tensor(), rtol=0, atol=0)
        # Of the same distribution: zeros and ones where the module has them, else the same spread.
        wanted, found = other.detach().std().item(), value.detach().std().item()
        if other.detach().unique().numel() == 1:
            torch.testing.assert_close(value.detach(), other.detach())
        elif other.numel() >= 60:
            assert 0.7 * wanted < found < 1.4 * wanted, key
        assert not lazy.has_data, key
    for one, other in zip(module.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(one, other)
    if name == "embedding":
        assert module.weight.torch_tensor()[3].abs().sum() == 0


def test_values_depend_on_the_seed_and_the_order_only(session: SambaSession) -> None:
    def values(seed: int, **options: object) -> torch.Tensor:
        torch.manual_seed(len(options))
        torch.rand(seed)
        first, second = lazily(
            session, lambda: nn.ModuleList([nn.Linear(9, 9), nn.Linear(9, 9)]), seed=seed, **options
        )
        assert not torch.equal(first.weight.torch_tensor(), second.weight.torch_tensor())
        # In whichever order they are made.
        later = second.weight.torch_tensor()
        return torch.stack([first.weight.torch_tensor(), later]).detach()

    assert torch.equal(values(1), values(1, init_threads=2))
    assert not torch.equal(values(1), values(2))
    torch.manual_seed(3)
    one = lazily(session, lambda: nn.Linear(4, 4), seed=None).weight.torch_tensor()
    torch.manual_seed(3)
    assert torch.equal(
        one, lazily(session, lambda: nn.Linear(4, 4), seed=None).weight.torch_tensor()
    )
    torch.manual_seed(4)
    other = lazily(session, lambda: nn.Linear(4, 4), seed=None).weight.torch_tensor()
    assert not torch.equal(one, other)


class Initialised(nn.Module):
    """Initialises as large language models do, by ``data`` and by functions."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.table = nn.Embedding(2000, 8, dtype=dtype)
        self.head = nn.Linear(8, 2000, bias=False, dtype=dtype)
        self.norm = nn.LayerNorm(8, dtype=dtype)
        self.table.weight.data.normal_(mean=1.0, std=0.5)
        self.table.weight.data[3].zero_()
        nn.init.trunc_normal_(self.norm.weight, std=0.02)
        nn.init.orthogonal_(self.head.weight)
        self.head.weight.data.mul_(2.0)


@pytest.mark.parametrize("sampling", [False, True])
@pytest.mark.parametrize("rounding", ["nearest_even", "truncation"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_initialisation_in_place_is_carried_out(
    session: SambaSession, sampling: bool, rounding: str, dtype: torch.dtype
) -> None:
    if dtype is torch.bfloat16:
        torch.set_default_dtype(torch.float32)

    def make() -> nn.Module:
        module = Initialised(torch.float32)
        return module if dtype is torch.float32 else module.to(dtype)

    module = lazily(
        session, make, inverse_transform_sampling=sampling, fp32_to_bf16_rounding=rounding
    )
    assert not module.table.weight.has_data
    table = module.table.weight.torch_tensor().detach()
    assert table.dtype is dtype
    assert table[3].abs().sum() == 0
    # 16000 draws: mean and spread within five standard errors.
    rest = torch.cat([table[:3], table[4:]]).double()
    assert abs(rest.mean() - 1.0) < 5 * 0.5 / math.sqrt(rest.numel()) + 0.01
    assert abs(rest.std() - 0.5) < 5 * 0.5 / math.sqrt(2 * rest.numel()) + 0.01
    head = module.head.weight.torch_tensor().detach().float() / 2
    tolerance = 1e-5 if dtype is torch.float32 else 2e-2
    torch.testing.assert_close(head.T @ head, torch.eye(8), rtol=0, atol=tolerance)
    assert module.norm.weight.torch_tensor().abs().max() <= 2.0


def test_truncation_cuts_and_rounding_rounds(session: SambaSession) -> None:
    def make() -> nn.Module:
        return nn.Linear(50, 50).bfloat16()

    exact = lazily(session, lambda: nn.Linear(50, 50)).weight.torch_tensor().detach()
    cut = lazily(session, make, fp32_to_bf16_rounding="truncation").weight.torch_tensor()
    near = lazily(session, make).weight.torch_tensor()
    assert torch.equal(near, exact.bfloat16())
    assert (cut.detach().float().abs() <= exact.abs()).all()
    assert not torch.equal(cut, near)


def test_a_large_model_is_compiled_and_run_without_keeping_its_values(
    session: SambaSession, tmp_path: Path
) -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3)).eval()

    module = lazily(session, make)
    samba.from_torch_model_(module)
    x = samba.randn(2, 64, name="x")
    path = session.compile(module, (x,), output=tmp_path / "lazy.pef")
    outputs = samba.utils.trace_graph(module, (x,), pef=path)
    (result,) = session.run((x,), outputs)
    assert not any(parameter.has_data for parameter in module.parameters())
    twin = lazily(session, make)
    with torch.no_grad():
        expected = twin(x.torch())
    torch.testing.assert_close(result.torch(), samba.to_torch(expected), rtol=1e-5, atol=1e-6)
    assert all(parameter.has_data for parameter in twin.parameters())


def test_no_memory_is_taken(session: SambaSession) -> None:
    # 4 TB of parameters.
    module = lazily(session, lambda: nn.Linear(1 << 20, 1 << 20, bias=False))
    assert module.weight.numel() == 1 << 40
    assert not module.weight.has_data


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"init_threads": 0}, "init_threads is 0"),
        ({"fp32_to_bf16_rounding": "up"}, "nearest_even or truncation"),
    ],
)
def test_options_are_checked(
    session: SambaSession, options: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        session.enable_lazy_param(**options)
    assert not session.use_lazy_param()


def test_tensors_that_hold_values_are_made_as_usual(session: SambaSession) -> None:
    session.enable_lazy_param(seed=1)
    assert session.use_lazy_param()
    assert session.use_static_functional()
    ones = nn.Parameter(torch.ones(3))
    counts = torch.empty(3, dtype=torch.int64)
    placed = torch.empty(3, device="meta")
    session.disable_lazy_param()
    assert type(ones) is nn.Parameter
    assert type(counts) is type(placed) is torch.Tensor
    assert placed.is_meta
    assert type(torch.empty(3)) is torch.Tensor
    assert not session.use_static_functional()
