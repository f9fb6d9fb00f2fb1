"""Loss and gradients of small networks as one graph, against torch's autograd."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from samba_onnx.export.translation.builder import GraphBuilder
from samba_onnx.export.translation.element_types import onnx_type
from samba_onnx.export.translation.graphs import translate
from tests.export.operators.harness import assert_near, run_model


def residual() -> nn.Module:
    """Strided, padded and pointwise convolutions, normalised by the batch, summed and pooled."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(8, 32, 3, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(32, track_running_stats=False),
                nn.ReLU(),
                nn.Conv2d(32, 32, 3, padding=1, bias=False),
                nn.BatchNorm2d(32, track_running_stats=False),
            )
            self.short = nn.Conv2d(8, 32, 1, stride=2)

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.body(value) + self.short(value))

    return nn.Sequential(
        nn.Conv2d(3, 8, 7, stride=2, padding=3),
        nn.MaxPool2d(3, 2, 1),
        Block(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 5),
    )


def assorted() -> nn.Module:
    """Groups, dilation, transposition, borders, interpolation and every normalisation."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=2, dilation=2, padding_mode="reflect"),
        nn.GroupNorm(2, 8),
        nn.GELU(),
        nn.Conv2d(8, 8, 3, padding=1, groups=8, padding_mode="replicate"),
        nn.AvgPool2d(3, 2, ceil_mode=True),
        nn.ConvTranspose2d(8, 6, 3, stride=2, output_padding=1, groups=2),
        nn.InstanceNorm2d(6, affine=True),
        nn.Upsample(scale_factor=1.5, mode="bilinear"),
        nn.AdaptiveMaxPool2d((5, 4)),
        nn.PixelShuffle(1),
        nn.ReflectionPad2d((1, 2, 0, 3)),
        nn.Upsample(size=(4, 6), mode="nearest"),
        nn.Flatten(),
        nn.LayerNorm(144),
        nn.Linear(144, 5),
    )


def smoothed(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    weight = torch.linspace(0.5, 2, 5)
    return nn.functional.cross_entropy(scores, labels, weight, label_smoothing=0.1)


def to_one_hot(loss: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def applied(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return loss(scores, nn.functional.one_hot(labels, 5).to(scores.dtype))

    return applied


@pytest.mark.parametrize("network", [residual, assorted])
@pytest.mark.parametrize(
    "loss",
    [
        nn.functional.cross_entropy,
        smoothed,
        to_one_hot(nn.functional.binary_cross_entropy_with_logits),
        to_one_hot(nn.functional.smooth_l1_loss),
    ],
    ids=["cross entropy", "smoothed", "binary", "smooth l1"],
)
def test_gradients(network: Callable[[], nn.Module], loss: Callable[..., torch.Tensor]) -> None:
    torch.manual_seed(0)
    module = network()
    names, parameters = zip(*module.named_parameters(), strict=True)
    operands = (*parameters, torch.randn(4, 3, 22, 26), torch.tensor([0, 4, 2, 2]))

    def step(*values: torch.Tensor) -> list[torch.Tensor]:
        leaves = values[: len(names)]
        given = dict(zip(names, leaves, strict=True))
        result = loss(torch.func.functional_call(module, given, (values[-2],)), values[-1])
        return [result, *torch.autograd.grad(result, leaves)]

    graph = make_fx(step, tracing_mode="fake")(*operands)
    build = GraphBuilder("step")
    holders = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
    feed = dict(zip(holders, operands, strict=True))
    inputs = {n: build.input(n, onnx_type(t.dtype), t.shape) for n, t in feed.items()}
    for index, value in enumerate(translate(graph, build, inputs)):
        assert value is not None
        build.output(value, f"result_{index}")
    actual = run_model(build.model(), feed)
    expected = step(*operands)
    # Gradients that cancel out, as of a bias before a normalisation, are all rounding: errors are
    # judged by the largest gradient of the network.
    magnitude = max(float(item.detach().abs().max()) for item in expected[1:])
    for name, got, want in zip(("loss", *names), actual, expected, strict=True):
        floor = max(magnitude / float(want.detach().abs().max()), 1) * 1e-5
        assert_near(got, want.detach(), floor, name)
