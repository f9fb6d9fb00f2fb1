"""Modules of torch, written by its two exporters with and without their optimisation."""

from __future__ import annotations

import functools
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx

from models.cache import cached_onnx
from tests.wild.subject import Subjects, written_by

DYNAMO = Subjects("torch.export")
SCRIPT = Subjects("TorchScript")


def exported(name: str, *, raw: bool = False, dynamic: bool = False) -> onnx.ModelProto:
    """Return what torch's newer exporter makes of a model.

    Args:
        name: A key of ``models.MODELS``.
        raw: Whether the exporter leaves the graph as it was traced.
        dynamic: Whether batch and sequence stay dynamic.
    """
    return onnx.load(cached_onnx(name, "tiny", raw=raw, dynamic=dynamic, here=True))


def traced(name: str, *, raw: bool = False, dynamic: bool = False) -> onnx.ModelProto:
    """Return what torch's exporter for TorchScript makes of a model.

    Args:
        name: A key of ``models.MODELS``.
        raw: Whether the exporter folds no constants.
        dynamic: Whether batch and sequence stay dynamic.
    """
    from models.torchscript import export_traced

    def write(path: Path) -> object:
        return export_traced(name, "tiny", path, optimize=not raw, dynamic=dynamic)

    return written_by(write)


def _enter(subjects: Subjects, name: str, options: str = "", **dims: int) -> None:
    write = exported if subjects is DYNAMO else traced
    build = functools.partial(write, name, raw="raw" in options, dynamic="dynamic" in options)
    subjects.add(f"{name}-{options}" if options else name, build, dims=dims)


_enter(DYNAMO, "resnet50", "dynamic", batch=2)
_enter(DYNAMO, "mobilenet_v3", "raw")
_enter(DYNAMO, "unet")
_enter(DYNAMO, "lstm", "dynamic", batch=2, sequence=5)
_enter(DYNAMO, "bert", "raw, dynamic", batch=2, sequence=7)
_enter(DYNAMO, "gpt2", "dynamic", batch=1, sequence=6)
_enter(DYNAMO, "llama", "raw")
_enter(DYNAMO, "whisper_encoder")
_enter(SCRIPT, "mlp", "dynamic", batch=3)
_enter(SCRIPT, "resnet50", "raw")
_enter(SCRIPT, "mobilenet_v3", "dynamic", batch=1)
_enter(SCRIPT, "unet", "dynamic", batch=1)
_enter(SCRIPT, "lstm", "raw")
_enter(SCRIPT, "bert", "dynamic", batch=2, sequence=5)
_enter(SCRIPT, "vit", "raw")
_enter(SCRIPT, "vit", "dynamic", batch=2)
_enter(SCRIPT, "whisper_encoder", "raw, dynamic", batch=1)


def written(
    module: Any,
    inputs: tuple[Any, ...],
    *,
    dynamo: bool,
    opset: int,
    optimize: bool = True,
    names: tuple[str, ...] = ("x",),
    axes: Mapping[str, Mapping[int, str]] | None = None,
) -> onnx.ModelProto:
    """Return what one of torch's exporters makes of a module.

    Args:
        module: Of torch, or scripted.
        inputs: Positional.
        dynamo: Whether by the newer exporter.
        opset: Of the default domain.
        optimize: Whether the exporter simplifies.
        names: Of the inputs.
        axes: Names of dynamic dimensions by input.
    """
    import torch

    buffer = io.BytesIO()
    with torch.no_grad():
        if dynamo:
            shapes = tuple(dict((axes or {}).get(name, {})) for name in names)
            program = torch.onnx.export(
                module,
                inputs,
                dynamo=True,
                opset_version=opset,
                optimize=optimize,
                input_names=list(names),
                dynamic_shapes=shapes if axes else None,
                verbose=False,
            )
            assert program is not None
            return program.model_proto
        torch.onnx.export(
            module,
            inputs,
            buffer,
            dynamo=False,
            opset_version=opset,
            do_constant_folding=optimize,
            input_names=list(names),
            dynamic_axes={name: dict(one) for name, one in axes.items()} if axes else None,
        )
    return onnx.load_from_string(buffer.getvalue())


def _gru(*, dynamo: bool) -> onnx.ModelProto:
    import torch

    class Tagger(torch.nn.Module):
        """Two GRU layers in both directions, and classes of every step."""

        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(30, 8)
            self.gru = torch.nn.GRU(8, 6, 2, batch_first=True, bidirectional=True)
            self.head = torch.nn.Linear(12, 5)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            states, _ = self.gru(self.embedding(tokens))
            return self.head(states).log_softmax(-1)

    torch.manual_seed(0)
    tokens = torch.randint(0, 30, (2, 7))
    return written(Tagger().eval(), (tokens,), dynamo=dynamo, opset=18 if dynamo else 14)


def _convnext() -> onnx.ModelProto:
    """Blocks of ConvNeXt over channels that come last, as its LayerNorm wants them."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
            self.norm = nn.LayerNorm(width)
            self.grow, self.shrink = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.scale = nn.Parameter(torch.full((width,), 0.3))

        def forward(self, maps: torch.Tensor) -> torch.Tensor:
            last = self.norm(self.depthwise(maps).permute(0, 2, 3, 1))
            grown = nn.functional.gelu(self.grow(last))
            return maps + (self.scale * self.shrink(grown)).permute(0, 3, 1, 2)

    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 4, 4),
        Block(16),
        nn.Conv2d(16, 32, 2, 2),
        Block(32),
        nn.AdaptiveAvgPool2d(1),
    )
    image = torch.randn(2, 3, 32, 32)
    axes = {"x": {0: "batch"}}
    return written(net.eval(), (image,), dynamo=False, opset=13, axes=axes)


def _scripted_loop() -> onnx.ModelProto:
    """A scripted decoder: a loop over steps, and a branch that only the data knows."""
    import torch

    class Accumulator(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = torch.nn.Linear(6, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            state = torch.zeros_like(x[:, 0])
            for step in range(x.size(1)):
                state = torch.tanh(self.cell(state) + x[:, step])
            if bool(state.sum() > 0):
                return state * 2
            return state - 1

    torch.manual_seed(0)
    module = torch.jit.script(Accumulator().eval())
    return written(module, (torch.randn(2, 5, 6),), dynamo=False, opset=16)


def _upsampling(*, opset: int) -> onnx.ModelProto:
    """What segmentation heads end with: pixel shuffles, interpolations and norms per group."""
    import torch
    from torch import nn

    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(4, 16, 3, padding=1)
            self.norm = nn.GroupNorm(4, 16)
            self.last = nn.Conv2d(4, 2, 3, padding=1, padding_mode="reflect")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            maps = nn.functional.pixel_shuffle(nn.functional.silu(self.norm(self.first(x))), 2)
            size = [int(maps.shape[2]) * 2, int(maps.shape[3]) * 2]
            grown = nn.functional.interpolate(maps, size=size, mode="bilinear", align_corners=False)
            return self.last(nn.functional.instance_norm(grown)).sigmoid()

    torch.manual_seed(0)
    return written(Head().eval(), (torch.randn(1, 4, 8, 8),), dynamo=False, opset=opset)


DYNAMO.add("gru", functools.partial(_gru, dynamo=True))
SCRIPT.add("gru-opset14", functools.partial(_gru, dynamo=False))
SCRIPT.add("convnext-opset13, dynamic", _convnext, dims={"batch": 2})
SCRIPT.add("scripted_loop_and_branch", _scripted_loop)
SCRIPT.add("segmentation_head-opset11", functools.partial(_upsampling, opset=11))
SCRIPT.add("segmentation_head-opset9", functools.partial(_upsampling, opset=9))
