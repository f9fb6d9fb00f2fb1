"""Empty tensors have a shape and a dtype, take no memory, and get their values when needed."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch

import samba_onnx as samba
from samba_onnx import SambaParameter, SambaTensor
from samba_onnx.errors import UsageError
from samba_onnx.tensor.random_values import FAITHFUL, RANDOM
from tests.tensor.memory_store import attached

HUGE = (1 << 30, 1 << 10)


def _counting() -> tuple[list[torch.Size], SambaTensor]:
    calls: list[torch.Size] = []

    def make(tensor: torch.Tensor) -> torch.Tensor:
        calls.append(tensor.shape)
        return torch.full(tensor.shape, float(len(calls)))

    return calls, SambaTensor(shape=(2, 3), dtype=torch.float32, name="x", materializer=make)


def test_a_shape_may_be_any_iterable_and_takes_no_memory() -> None:
    tensor = SambaTensor(shape=reversed(HUGE), dtype=torch.bfloat16)
    assert tensor.shape == HUGE[::-1]
    assert tensor.dtype == torch.bfloat16
    assert not tensor.has_data
    assert not tensor.reusable()
    assert SambaTensor(shape=()).dtype == torch.float32
    assert "keep_data: False" in repr(tensor)


def test_values_are_made_once_in_place_and_anew_for_torch_tensor() -> None:
    calls, tensor = _counting()
    assert tensor.torch_tensor().unique().tolist() == [1.0]
    assert tensor.torch_tensor().unique().tolist() == [2.0]
    assert not tensor.has_data
    tensor.materialize_()
    tensor.materialize_()
    assert tensor.has_data
    assert tensor.data.unique().tolist() == [3.0]
    assert calls == [torch.Size([2, 3])] * 3
    assert tensor.stride() == (3, 1)


def test_computing_and_transferring_make_the_values() -> None:
    _, tensor = _counting()
    assert (tensor + 1).sum().item() == 12
    _, tensor = _counting()
    assert torch.stack([tensor, tensor]).sum().item() == 12
    _, tensor = _counting()
    assert tensor[0, 0].item() == 1
    _, tensor = _counting()
    with attached(x=torch.zeros(2, 3)) as store:
        tensor.rdu()
        assert store.places["x"].sum().item() == 6


def test_a_materializer_may_take_the_documented_keywords() -> None:
    def make(shape: tuple[int, ...], dtype: torch.dtype, requires_grad: bool) -> torch.Tensor:
        return torch.ones(shape, dtype=dtype, requires_grad=requires_grad)

    parameter = SambaParameter(shape=(2,), dtype=torch.bfloat16, materializer=make)
    assert parameter.torch_tensor().dtype == torch.bfloat16
    assert (parameter * 2).requires_grad


def test_the_materialized_values_take_the_tensor_s_dtype() -> None:
    tensor = SambaTensor(shape=(2,), dtype=torch.bfloat16, materializer=lambda t: torch.ones(2))
    assert tensor.torch_tensor().dtype == torch.bfloat16


def test_a_materializer_may_take_a_source_of_random_values() -> None:
    def make(tensor: SambaTensor, rng: Any) -> torch.Tensor:
        return rng.normal(3.0, 0.1, tensor.shape) + rng.uniform(-0.1, 0.1, shape=tensor.shape)

    torch.manual_seed(5)
    values = SambaTensor(shape=(100,), materializer=make).torch_tensor()
    assert 2.9 < values.mean() < 3.1
    torch.manual_seed(5)
    assert torch.equal(SambaTensor(shape=(100,), materializer=make).torch_tensor(), values)
    parameter = SambaParameter(
        shape=(2,), materializer=lambda p, source: source.uniform(1, 2, (2,))
    )
    assert 1 <= parameter.torch_tensor().min() <= 2
    keyword = SambaTensor(shape=(2,), materializer=lambda t, *, rng: rng.normal(shape=t.shape))
    assert keyword.torch_tensor().shape == (2,)
    narrow = SambaTensor(
        shape=(4,),
        dtype=torch.bfloat16,
        materializer=lambda shape, dtype, requires_grad, rng: rng.normal(0, 1, shape, dtype=dtype),
    )
    assert narrow.torch_tensor().dtype == torch.bfloat16


def test_a_second_parameter_with_a_default_is_the_programs_own() -> None:
    original = torch.arange(6.0).reshape(3, 2)
    parameter = SambaParameter(
        shape=(2, 3), materializer=lambda tensor, original_tensor=original: original_tensor.T
    )
    assert torch.equal(parameter.torch_tensor(), original.T)


def test_random_values_under_a_seed_depend_on_the_name_only() -> None:
    def values(name: str) -> torch.Tensor:
        tensor = SambaTensor(
            shape=(4,), name=name, materializer=lambda t, rng: rng.normal(shape=t.shape)
        )
        return tensor.torch_tensor()

    try:
        RANDOM.seed(11, FAITHFUL)
        first, other = values("a"), values("b")
        torch.rand(3)
        assert torch.equal(values("a"), first)
        assert not torch.equal(first, other)
        RANDOM.seed(12, FAITHFUL)
        assert not torch.equal(values("a"), first)
    finally:
        RANDOM.seed(None, FAITHFUL)


def test_without_materializer_reading_is_refused_and_writing_is_not() -> None:
    tensor = SambaTensor(shape=(2,), name="weight")
    for read in (tensor.torch, tensor.materialize_, tensor.tolist, tensor.abs, tensor.rdu):
        with (
            attached(weight=torch.ones(2)),
            pytest.raises(UsageError, match=r"'weight' of shape \(2,\) has no data"),
        ):
            read()
    tensor.copy_(torch.ones(2))
    assert tensor.tolist() == [1.0, 1.0]
    parameter = SambaParameter(shape=(2,))
    torch.nn.init.ones_(parameter)
    assert parameter.tolist() == [1.0, 1.0]


def test_a_materializer_that_makes_something_else_is_refused() -> None:
    tensor = SambaTensor(shape=(2,), name="x", materializer=lambda t: torch.ones(3))
    with pytest.raises(UsageError, match=r"'x' made \(3,\); it must make a tensor of shape \(2,\)"):
        tensor.materialize_()
    tensor.materializer = lambda t: None
    with pytest.raises(UsageError, match="made NoneType"):
        tensor.materialize_()


def test_clearing_leaves_the_wrapped_tensor_alone() -> None:
    plain = torch.ones(2)
    tensor = samba.from_torch_tensor(plain, name="x")
    tensor.clear_data()
    assert plain.tolist() == [1.0, 1.0]
    assert (tensor.has_data, tensor.shape, tensor.sn_name) == (False, (2,), "x")
    tensor.data = torch.zeros(2)
    assert tensor.has_data


def test_copies_and_state_of_empty_parameters_stay_empty() -> None:
    parameter = SambaParameter(shape=HUGE, materializer=lambda t: torch.ones(1))
    for twin in (copy.deepcopy(parameter), copy.copy(parameter), parameter.detach()):
        assert isinstance(twin, SambaTensor)
        assert not twin.has_data
        assert twin.materializer is parameter.materializer
    assert not parameter.detach().requires_grad


def test_wrapping_an_empty_tensor_gives_an_empty_tensor() -> None:
    _, tensor = _counting()
    for twin in (SambaTensor(tensor, name="y"), SambaParameter(tensor, name="y")):
        assert (twin.has_data, twin.shape, twin.sn_name) == (False, (2, 3), "y")
        assert twin.materializer is tensor.materializer
    module = torch.nn.Module()
    module.weight = torch.nn.Parameter(samba.ones(2, name="mine"))
    samba.from_torch_model_(module)
    assert isinstance(module.weight, SambaParameter)
    assert module.weight.sn_name == "module__weight"


def test_saving_makes_the_values() -> None:
    _, tensor = _counting()
    file = io.BytesIO()
    torch.save(tensor, file)
    file.seek(0)
    assert torch.load(file).sum().item() == 6


EXAMPLES = {
    "type_as": lambda x: torch.zeros(2, dtype=torch.float64).type_as(x),
    "to": lambda x: torch.zeros(2, dtype=torch.float64).to(x),
    "to, by name": lambda x: torch.zeros(2, dtype=torch.float64).to(tensor=x),
    "view_as": lambda x: torch.zeros(6).view_as(x),
    "reshape_as": lambda x: torch.zeros(6).reshape_as(x),
    "expand_as": lambda x: torch.zeros(3).expand_as(x),
    "zeros_like": torch.zeros_like,
    "zeros_like, by name": lambda x: torch.zeros_like(input=x),
    "ones_like": torch.ones_like,
    "full_like": lambda x: torch.full_like(x, 2.0),
    "empty_like": torch.empty_like,
    "rand_like": torch.rand_like,
    "randn_like": torch.randn_like,
    "samba.randn_like": samba.randn_like,
    "randint_like": lambda x: torch.randint_like(x, 3),
    "new_zeros": lambda x: x.new_zeros(2),
    "new_ones": lambda x: x.new_ones((2, 2)),
    "new_full": lambda x: x.new_full((2,), 1.0),
    "new_empty": lambda x: x.new_empty(2),
    "new_tensor": lambda x: x.new_tensor([1.0]),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_empty_tensor_can_be_an_example(name: str) -> None:
    """As outputs of a trace are: programs write ``outputs[0].sn_grad = torch.ones_like(outputs[0])``."""
    empty = SambaTensor(shape=(2, 3), dtype=torch.float32, name="x")
    result, expected = EXAMPLES[name](empty), EXAMPLES[name](torch.zeros(2, 3))
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
    if not any(word in name for word in ("empty", "rand")):
        assert torch.equal(samba.to_torch(result), expected)
    calls, lazy = _counting()
    EXAMPLES[name](lazy)
    assert not calls
    assert not empty.has_data
    assert empty.type() == lazy.type() == "torch.FloatTensor"


def test_values_that_an_example_is_given_are_made() -> None:
    value = SambaTensor(shape=(), dtype=torch.float32, materializer=lambda _: torch.tensor(3.0))
    empty = SambaTensor(shape=(2,), dtype=torch.float32)
    assert torch.full_like(empty, value).tolist() == [3.0, 3.0]
    lazy = SambaTensor(shape=(2,), dtype=torch.float32, materializer=lambda _: torch.ones(2))
    assert lazy.expand_as(torch.zeros(2, 2)).tolist() == [[1.0, 1.0]] * 2
    assert torch.reshape(input=lazy, shape=(2, 1)).tolist() == [[1.0], [1.0]]
