"""Runs of a module in torch, in its own type, in float64 and with roundings; it stays as it was."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from samba_onnx.export.programs.inference import export_inference
from samba_onnx.export.programs.training import export_training
from samba_onnx.facts.tolerances import spacing
from samba_onnx.workflows.checking.torch_runs import TorchRuns


class Small(nn.Module):
    """A layer, a normalisation, and what it remembers of its last call."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)
        self.last: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.last = self.norm(self.layer(x))
        return self.last.tanh().square().mean()


def runs_of(module: nn.Module, inputs: tuple[Tensor, ...], *, trains: bool = True) -> TorchRuns:
    export = export_training if trains else export_inference
    return TorchRuns(module, inputs, {}, export(module, inputs), trains)


def test_runs_agree_as_far_as_their_types_do() -> None:
    torch.manual_seed(0)
    module = Small().train()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    runs = runs_of(module, (torch.randn(6, 4),))
    assert runs.exact is not None
    expected = {
        "small__mean__outputs__0",
        "small__norm__running_mean__updated",
        "small__norm__running_var__updated",
        "small__norm__num_batches_tracked__updated",
        "small__layer__weight__grad",
        "small__layer__bias__grad",
        "small__norm__weight__grad",
        "small__norm__bias__grad",
    }
    assert runs.native.keys() == runs.exact.keys() == expected
    for amplitude in (1, 4):
        moved = runs.moved(0, amplitude)
        assert moved is not None
        for name, exact in runs.exact.items():
            for other, roundings in ((runs.native[name], 1), (moved[name], amplitude)):
                assert np.abs(other - exact).max() < 100 * roundings * runs.unit
            if exact.dtype == np.float64:
                assert not np.array_equal(moved[name], exact)
                assert not np.array_equal(runs.native[name], exact)
    assert module.last is None
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())


class Stubborn(nn.Module):
    """Looks at the type that it gets."""

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype != torch.float32:
            raise TypeError("float32 only")
        return x.exp()


def test_a_module_that_refuses_float64_is_moved_in_its_own_type() -> None:
    runs = runs_of(Stubborn(), (torch.rand(50),), trains=False)
    assert runs.exact is None
    moved = runs.moved(0, 1)
    assert moved is not None
    (name,) = runs.native
    assert moved[name].dtype == np.float32
    assert 0 < np.abs(moved[name] / runs.native[name] - 1).max() < 8 * runs.unit


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_rounding_is_that_of_the_coarsest_type(dtype: torch.dtype) -> None:
    module, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh()).to(dtype), torch.randn(3, 4, dtype=dtype)
    runs = runs_of(module, (x,), trains=False)
    assert runs.unit == spacing(str(dtype).removeprefix("torch."))
    assert (runs.exact is None) == (dtype == torch.float64)
