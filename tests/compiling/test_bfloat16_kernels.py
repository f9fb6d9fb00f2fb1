"""Programs in bfloat16 on the emulator against torch, in units of the last place.

Torch's own bfloat16 kernels are no truth: they differ from machine to machine. On one with AVX-512 a
ConvTranspose2d rounds once, on one with AVX2 it rounds within its sums, up to 78 units off; without vectors a
sum with a factor rounds twice. So torch runs each operator by its definition: in float64 on operands of bfloat16, and
rounded once. float64 kernels differ between machines, too, in digits that no bfloat16 shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from samba_onnx.comparing.eager.running import feeds_of, run_part
from samba_onnx.export.capture.precision import computing_in
from samba_onnx.export.programs.inference import export_inference
from samba_onnx.facts.precisions import Precision


class Called(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs)


class Defined(TorchDispatchMode):
    """Lets every operator compute in float64 what it has in bfloat16, and round its results once."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        narrow = False

        def widened(value: Any) -> Any:
            nonlocal narrow
            is_narrow = isinstance(value, Tensor) and value.dtype == torch.bfloat16
            narrow |= is_narrow or value is torch.bfloat16
            if is_narrow:
                return value.double()
            return torch.float64 if value is torch.bfloat16 else value

        wide = tree_map(widened, (args, dict(kwargs or {})))
        result = func(*wide[0], **wide[1])
        if not narrow:
            return result
        return tree_map(
            lambda value: (
                value.bfloat16()
                if isinstance(value, Tensor) and value.dtype == torch.float64
                else value
            ),
            result,
        )


def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return torch.softmax(query @ key.transpose(-1, -2) * 0.25, -1) @ value


def scaled_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """By a factor that bfloat16 lacks, as of all heads whose width is no power of 4."""
    scores = 3 * query @ key.transpose(-1, -2) / math.sqrt(24)
    return torch.softmax(scores * 0.7, -1) @ value.abs()


def curves(x: Tensor) -> Tensor:
    """Activations as models write them out, with numbers that bfloat16 lacks."""
    bent = 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))))
    return torch.cat([bent, x * torch.sigmoid(1.702 * x)])


def fused(x: Tensor, other: Tensor) -> Tensor:
    """Functions with a factor inside, which torch rounds once, but twice on a machine without vectors."""
    x, other = x.abs(), other.abs()  # of terms that cancel nobody knows a last place
    numbers = [torch.lerp(x, other, 0.3), torch.lerp(x, other, 0.8)]
    numbers += [torch.add(x, other, alpha=0.3), torch.sub(x, -other, alpha=1.7)]
    numbers += [torch.addcmul(x, x, other, value=0.3)]
    numbers += [torch.addcdiv(x, x, other + 1, value=0.3)]
    return torch.cat(numbers)


def functions(x: Tensor, other: Tensor) -> Tensor:
    """Functions of torch that are several operators of ONNX, and round once in torch."""
    numbers = [x / 0.3, x * 0.1, x // 0.3, torch.hypot(x, other), torch.atan2(x, other)]
    numbers += [torch.div(x, 0.3, rounding_mode="trunc"), functional.softshrink(x, 0.3)]
    curved = [torch.log1p(x.abs()), torch.expm1(x), torch.log2(x.abs()), torch.log10(x.abs())]
    curved += [torch.sinc(x), torch.logcumsumexp(x, 1), (1 + x / 64).cumprod(1)]
    return torch.cat(numbers + curved)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def distances(answer: Any, expected: Tensor) -> Any:
    """Return how many numbers of bfloat16 lie between two of them."""
    torchs, ours = expected.bfloat16(), torch.from_numpy(np.asarray(answer, np.float32)).bfloat16()
    bits = [tensor.view(torch.int16).numpy().astype(np.int64) for tensor in (ours, torchs)]
    places = [np.where(each < 0, -(each & 0x7FFF), each) for each in bits]
    return np.abs(places[0] - places[1])


SEQUENCE = drawn(4, 16, 64)
PICTURE = drawn(2, 16, 14, 14)
HEADS = tuple(drawn(2, 4, 32, 16, seed=seed) for seed in range(3))


@pytest.mark.parametrize(
    ("module", "inputs"),
    [
        (nn.Linear(64, 48), (SEQUENCE,)),
        (nn.Linear(64, 48, bias=False), (drawn(32, 64),)),
        (nn.Conv2d(16, 32, 3, padding=1), (PICTURE,)),
        (nn.ConvTranspose2d(16, 8, 2, stride=2), (PICTURE,)),
        (nn.LayerNorm(64), (SEQUENCE,)),
        (nn.RMSNorm(64), (SEQUENCE,)),
        (nn.GroupNorm(4, 16), (PICTURE,)),
        (nn.BatchNorm2d(16).eval(), (PICTURE,)),
        (nn.Softmax(-1), (SEQUENCE,)),
        (nn.LogSoftmax(-1), (SEQUENCE,)),
        (nn.GELU(), (SEQUENCE,)),
        (nn.GELU("tanh"), (SEQUENCE,)),
        (nn.SiLU(), (SEQUENCE,)),
        (nn.Mish(), (SEQUENCE,)),
        (nn.CELU(1.3), (SEQUENCE,)),
        (Called(curves), (SEQUENCE,)),
        (Called(functions), (SEQUENCE, drawn(4, 16, 64, seed=1))),
        (Called(fused), (SEQUENCE, drawn(4, 16, 64, seed=1))),
        (Called(scaled_attention), HEADS),
        (Called(lambda x: x.mean(-1)), (SEQUENCE,)),
        (nn.AvgPool2d(2), (PICTURE,)),
        (nn.Embedding(50, 8), (torch.arange(50),)),
        (nn.CrossEntropyLoss(), (drawn(8, 50), torch.arange(8))),
        (Called(attention), HEADS),
        (Called(lambda x: functional.relu(x) + x.exp()), (SEQUENCE,)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_operators_are_within_one_unit_of_the_last_place(
    module: nn.Module, inputs: tuple[Tensor, ...]
) -> None:
    torch.manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.2)
    with computing_in(Precision.BF16):
        exported = export_inference(module, inputs)
    feeds = feeds_of(module, list(inputs), exported)
    answer = run_part(exported.program.parts[0], feeds)[exported.outputs[0] or ""]
    assert answer.dtype == np.float32
    narrow = [x.bfloat16() if x.is_floating_point() else x for x in inputs]
    # Of functions of single numbers, some of which jump, torch's kernels are the definition, on every machine.
    own = isinstance(module, Called) and module.function in (curves, functions)
    with (
        torch.no_grad(),
        nullcontext() if own else Defined(),
    ):  # in bfloat16 itself, not by our modes
        expected = module.bfloat16()(*narrow)
    module.float()
    # What sums of float32 lose of terms that cancel may be many units of what is left of them.
    cancelled = np.abs(answer - expected.float().numpy()) <= 2.0**-20 * np.abs(answer).max()
    assert distances(answer, expected)[~cancelled].max(initial=0) <= 1
    assert (distances(answer, expected) > 1).mean() < 1e-3


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [32, 200])
def test_attention_is_within_one_unit_of_the_last_place_of_its_terms(
    length: int, causal: bool
) -> None:
    """In units of the sum of magnitudes that make an element; rounded scores were up to two of them off."""
    inputs = [drawn(2, 4, length, 24, seed=seed) for seed in range(3)]
    module = Called(partial(functional.scaled_dot_product_attention, is_causal=causal))
    with computing_in(Precision.BF16):
        exported = export_inference(module, inputs)
    answer = run_part(exported.program.parts[0], feeds_of(module, inputs, exported))
    narrow = [x.bfloat16() for x in inputs]
    with Defined():
        expected = module(*narrow).float().numpy()
    query, key, value = (x.float() for x in narrow)
    terms = module(query, key, value.abs()).numpy()
    unit = 2.0 ** (np.floor(np.log2(terms)) - 7)
    assert (np.abs(answer[exported.outputs[0] or ""] - expected) / unit).max() <= 1
