"""Programs that are seldom written: each is compiled as torch runs it, or refused in one sentence.

The sentence names the user's line, or the module where there is none, and what to do instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.ao import quantization
from torch.nn.utils import rnn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from samba_onnx.comparing.eager.inference import compare_with_eager
from samba_onnx.comparing.eager.training import compare_training
from samba_onnx.comparing.outcome import ComparisonOutcome
from samba_onnx.compiling.torch.torch_programs import named_inputs
from samba_onnx.errors import SambaError
from samba_onnx.export.programs.inference import export_inference
from samba_onnx.export.programs.training import export_training


def row() -> Tensor:
    return torch.randn(3, 4)


class Net(nn.Module):
    def __init__(self, body: Callable[..., Tensor], setup: Callable[[Any], Any] | None) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 2)
        self.body = body
        if setup is not None:
            setup(self)

    def forward(self, x: Tensor, extra: Any = None) -> Tensor:
        return self.body(self, x) if extra is None else self.body(self, x, extra)


@dataclass(frozen=True)
class Program:
    """A module and its inputs."""

    body: Callable[..., Tensor]
    setup: Callable[[Any], Any] | None = None
    inputs: Callable[[], tuple[Any, ...]] = field(default=lambda: (row(),))

    def build(self) -> tuple[nn.Module, tuple[Any, ...]]:
        torch.manual_seed(0)
        return Net(self.body, self.setup), self.inputs()


def packed(net: Any, x: Tensor) -> Tensor:
    sequences = rnn.pack_padded_sequence(x, torch.tensor([3, 2]), batch_first=True)
    return rnn.pad_packed_sequence(net.layer(sequences)[0])[0].sum()


def asserted(net: Any, x: Tensor) -> Tensor:
    torch._assert((x > -100).all(), "values are too small")
    torch._assert(x.shape[0] == 3, "three rows are expected")
    return net.first(x).sum()


def falsely_asserted(net: Any, x: Tensor) -> Tensor:
    torch._assert(x.shape[0] == 7, "seven rows are expected")
    return net.first(x).sum()


def by_contiguity(net: Any, x: Tensor) -> Tensor:
    x = x * 2 if x.is_contiguous() else x + 1
    weight = net.weight * 3 if net.weight.is_contiguous() else net.weight
    hidden = net.first(x).t()
    return (hidden if hidden.is_contiguous() else hidden * 5).sum() + (x @ weight).sum()


def by_stride(net: Any, x: Tensor) -> Tensor:
    return net.first(x * x.stride(0)).sum()


@torch.jit.script
def doubled(x: Tensor) -> Tensor:
    return x * 2


def set_complex(net: Any) -> None:
    net.weight = nn.Parameter(torch.randn(4, dtype=torch.complex64))


def set_only_complex(net: Any) -> None:
    set_complex(net)
    for layer in (net.first, net.second):
        layer.requires_grad_(False)


def set_transposed(net: Any) -> None:
    net.weight = nn.Parameter(torch.randn(2, 4).t())


def transposed() -> tuple[Tensor]:
    return (torch.randn(4, 3).t(),)


WORKING: dict[str, Program] = {
    "DataParallel inside": Program(
        lambda net, x: net.inner(x).sum(),
        lambda net: setattr(net, "inner", nn.DataParallel(nn.Linear(4, 2))),
    ),
    "scripted function": Program(lambda net, x: doubled(net.first(x)).sum()),
    "vmap": Program(lambda net, x: torch.vmap(lambda r: net.second(net.first(r)))(x).sum()),
    "vmap in vmap": Program(
        lambda net, x: torch.vmap(lambda r: torch.vmap(lambda v: v * 2)(net.first(r)))(x).sum()
    ),
    "assertions": Program(asserted),
    "checkpoint": Program(
        lambda net, x: net.second(checkpoint(net.first, x, use_reentrant=False)).sum()
    ),
    "checkpointed sequence": Program(
        lambda net, x: checkpoint_sequential(
            nn.Sequential(net.first, net.second), 2, x, use_reentrant=False
        ).sum()
    ),
    "contiguity": Program(by_contiguity, set_transposed),
    "contiguity, transposed": Program(by_contiguity, set_transposed, transposed),
    "stride": Program(by_stride, None, transposed),
    "float": Program(lambda net, x, k: (net.first(x) * k).sum(), None, lambda: (row(), 2.5)),
    "flag": Program(
        lambda net, x, k: (net.first(x) if k else net.second(x)).sum(), None, lambda: (row(), False)
    ),
    "text": Program(lambda net, x, k: getattr(net, k)(x).sum(), None, lambda: (row(), "second")),
}

LINE = r"test_capture_refusals\.py:\d+"
REFUSED: dict[str, tuple[Program, str]] = {
    "scripted module": (
        Program(
            lambda net, x: net.inner(x).sum(),
            lambda net: setattr(net, "inner", torch.jit.script(nn.Linear(4, 2))),
        ),
        "module 'inner' was made by torch.jit of Linear.*give the Linear itself",
    ),
    "traced module": (
        Program(
            lambda net, x: net.inner(x).sum(),
            lambda net: setattr(net, "inner", torch.jit.trace(nn.Linear(4, 2), row())),
        ),
        "module 'inner' was made by torch.jit of Linear.*give the Linear itself",
    ),
    "packed sequence": (
        Program(
            packed,
            lambda net: setattr(net, "layer", nn.LSTM(4, 4, batch_first=True)),
            lambda: (torch.randn(2, 3, 4),),
        ),
        rf"{LINE}: pack_padded_sequence makes tensors whose sizes.*give the recurrent layer",
    ),
    "cond": (
        Program(
            lambda net, x: torch.cond(x.sum() > 0, lambda v: v * 1, lambda v: v * 2, (x,)).sum()
        ),
        rf"{LINE}: torch\.cond chooses by values.*torch\.where",
    ),
    "wrong assertion": (
        Program(falsely_asserted),
        rf"{LINE}: AssertionError: seven rows are expected",
    ),
    "wrong sizes": (
        Program(lambda net, x: net.first(x.reshape(-1, 7)).sum()),
        rf"{LINE}: RuntimeError: shape '\[-1, 7\]' is invalid",
    ),
    "complex parameter": (
        Program(lambda net, x: (net.first(x) * net.weight).abs().sum(), set_complex),
        rf"{LINE}: 'net__weight' holds complex numbers.*keep torch\.view_as_real",
    ),
    "numpy": (
        Program(lambda net, x: (net.first(x) * float(x.numpy().max())).sum()),
        rf"{LINE}: it makes a numpy array of a tensor.*compute with functions of torch",
    ),
    "numbers of a tensor": (
        Program(lambda net, x: (net.first(x) * float(x.max())).sum()),
        rf"{LINE}: Net takes a number out of input 'x'.*torch\.where",
    ),
    "counts without a number of classes": (
        Program(
            lambda net, x, y: net.first(x).sum() + torch.bincount(y).sum(),
            None,
            lambda: (row(), torch.tensor([0, 5, 8])),
        ),
        rf"{LINE}: the size of what bincount returns depends on values.*minlength",
    ),
    "observer of channels": (
        Program(
            lambda net, x: net.fake(net.first(x)).sum(),
            lambda net: setattr(net, "fake", quantization.default_per_channel_weight_fake_quant()),
        ),
        "'fake.activation_post_process' .*has not seen any numbers.*run the module once",
    ),
    "func.grad": (
        Program(lambda net, x: torch.func.grad(lambda v: net.first(v).pow(2).sum())(x).sum()),
        rf"{LINE}: gradients cannot be computed inside forward",
    ),
    "per-sample gradients": (
        Program(lambda net, x: torch.vmap(torch.func.grad(lambda v: net.first(v).sum()))(x).sum()),
        rf"{LINE}: gradients cannot be computed inside forward",
    ),
    "jacobian": (
        Program(lambda net, x: torch.func.jacrev(lambda v: net.first(v).sum(0))(x).sum()),
        rf"{LINE}: gradients cannot be computed inside forward",
    ),
    "jvp": (
        Program(lambda net, x: torch.func.jvp(net.first, (x,), (x,))[1].sum()),
        rf"{LINE}: gradients cannot be computed inside forward",
    ),
    "adaptive softmax": (
        Program(
            lambda net, x, y: net.loss(net.first(x), y).loss,
            lambda net: setattr(net, "loss", nn.AdaptiveLogSoftmaxWithLoss(4, 9, [3])),
            lambda: (row(), torch.tensor([0, 5, 8])),
        ),
        rf"{LINE}: it asks for values of tensors.*torch\.where",
    ),
}
TRAINING_ONLY: dict[str, tuple[Program, str]] = {
    "complex parameters alone": (
        Program(lambda net, x: (x * net.weight).abs().sum(), set_only_complex),
        r"parameter 'net__weight' is complex.*keep torch\.view_as_real",
    ),
    "reentrant checkpoint": (
        Program(lambda net, x: net.second(checkpoint(net.first, x, use_reentrant=True)).sum()),
        rf"{LINE}: checkpointing with use_reentrant=True.*give use_reentrant=False",
    ),
    "backward in forward": (
        Program(lambda net, x: net.first(x).sum().backward() or net.second(x).sum()),
        rf"{LINE}: a backward pass inside forward cannot be compiled",
    ),
}
"""Without gradients, checkpoints are plain calls."""

UNWANTED = re.compile(
    r"report|skip|check=False|0x[0-9a-f]+|FakeTensor|proxy|dynamo|functorch|unbacked"
)
"""What belongs to us or to torch, and not to a user's program."""


@pytest.mark.parametrize("name", list(WORKING))
def test_inference_is_torchs(name: str) -> None:
    module, inputs = WORKING[name].build()
    exported = export_inference(module.eval(), inputs)
    assert compare_with_eager(module, inputs, exported).outcome is ComparisonOutcome.DONE


@pytest.mark.parametrize("name", list(WORKING))
def test_training_is_torchs(name: str) -> None:
    module, inputs = WORKING[name].build()
    exported = export_training(module.train(), inputs)
    assert compare_training(module, inputs, exported).outcome is ComparisonOutcome.DONE


@pytest.mark.parametrize("export", [export_inference, export_training])
@pytest.mark.parametrize("name", list(REFUSED))
def test_refusals_are_one_sentence(name: str, export: Callable[..., Any]) -> None:
    program, words = REFUSED[name]
    assert_refused(program, words, export)


@pytest.mark.parametrize("name", list(TRAINING_ONLY))
def test_refusals_of_training(name: str) -> None:
    program, words = TRAINING_ONLY[name]
    assert_refused(program, words, export_training)


def assert_refused(program: Program, words: str, export: Callable[..., Any]) -> None:
    module, inputs = program.build()
    with pytest.raises(SambaError, match=words) as caught:
        export(module, inputs)
    assert not UNWANTED.search(str(caught.value))
    assert "\n" not in str(caught.value)


def test_gradients_in_forward_are_for_training() -> None:
    def norm(net: Any, x: Tensor) -> Tensor:
        with torch.enable_grad():
            value = x.detach().requires_grad_()
            energy = torch.tanh(net.first(value)).sum()
            return torch.autograd.grad(energy, value)[0].norm()

    assert_refused(Program(norm), rf"{LINE} computes a gradient inside forward", export_inference)


@pytest.mark.parametrize("make", [torch.jit.script, lambda m: torch.jit.trace(m, row())])
def test_models_of_torch_jit(make: Callable[[nn.Module], nn.Module]) -> None:
    with pytest.raises(SambaError, match=r"the model was made by torch\.jit of Linear"):
        named_inputs(make(nn.Linear(4, 2)), (row(),))
