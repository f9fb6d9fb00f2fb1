"""Export of a model to ONNX with torch's exporter, quietly and always in the same form."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from models import build
from models.example import Example, Variant

if TYPE_CHECKING:
    from torch.onnx import ONNXProgram

__all__ = ["OPSET", "export_example", "export_onnx"]

OPSET = 20
"""The exporter's default in torch 2.13, pinned so that graphs stay the same with other versions.

From opset 23 on attention and RMS norm come out as single operators, which is worth testing but
not what most existing files look like.
"""

_INLINE_BYTES = 32 * 2**20
_LOGGERS = ("torch.onnx", "onnxscript", "onnx_ir", "torch.export", "transformers")


def export_onnx(
    name: str,
    variant: Variant,
    path: str | Path,
    *,
    seed: int = 0,
    dynamic: bool = False,
    optimize: bool = True,
    opset: int = OPSET,
) -> Path:
    """Build a model and write it as an ONNX file.

    Args:
        name: A key of `models.MODELS`.
        variant: ``tiny``, ``full`` or, where the model has it, ``large``.
        path: Where to write; weights of more than 32 MiB go into a file beside it, named with
            ``.data`` appended.
        seed: The seed of the weights.
        dynamic: Whether the model's dynamic axes get a name instead of a size.
        optimize: Whether the exporter simplifies the graph, its default; without, batch norms and
            shape arithmetic stay as torch has traced them.
        opset: The version of the default operator set.

    Returns:
        ``path``.

    Raises:
        UsageError: If there is no such model or variant.
    """
    return export_example(
        build(name, variant, seed), path, dynamic=dynamic, optimize=optimize, opset=opset
    )


def export_example(
    example: Example,
    path: str | Path,
    *,
    dynamic: bool = False,
    optimize: bool = True,
    opset: int = OPSET,
) -> Path:
    """Write a model that is already built as an ONNX file.

    Args:
        example: The module with its named inputs.
        path: Where to write, as for `export_onnx`.
        dynamic: Whether the model's dynamic axes get a name instead of a size.
        optimize: Whether the exporter simplifies the graph, its default; without, batch norms and
            shape arithmetic stay as torch has traced them.
        opset: The version of the default operator set.

    Returns:
        ``path``.
    """
    path = Path(path)
    weights = sum(one.numel() * one.element_size() for one in example.module.parameters())
    with _quiet():
        program = _export(example, dynamic=dynamic, optimize=optimize, opset=opset)
        program.save(path, external_data=weights > _INLINE_BYTES)
    return path


def _export(example: Example, *, dynamic: bool, optimize: bool, opset: int) -> ONNXProgram:
    inputs = {
        # The exporter takes a dimension of 1 for a constant, whatever it is told.
        spec.name: spec.with_batch(2).draw(example.seed) if dynamic else tensor
        for spec, tensor in zip(example.specs, example.inputs.values(), strict=True)
    }
    shapes = {name: dict(axes) for name, axes in example.dynamic_axes.items()}
    with torch.no_grad():
        program = torch.onnx.export(
            example.module,
            (),
            kwargs=inputs,
            input_names=list(inputs),
            output_names=list(example.outputs),
            dynamic_shapes=shapes if dynamic else None,
            opset_version=opset,
            optimize=optimize,
            dynamo=True,
            verbose=False,
        )
    assert program is not None, "the exporter returns a program unless it is given a file"
    return program


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence what the exporter and its libraries say about themselves."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            for category in (DeprecationWarning, FutureWarning, UserWarning):
                warnings.simplefilter("ignore", category)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
