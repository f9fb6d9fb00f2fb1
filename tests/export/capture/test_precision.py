"""Modules compute in bfloat16 what they state in float32, in eager torch as when they are exported."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from samba_onnx.export.capture.precision import computing, computing_in, native_precision
from samba_onnx.facts.precisions import Precision, describe_precision, stored_precision

BF16, MIXED = Precision.BF16, Precision.MIXED


class Called(nn.Module):
    """A module that calls a function with its input, and keeps the types that it was told."""

    def __init__(self, function: Callable[[Tensor, nn.Linear], Tensor]) -> None:
        super().__init__()
        self.linear, self.function = nn.Linear(4, 4), function
        self.types: list[torch.dtype] = []

    def forward(self, x: Tensor) -> Tensor:
        result = self.function(x, self.linear)
        with (
            torch._C.DisableTorchFunction()
        ):  # the module's own question is answered by its precision
            self.types.append(result.dtype)
        return result


def types(function: Callable[[Tensor, nn.Linear], Tensor], precision: Precision) -> torch.dtype:
    """Return the type of what a function returns in ``forward``, whose result is float32 again."""
    module = Called(function)
    with computing_in(precision), computing(module):
        assert module(torch.randn(2, 4)).dtype in (torch.float32, torch.int64)
    return module.types[0]


@pytest.mark.parametrize(
    ("function", "bf16", "mixed", "throughout"),
    [
        (lambda x, f: f(x), "bfloat16", "bfloat16", "bfloat16"),
        (lambda x, f: x + 1, "bfloat16", "float32", "bfloat16"),
        (lambda x, f: f(x).relu().reshape(4, 2), "bfloat16", "bfloat16", "bfloat16"),
        (lambda x, f: f(x).exp(), "bfloat16", "float32", "bfloat16"),
        (lambda x, f: f(x).float().exp() * x, "float32", "float32", "bfloat16"),
        (lambda x, f: f(f(x).float() + f(x)), "float32", "bfloat16", "bfloat16"),
        (lambda x, f: functional.linear(f(x).float(), f(x)), "bfloat16", "bfloat16", "bfloat16"),
        (lambda x, f: f(x).to(f.weight.dtype), "bfloat16", "float32", "bfloat16"),
        (lambda x, f: torch.zeros(2, 4).add_(f(x)), "float32", "float32", "float32"),
        (lambda x, f: f(x).argmax(-1), "int64", "int64", "int64"),
    ],
)
def test_functions_compute_in(
    function: Callable[[Tensor, nn.Linear], Tensor], bf16: str, mixed: str, throughout: str
) -> None:
    names = {BF16: bf16, MIXED: mixed, Precision.BF16_THROUGHOUT: throughout}
    for precision, name in names.items():
        assert types(function, precision) is getattr(torch, name), precision


def test_own_types_and_switched_off_parts_stay() -> None:
    assert types(lambda x, f: f(x), Precision.FP32) is torch.float32

    def part(x: Tensor, f: nn.Linear) -> Tensor:
        with native_precision():
            return f(x)

    assert types(part, BF16) is torch.float32


def test_a_weight_is_converted_once_and_its_gradient_is_float32() -> None:
    module = Called(lambda x, f: f(f(x)))
    with computing_in(BF16), computing(module) as state:
        module(torch.randn(2, 4)).sum().backward()
    assert module.linear.weight.grad is not None
    assert module.linear.weight.grad.dtype is torch.float32
    assert not state.wide


def test_statistics_stay_float32_and_are_written() -> None:
    module = nn.BatchNorm1d(4)
    with computing_in(BF16), computing(module) as state:
        module(torch.randn(8, 4) + 1)
    assert module.running_mean is not None
    assert module.running_mean.dtype is torch.float32
    assert module.running_mean.abs().min() > 0
    assert state.wide == {"running statistics": {"batch_norm": 1}}


@pytest.mark.parametrize("precision", [BF16, MIXED, Precision.BF16_THROUGHOUT])
def test_what_the_module_states_in_bfloat16_is_returned_so(precision: Precision) -> None:
    class Stated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.norm = nn.Linear(4, 4).bfloat16(), nn.LayerNorm(4).bfloat16()

        def forward(self, x: Tensor, other: Tensor) -> tuple[Tensor, ...]:
            own = self.norm(self.linear(x))
            return own, own.float(), other.exp(), own.float() * 2, own * 1.5

    x, other = torch.randn(2, 4, dtype=torch.bfloat16), torch.randn(2, 4)
    module = Stated()
    expected = module(x, other)
    with computing_in(precision), computing(module) as state:
        results = module(x, other=other)
    assert [result.dtype for result in results] == [result.dtype for result in expected]
    assert torch.equal(results[0], expected[0])
    assert not {"layer_norm", "linear"} & set().union(*state.wide.values(), set())


@pytest.mark.parametrize(
    ("function", "bf16", "mixed"),
    [
        (lambda x, f: f(x), "bfloat16", "float16"),
        (lambda x, f: f(x).to(f.weight.dtype) + 1, "bfloat16", "float16"),
        (lambda x, f: f(x).half().exp(), "bfloat16", "float16"),
        (lambda x, f: f(x).to(torch.float16), "bfloat16", "float16"),
        (lambda x, f: f(x).float().exp(), "float32", "float32"),
    ],
)
def test_float16_is_bfloat16_where_all_is_and_is_returned_as_float16(
    function: Callable[[Tensor, nn.Linear], Tensor], bf16: str, mixed: str
) -> None:
    for precision, name in ((BF16, bf16), (MIXED, mixed)):
        module = Called(function).half()
        with computing_in(precision), computing(module) as state:
            returned = module(torch.randn(2, 4).half())
        assert module.types == [getattr(torch, name)], precision
        assert returned.dtype is (torch.float32 if name == "float32" else torch.float16)
        assert state.narrows == (precision is BF16)
        assert module.linear.weight.dtype is torch.float16


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64])
def test_a_precision_that_changes_nothing_says_so(dtype: torch.dtype) -> None:
    module = nn.Identity() if dtype is torch.int64 else nn.Linear(4, 4).to(dtype)
    x = torch.ones(2, 4).to(dtype)
    with computing_in(BF16), computing(module) as state:
        assert module(x).dtype is dtype
    (sentence,) = describe_precision(state.metadata())
    assert sentence.startswith(
        "Precision bf16 changes nothing: the model has no operator on float32"
    )
    assert stored_precision(state.metadata()) is BF16
