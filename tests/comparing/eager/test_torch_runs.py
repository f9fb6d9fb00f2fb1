"""Runs of a module in torch, in its own type, in float64 and with roundings; it stays as it was."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from samba_onnx.comparing.eager.torch_runs import TorchRuns, _values
from samba_onnx.export.programs.inference import export_inference
from samba_onnx.export.programs.training import export_training
from samba_onnx.facts.names import LOSSES
from samba_onnx.facts.tolerances import spacing
from samba_onnx.tensor import SambaTensor


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


def around(module: nn.Module, *names: str, **losses: Any) -> TorchRuns:
    """Return runs of a module of which nothing is known but the names of its outputs."""
    graph_module = torch.fx.GraphModule(nn.Module(), torch.fx.Graph())
    metadata = {LOSSES: json.dumps(list(losses))}
    program = SimpleNamespace(argins=(), metadata=metadata, residents={})
    exported: Any = SimpleNamespace(
        captured=SimpleNamespace(updates=(), graph_module=graph_module),
        members={name.replace(".", "__"): name for name, _ in module.named_parameters()},
        inputs={},
        outputs=(*losses, *names),
        program=program,
    )
    return TorchRuns(module, tuple(losses.values()), {}, exported, bool(losses))


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


class Seen(nn.Module):
    """Says what types its arguments have: outside of itself, for a run leaves it as it was."""

    def forward(self, x: Tensor, *, y: Tensor, factor: float) -> Tensor:
        TYPES.extend([type(x), type(y)])
        return x + factor * y


TYPES: list[type] = []


def test_a_module_gets_plain_tensors_by_place_and_by_name() -> None:
    TYPES.clear()
    args = (SambaTensor(torch.ones(2), name="x"),)
    keywords = {"y": SambaTensor(torch.ones(2), name="y"), "factor": 3.0}
    runs = dataclasses.replace(around(Seen(), "out"), args=args, keywords=keywords)
    assert runs.native["out"].tolist() == [4.0, 4.0]
    assert set(TYPES) == {Tensor}


def test_roundings_are_those_that_are_asked_for() -> None:
    x = torch.rand(100, dtype=torch.float64) + 0.5
    runs = dataclasses.replace(around(nn.Identity(), "out"), args=(x,))
    assert runs.unit == spacing("float32")  # nothing is known of types
    for unit, size in ((None, spacing("float32")), (spacing("float64"), spacing("float64"))):
        moved = runs.moved(0, 4, unit)
        assert moved is not None
        distance = np.abs(moved["out"] / x.numpy() - 1).max()
        assert 3 * size < distance < 5 * size


class Single(nn.Module):
    """Looks at the type that it gets, and computes something that is rounded."""

    def forward(self, x: Tensor) -> Tensor:
        assert x.dtype == torch.float32
        return x.exp() + torch.zeros(1, dtype=torch.float32)


def test_what_does_not_run_in_float64_is_not_widened_when_it_moves() -> None:
    runs = dataclasses.replace(around(Single(), "out"), args=(torch.rand(50),))
    assert runs.exact is None
    moved = runs.moved(0, 1)
    assert moved is not None
    assert moved["out"].dtype == np.float32


class Frozen(nn.Module):
    """A loss for each row, and a weight that does not train."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([2.0, 3.0]))
        self.still = nn.Parameter(torch.tensor([5.0, 7.0]), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight * self.still


def test_losses_of_several_numbers_start_with_ones_and_frozen_weights_have_no_gradient() -> None:
    module = Frozen()
    results = around(module, loss=torch.tensor([1.0, 10.0])).native
    assert results["weight__grad"].tolist() == [5.0, 70.0]
    assert results.keys() == {"loss", "weight__grad"}
    assert module.weight.grad is None


def test_gradients_of_nobody_else_are_computed() -> None:
    own, other = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    runs = around(nn.Identity(), loss=torch.ones(2))
    assert runs._gradients([own * other], {"own": own}).keys() == {"own__grad"}
    assert other.grad is None


def test_results_do_not_change_with_their_tensors() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        tensor = torch.ones(2, dtype=dtype)
        array = _values(tensor)
        tensor.zero_()
        assert array.astype(np.float64).tolist() == [1.0, 1.0]


def test_what_no_part_of_the_program_has_is_called_by_its_path() -> None:
    runs = around(nn.BatchNorm1d(2), "out")
    assert runs.updated("running_mean") == "running_mean__updated"
    assert runs.updated("weight") == "weight__updated"


class Doubling(nn.Module):
    """Writes its own weight before it reads it, as embeddings with ``max_norm`` do."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([2.0, 3.0]))

    def forward(self, x: Tensor) -> Tensor:
        self.weight.data.mul_(2.0)
        return x * self.weight


@pytest.mark.parametrize("path", ["0.weight", "1.weight"])
def test_weights_that_are_written_are_copies_under_any_of_their_paths(path: str) -> None:
    layer = Doubling()
    runs = around(nn.Sequential(layer, layer), loss=torch.ones(2))
    runs.exported.captured.updates = (path,)  # type: ignore[misc]  # of a stand-in
    runs.exported.members = {"w": path}  # type: ignore[misc]
    results = runs.native
    assert results["loss"].tolist() == [32.0, 72.0]  # twice doubled, and written to by then
    assert results["w__updated"].tolist() == [8.0, 12.0]
    # What the first product read, and what the second one reads by now.
    assert results["w__grad"].tolist() == [4.0 + 8.0, 6.0 + 12.0]
    assert layer.weight.tolist() == [2.0, 3.0]
