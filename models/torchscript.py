"""Export of a model to ONNX with torch's exporter for TorchScript, as most existing files were made."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path

import torch

from models import build
from models.example import Example, Variant

__all__ = ["OPSET", "export_traced"]

OPSET = 17
"""The exporter's default in torch 2.13, pinned so that graphs stay the same with other versions."""


def export_traced(
    name: str,
    variant: Variant,
    path: str | Path,
    *,
    seed: int = 0,
    dynamic: bool = False,
    optimize: bool = True,
) -> Path:
    """Build a model, trace it with TorchScript and write it as an ONNX file.

    Args:
        name: A key of `models.MODELS`.
        variant: ``tiny`` or ``full``; the exporter writes no file over 2 GB.
        path: Where to write.
        seed: The seed of the weights.
        dynamic: Whether the model's dynamic axes get a name instead of a size.
        optimize: Whether the exporter folds constants, its default.

    Returns:
        ``path``.

    Raises:
        UsageError: If there is no such model or variant.
    """
    path = Path(path)
    example = build(name, variant, seed)
    axes = example.dynamic_axes
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            example.module,
            _arguments(example, dynamic=dynamic),
            path,
            input_names=[spec.name for spec in example.specs],
            output_names=list(example.outputs),
            dynamic_axes={name: dict(names) for name, names in axes.items()} if dynamic else None,
            opset_version=OPSET,
            do_constant_folding=optimize,
            dynamo=False,
        )
    return path


def _arguments(example: Example, *, dynamic: bool) -> tuple[object, ...]:
    """Return the inputs in the order of ``forward``, which TorchScript takes by position."""
    drawn = {
        spec.name: spec.with_batch(2).draw(example.seed) if dynamic else tensor
        for spec, tensor in zip(example.specs, example.inputs.values(), strict=True)
    }
    names = list(inspect.signature(example.module.forward).parameters)
    last = max(names.index(name) for name in drawn)
    return tuple(drawn.get(name) for name in names[: last + 1])
