"""Checkpoints of training, and the ONNX models that their weights go into."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir
from torch import nn

from samba_onnx.errors import UsageError
from samba_onnx.importing.module import attribute_name
from samba_onnx.importing.original import Original, named_tensors
from samba_onnx.importing.values import Array
from samba_onnx.importing.writing import write_model
from samba_onnx.loading import load_model
from samba_onnx.loading.checkpoints import read_checkpoint
from samba_onnx.safety.files import printable
from samba_onnx.tensor.dtypes import FLOATING

__all__ = ["Trained", "export_trained"]

# A session writes a checkpoint under names that begin with the class of the module.
_ROOT = "onnxmodule__"
_COUNTER = "num_batches_tracked"
"""A buffer of torch's batch normalisation that no ONNX model has."""


@dataclass(frozen=True)
class Trained:
    """A model that was written."""

    written: tuple[str, ...]
    """Initializers that the checkpoint has."""
    kept: tuple[str, ...]
    """Other floating-point initializers, which are as they were."""


def export_trained(
    model: str | os.PathLike[str],
    checkpoint: str | os.PathLike[str],
    output: str | os.PathLike[str],
) -> Trained:
    """Write the weights of a checkpoint into the ONNX model that was trained.

    Args:
        model: Path of the ONNX model.
        checkpoint: A ``state_dict`` that ``loading.checkpoints.read_checkpoint`` reads: of what
            ``samba.from_onnx`` returned, or of any module with the names of the initializers.
        output: Where to write the model; weights beside it if they were so in the original.

    Returns:
        Which initializers have new content.

    Raises:
        ModelError: The model or the checkpoint cannot be read, or a weight has another shape.
        UsageError: The checkpoint has weights that the model does not have, or none at all.
        OutputError: The file cannot be written.
    """
    load_model(model)  # refuses what is broken or hostile
    state = read_checkpoint(checkpoint)
    weights = _floating(model)
    names = _initializers(state, weights, str(checkpoint))
    original = Original.of(model, set(names.values()))
    arrays = {names[key]: array for key, array in state.items() if key in names}
    write_model(original, arrays, Path(output))
    return Trained(
        tuple(name for name in weights if name in arrays),
        tuple(name for name in weights if name not in arrays),
    )


def _floating(path: str | os.PathLike[str]) -> list[str]:
    """Names of what weights can be: floating-point initializers and results of Constants."""
    skeleton = Original.of(path, ()).skeleton
    return [
        name
        for name, tensor in named_tensors(skeleton).items()
        if ir.DataType(tensor.data_type) in FLOATING
    ]


def _initializers(state: Mapping[str, Array], weights: list[str], path: str) -> dict[str, str]:
    """Find the initializer of every entry of a checkpoint that has one."""
    known: dict[str, list[str]] = {}
    for name in weights:
        for key in _keys(name):
            known.setdefault(key, []).append(name)
    # Names of the model count before names that a module makes of them: with both `a.b` and `a__b`
    # in a model, each key means the initializer that has exactly this name.
    weights_by_key: dict[str, str] = {}
    for key, array in state.items():
        names = [key] if key in weights else known.get(key, [])
        if len(names) == 1:
            weights_by_key[key] = names[0]
        elif names:
            raise UsageError(
                f"{printable(path)}: {printable(key)!r} may be any of "
                f"{', '.join(map(printable, names))}: give the names of the ONNX model"
            )
        # Kind V is numpy's for bfloat16 and other types of `ml_dtypes`. Integers and truth values
        # that the model lacks are state of the training, not weights that would get lost.
        elif array.dtype.kind in "fV" and not key.endswith(_COUNTER):
            raise UsageError(
                f"{printable(path)} has {printable(key)!r}, which the model does not have; its "
                f"initializers are {_some(weights)}"
            )
    # A checkpoint of another model would otherwise pass, and the model be written as it was.
    if not weights_by_key:
        raise UsageError(
            f"{printable(path)} has none of the model's initializers, which are {_some(weights)}"
        )
    return weights_by_key


def _keys(name: str) -> Iterator[str]:
    attribute = attribute_name(name)
    # `OnnxModule` appends an underscore where nn.Module has an attribute of that name already.
    while hasattr(nn.Module, attribute):
        attribute += "_"
    yield attribute
    yield f"{_ROOT}{attribute}"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(map(printable, names[:5])) + more if names else "none"
