"""A converted module computes, trains, saves and copies like the torch module that it was."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import samba_onnx as samba
from samba_onnx import SambaParameter, SambaTensor
from samba_onnx.errors import UsageError
from samba_onnx.tensor import BUFFERS
from samba_onnx.tensor.modules import member_names


class Tied(nn.Module):
    """One matrix for the words that come in and those that go out."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(5, 4)
        self.out = nn.Linear(4, 5, bias=False)
        self.out.weight = self.words.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.out(self.words(x.abs().long().clamp(0, 4)))
        return scores


MODELS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(6, 4),
    "convolution": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.Flatten()
    ),
    "attention": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 6)), nn.TransformerEncoderLayer(6, 2, 8, dropout=0.1, batch_first=True)
    ),
    "tied": Tied,
    "list": lambda: nn.Sequential(nn.LayerNorm(6), *[nn.Linear(6, 6) for _ in range(2)], nn.GELU()),
}

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
}


def _pair(model: str) -> tuple[nn.Module, nn.Module]:
    samba.set_seed(0)
    plain = MODELS[model]()
    ours = copy.deepcopy(plain)
    samba.from_torch_model_(ours)
    return plain, ours


def _train(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[float]:
    samba.set_seed(1)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.randn(3, 6)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _equal(one: nn.Module, other: nn.Module) -> bool:
    return all(
        torch.equal(a, samba.to_torch(b))
        for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    )


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_takes_the_same_steps(model: str, optimizer: str) -> None:
    plain, ours = _pair(model)
    make = OPTIMIZERS[optimizer]
    expected = _train(plain, make(plain.parameters()))
    assert _train(ours, make(ours.parameters())) == expected
    assert _equal(plain, ours)
    assert all(isinstance(parameter, SambaParameter) for parameter in ours.parameters())
    x = torch.randn(2, 6)
    result = ours.eval()(x)
    assert isinstance(result, SambaTensor)
    assert torch.equal(result.torch(), plain.eval()(x))


@pytest.mark.parametrize("model", MODELS)
def test_copies_and_states_go_to_and_fro(model: str) -> None:
    plain, ours = _pair(model)
    twin = copy.deepcopy(ours)
    names = [parameter.sn_name for parameter in ours.parameters()]
    assert [parameter.sn_name for parameter in twin.parameters()] == names
    _train(ours, torch.optim.SGD(ours.parameters(), lr=0.1))
    assert _equal(plain, twin)
    file = io.BytesIO()
    torch.save(ours.state_dict(), file)
    for target in (plain, twin):
        file.seek(0)
        target.load_state_dict(torch.load(file))
        assert _equal(target, ours)
    plain.load_state_dict(ours.state_dict())
    assert type(next(plain.parameters())) is nn.Parameter
    values = ours.state_dict().values()
    assert all(isinstance(value, SambaTensor) for value in values if value.requires_grad)


def test_conversion_shares_memory_and_keeps_gradients_and_ties() -> None:
    model = Tied()
    model(torch.ones(1, 2)).sum().backward()
    weight = model.words.weight
    samba.from_torch_model_(model)
    assert model.words.weight is model.out.weight
    assert model.words.weight.data_ptr() == weight.data_ptr()
    assert model.words.weight.grad is weight.grad
    assert model.words.weight.sn_name == "tied__words__weight"
    again = model.words.weight
    samba.from_torch_model_(model, parent_module_prefix="text")
    assert model.out.weight is again
    assert again.sn_name == "text__tied__words__weight"


def test_names_follow_the_module_tree() -> None:
    model = nn.Linear(2, 3)
    samba.from_torch_model_(model)
    assert (model.name, model.weight.sn_name) == ("linear", "linear__weight")
    tower = nn.Sequential(nn.Sequential(nn.Linear(2, 3)), nn.BatchNorm1d(3))
    samba.from_torch_model_(tower, "img_encoder")
    assert tower[0][0].name == "img_encoder__sequential__0__0"  # type: ignore[index]
    assert tower[1].bias.sn_name == "img_encoder__sequential__1__bias"
    mean = BUFFERS["img_encoder__sequential__1__running_mean"]
    assert mean.torch() is tower[1].running_mean
    assert type(tower[1].running_mean) is torch.Tensor


def test_an_attribute_called_name_is_left_alone() -> None:
    model = nn.Linear(2, 3)
    model.name = "mine"  # type: ignore[assignment]
    samba.from_torch_model_(model)
    assert model.name == "mine"


def test_conversion_changes_no_flag() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2)).eval(), nn.Linear(2, 2))
    model[2].weight.requires_grad_(False)
    before = [module.training for module in model.modules()]
    samba.from_torch_model_(model)
    flags = [parameter.requires_grad for parameter in model.parameters()]
    assert flags == [True, True, True, True, False, True]
    assert [module.training for module in model.modules()] == before


class Pair(nn.Module):
    """Two modules under names of their own."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second


def _names(model: nn.Module) -> dict[str, str]:
    return {path: parameter.sn_name for path, parameter in model.named_parameters()}  # type: ignore[attr-defined]


def test_a_module_in_several_places_has_one_set_of_parameters() -> None:
    layer = nn.BatchNorm1d(2)
    model = nn.Sequential(layer, nn.Sequential(layer, nn.Linear(2, 2)), layer)
    samba.from_torch_model_(model)
    assert model[0] is model[2] is model[1][0]  # type: ignore[index]
    assert layer.weight.sn_name == "sequential__0__weight"
    names = member_names(model, "sequential")
    assert names["2.running_var"] == names["1.0.running_var"] == "sequential__0__running_var"


def test_models_that_share_modules_share_parameters_and_their_names() -> None:
    shared = nn.BatchNorm1d(2)
    one, other = Pair(shared, nn.Linear(2, 2)), Pair(nn.Linear(2, 2), shared)
    samba.from_torch_model_(one, "one")
    weight, before = shared.weight, _names(one)
    samba.from_torch_model_(other, "other")
    assert shared.weight is weight
    assert _names(one) == before
    assert _names(other)["second.weight"] == "one__pair__first__weight"
    names = member_names(other, "unused")
    assert names["second.running_mean"] == "one__pair__first__running_mean"
    assert names["first.weight"] == "other__pair__first__weight"
    samba.from_torch_model_(one, "again")
    assert _names(one)["first.weight"] == "again__pair__first__weight"
    assert member_names(one, "")["first.running_mean"] == "again__pair__first__running_mean"
    assert "one__pair__first__running_mean" not in BUFFERS


def test_a_name_from_another_model_gives_way_to_the_models_own() -> None:
    shared = nn.Linear(2, 2)
    one = Pair(shared, nn.Linear(2, 2))
    samba.from_torch_model_(one)
    other = Pair(nn.Linear(2, 2), shared)
    samba.from_torch_model_(other)  # its own first.weight has the name that shared.weight had
    assert len(set(_names(other).values())) == 4


def test_names_that_a_model_gave_go_with_it() -> None:
    shared = nn.Linear(2, 2)
    samba.from_torch_model_(Pair(shared, nn.Linear(2, 2)), "gone")
    model = nn.Sequential(shared)
    samba.from_torch_model_(model)
    assert shared.weight.sn_name == "sequential__0__weight"


def test_parameters_tied_across_models_stay_tied() -> None:
    one, other = nn.Linear(2, 2), nn.Linear(2, 2)
    other.weight = one.weight
    samba.from_torch_model_(one)
    samba.from_torch_model_(other)
    assert other.weight is one.weight
    assert other.bias is not one.bias


def test_a_model_on_the_meta_device_is_converted_empty() -> None:
    with torch.device("meta"):
        model = nn.Linear(1 << 20, 1 << 20)
    samba.from_torch_model_(model)
    assert isinstance(model.weight, SambaParameter)
    assert not model.weight.has_data
    assert model.weight.requires_grad
    small = nn.Linear(3, 2, device="meta")
    samba.from_torch_model_(small)
    source = nn.Linear(3, 2)
    small.load_state_dict(source.state_dict())
    assert _equal(source, small)


def test_parameters_without_memory_that_are_tied_stay_tied() -> None:
    with torch.device("meta"):
        first, second, third = (nn.Linear(3, 3) for _ in range(3))
    second.weight = first.weight
    model = nn.Sequential(first, second, third)
    samba.from_torch_model_(model)
    assert first.weight is second.weight
    assert first.weight is not third.weight
    assert len(list(model.parameters())) == 5
    assert first.weight.sn_name == "sequential__0__weight"


def test_hooks_see_samba_tensors() -> None:
    _, model = _pair("list")
    seen: list[type] = []
    model.register_forward_hook(lambda _module, _inputs, output: seen.append(type(output)))
    model[1].register_forward_pre_hook(lambda _module, inputs: seen.append(type(inputs[0])))  # type: ignore[index]
    grads: list[torch.Size] = []
    model[1].weight.register_hook(lambda grad: grads.append(grad.shape))  # type: ignore[index]
    model(torch.ones(1, 6)).sum().backward()
    assert seen == [SambaTensor, SambaTensor]
    assert grads == [torch.Size([6, 6])]


def test_conversion_to_another_type_keeps_parameters() -> None:
    _, model = _pair("linear")
    model.to(torch.bfloat16)
    assert all(isinstance(parameter, SambaParameter) for parameter in model.parameters())
    assert model(torch.ones(1, 6, dtype=torch.bfloat16)).dtype == torch.bfloat16
    assert next(model.parameters()).sn_name == "linear__weight"


def test_what_cannot_be_converted_is_refused() -> None:
    with pytest.raises(UsageError, match="was given list; give a module"):
        samba.from_torch_model_([])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="'weight' has no shape yet"):
        samba.from_torch_model_(nn.LazyLinear(3))


def test_a_name_that_cannot_be_set_is_left_alone() -> None:
    class Named(nn.Linear):
        @property
        def name(self) -> None:
            return None

    model = Named(2, 3)
    samba.from_torch_model_(model)
    assert model.name is None
    assert [p.sn_name for p in model.parameters()] == ["named__weight", "named__bias"]  # type: ignore[attr-defined]


def test_a_buffer_of_the_fake_mode_is_no_buffer_of_the_device() -> None:
    model = nn.BatchNorm1d(2)
    with FakeTensorMode():
        model.register_buffer("table", torch.zeros(2))
        unmade = nn.Linear(2, 2)
    with pytest.raises(UsageError, match=r"'weight' has no values: .* make it outside"):
        samba.from_torch_model_(unmade)
    before = dict(BUFFERS)
    samba.from_torch_model_(model)
    assert not [name for name in BUFFERS.keys() - before.keys() if "table" in name]
    # Later models are named among all buffers that there are.
    samba.from_torch_model_(nn.BatchNorm1d(2))
