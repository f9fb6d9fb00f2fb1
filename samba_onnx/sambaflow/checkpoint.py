"""``sambaflow.samba.utils.checkpoint``: checkpoints of Hugging Face, file by file onto the device."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import nn

from samba_onnx.errors import ModelFileError, UsageError
from samba_onnx.loading.checkpoints import read_checkpoint
from samba_onnx.optim import MASTER, state_name
from samba_onnx.safety.files import read_document
from samba_onnx.tensor import SambaTensor
from samba_onnx.tensor.arrays import from_array
from samba_onnx.tensor.device import DEVICE
from samba_onnx.tensor.modules import member_names

__all__ = ["load_sharded_checkpoint"]

LOGGER: Final = logging.getLogger(__name__)
_INDEXES: Final = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_WHOLE: Final = ("model.safetensors", "pytorch_model.bin")


@dataclass(frozen=True)
class _Member:
    """A parameter or buffer of a module, and where it lies on the device."""

    tensor: torch.Tensor
    name: str
    place: str


def load_sharded_checkpoint(
    model: nn.Module, path: str | os.PathLike[str], ignore_dtype_mismatch: bool = False
) -> None:
    """Load the weights of a traced module from files onto the device.

    Nothing is kept on the host: one tensor after the other is read and sent, so that a module whose
    parameters have no memory, as one made under ``accelerate.init_empty_weights``, is trained from
    a checkpoint that is larger than the host's memory. Values that parameters have on the host stay
    as they are; ``samba.session.to_cpu`` fetches the device's. Call it after
    ``trace_graph(..., transfer_device=False)``, as the training example of SambaNova's Model Zoo does.

    Args:
        model: The module that was traced; weights that the device does not have are passed over.
        path: A folder as ``save_pretrained`` writes it, in one file or several with an index, of
            safetensors or of ``torch.save``; or one such file. Nothing but tensors is unpickled.
        ignore_dtype_mismatch: Whether to convert weights that have another type in the checkpoint.

    Raises:
        ModelFileError: There is no checkpoint, it cannot be read, or the model has weights that it
            does not have, or has in another shape; those before are on the device then.
        UsageError: A weight has another type, which is not to be ignored.
        NoDeviceError: The model was not traced.
    """
    members = _members(model)
    # By the tensor: a weight that is tied is in the checkpoint under one of its names.
    left = {id(member.tensor): name for name, member in members.items()}
    unknown: list[str] = []
    for file in _files(Path(path)):
        for key, tensor in _tensors(file):
            member = next((members[n] for n in _spellings(model, key) if n in members), None)
            if member is None:
                unknown.append(key)
                continue
            _send(member, _fitting(member, key, tensor, file, ignore_dtype_mismatch))
            left.pop(id(member.tensor), None)
    if left:
        raise ModelFileError(
            f"{path}: has no {', '.join(sorted(left.values()))}, which "
            f"{type(model).__name__} has: give a checkpoint of this model",
            path=path,
        )
    if unknown:
        LOGGER.warning(
            "%s has %d tensors that %s does not have: %s",
            path,
            len(unknown),
            type(model).__name__,
            ", ".join(unknown[:8]),
        )


def _members(model: nn.Module) -> dict[str, _Member]:
    """Return what a checkpoint of a module holds, by the keys of its ``state_dict``."""
    names = member_names(model, "")
    persistent = model.state_dict(keep_vars=True)
    members = {}
    for key, name in names.items():
        if key in persistent:
            tensor = persistent[key]
            place = tensor.sn_region_name if isinstance(tensor, SambaTensor) else name
            members[key] = _Member(tensor, name, place)
    return members


def _spellings(model: nn.Module, key: str) -> tuple[str, ...]:
    """Return what a key may mean: checkpoints of a model's inner part lack the prefix, and vice versa."""
    prefix = getattr(model, "base_model_prefix", "")
    return (key, f"{prefix}.{key}", key.removeprefix(f"{prefix}.")) if prefix else (key,)


def _fitting(
    member: _Member, key: str, tensor: torch.Tensor, file: Path, ignore_dtype_mismatch: bool
) -> torch.Tensor:
    """Return a tensor of the member's type.

    Raises:
        ModelFileError: It has another shape.
        UsageError: It has another type, which is not to be ignored.
    """
    if tensor.shape != member.tensor.shape:
        raise ModelFileError(
            f"{file}: {key} has shape {list(tensor.shape)}, and {member.name} has "
            f"{list(member.tensor.shape)}: give a checkpoint of this model",
            path=file,
        )
    if tensor.dtype != member.tensor.dtype and not ignore_dtype_mismatch:
        raise UsageError(
            f"{file}: {key} is {tensor.dtype}, and {member.name} is {member.tensor.dtype}: convert "
            "the model, or give ignore_dtype_mismatch=True",
            path=file,
        )
    return tensor.to(member.tensor.dtype)


def _send(member: _Member, values: torch.Tensor) -> None:
    """Write a member on the device, and the float32 copy that an optimizer has of it."""
    if not DEVICE.attached:
        DEVICE.store(member.place)  # for its error
    if DEVICE.has(member.place):
        DEVICE.store(member.place).write(member.place, values)
    master = state_name(member.name, MASTER)
    # An optimizer steps from its copy: with the old one, its next step would undo the loading.
    if DEVICE.has(master):
        DEVICE.store(master).write(master, values.float())


def _files(path: Path) -> list[Path]:
    """Return the files of a checkpoint.

    Raises:
        ModelFileError: There is none.
    """
    if path.is_file():
        return [path]
    for name in _INDEXES:
        if (path / name).is_file():
            return _indexed(path / name)
    for name in _WHOLE:
        if (path / name).is_file():
            return [path / name]
    raise ModelFileError(
        f"{path}: no checkpoint is there; give a folder with one of "
        f"{', '.join((*_INDEXES, *_WHOLE))}, or such a file",
        path=path,
    )


def _indexed(index: Path) -> list[Path]:
    """Return the files that an index names; they lie beside it.

    Raises:
        ModelFileError: It is no index, or names something else.
    """
    try:
        document = read_document(index, what="index of a checkpoint")
        names = sorted({*json.loads(document)["weight_map"].values()})
        # An index comes from anybody, and may not name files elsewhere on this machine.
        plain = all(Path(name).name == name for name in names)
    except ModelFileError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelFileError(
            f"{index}: is no index of a checkpoint: {error!r}", path=index
        ) from None
    if not names or not plain:
        raise ModelFileError(f"{index}: names files that do not lie beside it", path=index)
    return [index.parent / name for name in names]


def _tensors(file: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Iterate over the tensors of a file, of which one is in memory at a time.

    Raises:
        ModelFileError: The file cannot be read.
    """
    try:
        arrays = read_checkpoint(file)
    except UsageError as error:
        raise ModelFileError(str(error), path=file) from None
    for key, array in arrays.items():
        try:
            yield key, from_array(np.array(array, order="C"))
        except TypeError:
            raise ModelFileError(
                f"{file}: torch has no {array.dtype}, as {key} is", path=file
            ) from None
