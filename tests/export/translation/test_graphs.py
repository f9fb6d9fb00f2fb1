from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from samba_onnx.errors import InternalError, ModelError
from samba_onnx.export.operators import registry
from samba_onnx.export.programs.inference import inference_program
from samba_onnx.program.source_location import source_location
from tests.export.exporting import check
from tests.versions import needs


class Calls(nn.Module):
    """Calls a function of its arguments."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def kinds(function: Callable[..., Any], *inputs: Tensor) -> Counter[str]:
    exported = check(Calls(function), inputs)
    return Counter(node.op_type for node in exported.program.parts[0].model.graph)


def test_operators_without_a_translation_are_decomposed() -> None:
    assert registry.find("aten", "diff", "default") is None
    assert registry.find("aten", "einsum", "default") is None
    kinds(lambda value: torch.diff(value, dim=-1), torch.randn(3, 4))
    found = kinds(
        lambda one, other: torch.einsum("bij,bkj->bik", one, other),
        torch.randn(2, 3, 4),
        torch.randn(2, 5, 4),
    )
    assert found["MatMul"] == 1


def test_decompositions_keep_scope_and_line() -> None:
    program = inference_program(Calls(torch.diff), (torch.arange(4.0),))
    nodes = list(program.parts[0].model.graph)
    assert all(source_location(node).startswith("test_graphs.py:") for node in nodes)
    assert all((node.name or "").startswith("calls__") for node in nodes)


def test_operators_that_nothing_reads_are_left_out() -> None:
    def compute(value: Tensor) -> Tensor:
        torch.exp(value)
        return value + 1

    assert kinds(compute, torch.randn(2)) == {"Add": 1}


def test_transposed_matrices_are_read_as_they_lie() -> None:
    def compute(bias: Tensor, left: Tensor, right: Tensor) -> Tensor:
        return torch.addmm(bias, left, right.t())

    found = kinds(compute, torch.randn(5), torch.randn(2, 3), torch.randn(5, 3))
    assert found["Gemm"] == 1


def test_unknown_operators_are_borrowed_from_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxscript")
    monkeypatch.delitem(registry._TABLE, "conv2d")
    monkeypatch.delitem(registry._TABLE, "convolution")
    found = kinds(nn.functional.conv2d, torch.randn(1, 2, 5, 5), torch.randn(3, 2, 3, 3))
    assert found["Conv"] == 1


@torch.library.custom_op("samba_tests::unknown", mutates_args=())
def unknown(value: Tensor) -> Tensor:
    return value.clone()


@unknown.register_fake
def _(value: Tensor) -> Tensor:
    return torch.empty_like(value)


def test_operators_that_nobody_can_write_are_refused_with_their_line() -> None:
    wanted = r"samba_tests\.unknown\.default at test_graphs\.py:\d+ has no translation"
    with pytest.raises(ModelError, match=wanted) as info:
        inference_program(Calls(unknown), (torch.randn(3, 3),))
    assert info.value.operator == "samba_tests.unknown.default"
    assert str(info.value.location).startswith("test_graphs.py:")


def test_wrong_results_of_a_translation_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def transposed(context: registry.Context, value: Any) -> Any:
        return context.build.transpose(value, [1, 0])

    monkeypatch.setitem(registry._TABLE, "exp", transposed)
    with pytest.raises(InternalError, match=r"aten\.exp\.default made FLOAT \[3, 2\]"):
        inference_program(Calls(torch.exp), (torch.randn(2, 3),))


SEVEN = torch.tensor([-7.5, -2.5, -0.5, 0.0, 0.5, 2.5, 7.0])
WHOLE = torch.tensor([-7, -3, -1, 1, 2, 3, 7])
STRANGE = torch.tensor([float("nan"), float("inf"), -float("inf"), 1.0, -1.0])
MATRIX = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
BYTES = torch.tensor([200, 100, 3, 0], dtype=torch.uint8)

SAMPLES: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "remainder has the sign of the divisor": (lambda a: (a % 2, a % -2), (SEVEN,)),
    "remainder of integers": (lambda a: (a % 3, a % -3), (WHOLE,)),
    "fmod has the sign of the dividend": (lambda a: torch.fmod(a, -2), (SEVEN,)),
    "floor division of integers": (lambda a: (a // 2, a // -2), (WHOLE,)),
    "floor division where rounding misleads": (lambda a: a // 0.1, (torch.tensor([1.0, 0.3]),)),
    "floor division by zero": (lambda a: a // (a - a), (STRANGE,)),
    "truncated division": (lambda a: torch.div(a, 2, rounding_mode="trunc"), (WHOLE,)),
    "true division of integers": (lambda a: a / 2, (WHOLE,)),
    "rounding to the even number": (torch.round, (SEVEN,)),
    "rounding to decimals": (lambda a: torch.round(a, decimals=-1), (SEVEN,)),
    "truncation": (torch.trunc, (SEVEN,)),
    "fraction": (torch.frac, (SEVEN,)),
    "maximum of what is not a number": (lambda a: torch.maximum(a, a.flip(0)), (STRANGE,)),
    "fmax of what is not a number": (lambda a: torch.fmax(a, a.flip(0)), (STRANGE,)),
    "clamp of what is not a number": (lambda a: a.clamp(-0.5, 0.5), (STRANGE,)),
    "clamp between tensors": (lambda a: a.clamp(a.flip(0), a * 0), (SEVEN,)),
    "clamp of integers": (lambda a: (a.clamp(min=-2), a.clamp(max=2.0)), (WHOLE,)),
    "relu of integers": (torch.relu, (WHOLE,)),
    "nan_to_num": (torch.nan_to_num, (STRANGE,)),
    "properties": (lambda a: (a.isnan(), a.isinf(), a.isfinite(), a.signbit()), (STRANGE,)),
    "wrapping around": (lambda a: (a + a, a * 3, a - 201), (BYTES,)),
    "comparison across types": (lambda a: (a > 1.5, a == 3.0, a <= True), (WHOLE,)),
    "comparison of narrow integers": (lambda a: (a > 150, a == a.flip(0), a < -1), (BYTES,)),
    "booleans add and multiply": (lambda a: ((a > 0) + (a < 0), (a > 0) * (a > 2)), (WHOLE,)),
    "shifts of negative numbers": (lambda a: (a << 2, a >> 1), (WHOLE,)),
    "bits": (lambda a: (a & 3, a | 8, a ^ 5, ~a), (WHOLE,)),
    "logarithm near one": (torch.log1p, (torch.tensor([1e-8, 1e-4, 0.7, 50.0, -0.5]),)),
    "exponential near one": (torch.expm1, (torch.tensor([1e-8, -1e-4, 0.7, 5.0, -9.0]),)),
    "powers": (lambda a: (a**2, a**3, a**-1, a**0, 2**a), (SEVEN[:3],)),
    "powers of integers": (lambda a: (a**2, a**3, a**5), (WHOLE,)),
    "angles": (lambda a: torch.atan2(a, a.flip(0)), (SEVEN,)),
    "sum of integers": (lambda a: (a.sum(), a.sum(0, keepdim=True)), (BYTES,)),
    "mean of nothing": (lambda a: (a[:0].mean(), a[:0].sum()), (SEVEN,)),
    "extrema of what is not a number": (lambda a: (a.amax(), a.amin(), a.max(0)[0]), (STRANGE,)),
    "places of extrema": (lambda a: (a.max(1), a.min(0, True), a.argmax(), a.argmin(1)), (MATRIX,)),
    "variance": (lambda a: (a.var(), a.var(0), a.std(1, correction=0, keepdim=True)), (MATRIX,)),
    "norms": (lambda a: (a.norm(), a.norm(1, 1), a.norm(float("inf"), 0), a.norm(3)), (MATRIX,)),
    "logsumexp": (lambda a: (a * 1e3).logsumexp(1), (MATRIX,)),
    "any and all": (lambda a: ((a > 2).any(), (a > -5).all(1), a.any(0)), (MATRIX,)),
    "products": (lambda a: (a.prod(), a.prod(1)), (MATRIX,)),
    "rank zero": (lambda a: (a.sum(0), a.max(), a.softmax(0), a.t(), a.flip(0)), (SEVEN[0],)),
    "negative steps and slices": (lambda a: (a[1:, ::2], a[-1], a[:, None, 1:1]), (MATRIX,)),
    "rolls": (lambda a: (a.roll(1), a.roll((1, -2), (0, 1)), a.flip(0, 1)), (MATRIX,)),
    "windows": (lambda a: (a.unfold(1, 2, 1), a.diagonal(1), a.tril(-1), a.triu(1)), (MATRIX,)),
    "triangles of integers": (lambda a: (a.view(7, 1) * a).int().tril(), (WHOLE,)),
    "parts": (lambda a: (a.chunk(3, 1), a.split([1, 3], 1), a.unbind(0)), (MATRIX,)),
    "repetition": (lambda a: (a.repeat(2, 1, 2), a.repeat_interleave(2, 1)), (MATRIX,)),
    "empty vectors in cat": (lambda a: torch.cat([a[:0], a, a[:0]]), (SEVEN,)),
    "types in cat and where": (lambda a, b: (torch.cat([a, b]), torch.where(a > 0, a, b)), (SEVEN, WHOLE)),
    "determinants": (torch.linalg.det, (MATRIX[:, :3],)),
    "products of nothing": (lambda a: a[:, :0] @ a[:0].reshape(0, 4), (MATRIX,)),
    "products with vectors": (lambda a: (a @ a[0], a[:, 0] @ a, a[0] @ a[0]), (MATRIX,)),
    "products of integers": (lambda a: (torch.outer(a, a), a @ a, a.view(7, 1) @ a.view(1, 7)), (WHOLE,)),
    "activations": (
        lambda a: [
            function(a)
            for function in (
                nn.functional.elu, nn.functional.selu, nn.functional.celu, nn.functional.mish,
                nn.functional.hardswish, nn.functional.hardsigmoid, nn.functional.softplus,
                nn.functional.logsigmoid, nn.functional.softshrink, nn.functional.hardshrink,
                nn.functional.relu6, nn.functional.gelu, nn.functional.silu, nn.functional.softsign,
                nn.functional.tanhshrink, nn.functional.leaky_relu,
            )
        ],
        (SEVEN,),
    ),
    "creation": (
        lambda a: (torch.arange(1, 9, 3), torch.eye(3), torch.linspace(0, 1, 5) + a[0], a.new_full((2,), 3)),
        (SEVEN,),
    ),
    "conversion": (lambda a: (a.int(), a.bool(), a.to(torch.uint8), a.half().float()), (SEVEN.abs(),)),
}  # fmt: skip


@pytest.mark.parametrize(
    "sample",
    [
        # Of int32, which is computed in int64 where onnxruntime lacks it.
        pytest.param(sample, id=name, marks=[needs("onnxruntime", "1.30")] * ("triangles" in name))
        for name, sample in SAMPLES.items()
    ],
)
def test_semantics_are_those_of_torch(
    sample: tuple[Callable[..., Any], tuple[Tensor, ...]],
) -> None:
    function, inputs = sample
    check(Calls(function), inputs)


@pytest.mark.skipif(not hasattr(torch, "_grouped_mm"), reason="torch has no grouped products")
def test_grouped_products_of_experts_are_refused_with_what_to_set() -> None:
    experts = Calls(lambda x, weights, ends: torch._grouped_mm(x, weights, offs=ends))
    inputs = (
        torch.randn(8, 16, dtype=torch.bfloat16),
        torch.randn(2, 16, 16, dtype=torch.bfloat16),
        torch.tensor([4, 8], dtype=torch.int32),
    )
    with pytest.raises(
        ModelError, match=r"_grouped_mm.* set_experts_implementation\('batched_mm'\)"
    ):
        inference_program(experts, inputs)
