"""Write a module's weights back into its ONNX model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np
import onnx
import onnx_ir as ir
from torch import Tensor

from samba_onnx.errors import UsageError
from samba_onnx.importing.module import OnnxModule
from samba_onnx.importing.original import Original, fill, named_tensors, require_shape
from samba_onnx.importing.values import Array, to_numpy
from samba_onnx.safety.files import atomic_output
from samba_onnx.tensor import SambaTensor

__all__ = ["to_onnx", "write_model"]

MOST_INLINE = (1 << 31) - (1 << 24)
"""Bytes of weights up to which a model fits into one file: protobuf's limit, less room for the
graph."""
# The threshold of onnx's own writer (`size_threshold`): small tensors stay in the file.
_SMALL = 1024
# A cache line, so that mapped weights begin where vector instructions read best.
_ALIGNMENT = 64


def to_onnx(module: OnnxModule, path: str | os.PathLike[str] | None = None) -> onnx.ModelProto:
    """Return the model that a module was made of, with the module's weights.

    Everything but the content of the weights is as it was: names, interface, nodes, metadata.

    Args:
        module: What ``module_from_onnx`` returned, trained or not.
        path: Where to write the model, in whole or not at all. Weights go into a file beside it,
            named with ``.data`` appended, when they did so in the original or take more than 2 GB.

    Returns:
        The model; with data beside the file it refers to that data, else it holds its weights.
        Without ``path`` it always holds them, also where that is too much to be serialised.

    Raises:
        OutputError: The file cannot be written.
        UsageError: The module was not made of an ONNX model.
        ModelError: A weight has another shape than in the model.
    """
    if not isinstance(module, OnnxModule):
        raise UsageError(
            f"expected what module_from_onnx returned, got {type(module).__name__}: "
            "export other modules with torch.onnx.export"
        )
    weights = {
        # Not everything that a module holds is in the model: some constants were computed.
        name: _plain(getattr(module, attribute))
        for attribute, name in module.onnx_names.items()
        if name in module.original.held
    }
    return write_model(module.original, weights, None if path is None else Path(path))


def _plain(weight: Tensor) -> Array:
    return to_numpy(weight.torch_tensor() if isinstance(weight, SambaTensor) else weight)


def write_model(
    original: Original, weights: Mapping[str, Array], path: Path | None
) -> onnx.ModelProto:
    """Return a model with weights of its own.

    Args:
        original: The model without the content of these weights.
        weights: Arrays by the names of initializers; they are brought to the types of these.
        path: Where to write the model, in whole or not at all; None writes nothing.

    Raises:
        OutputError: The file cannot be written.
        ModelError: A weight has another shape than in the model.
    """
    model = onnx.ModelProto()
    model.CopyFrom(original.skeleton)
    tensors = named_tensors(model)
    size = sum(weight.nbytes for weight in weights.values())
    # Data stays where the user had it, unless one file cannot hold it.
    beside = path is not None and (original.external or size > MOST_INLINE)
    outside: dict[str, Array] = {}
    for name, weight in weights.items():
        dtype = ir.DataType(tensors[name].data_type).numpy()
        array = np.ascontiguousarray(weight.astype(dtype, copy=False)).reshape(weight.shape)
        if beside and array.nbytes >= _SMALL:
            # Told before a byte is written.
            require_shape(tensors[name], array)
            outside[name] = array
        else:
            fill(tensors[name], array)
    if path is not None:
        _write(model, path, outside)
    return model


def _write(model: onnx.ModelProto, path: Path, arrays: dict[str, Array]) -> None:
    """Write the file, and before it what lies beside it."""
    # The data file is renamed into place within the model's own write, so that the model never
    # names data that is not there yet.
    with atomic_output(path) as file:
        if arrays:
            with atomic_output(path.with_name(f"{path.name}.data")) as data:
                _write_data(model, f"{path.name}.data", data, arrays)
        file.write(model.SerializeToString())


def _write_data(
    model: onnx.ModelProto, location: str, data: IO[bytes], arrays: dict[str, Array]
) -> None:
    tensors = named_tensors(model)
    for name, array in arrays.items():
        # Zeros up to the next multiple of the alignment.
        data.write(b"\0" * (-data.tell() % _ALIGNMENT))
        offset = data.tell()
        data.write(array.reshape(-1).view("u1").data)
        _refer(tensors[name], location, offset, array.nbytes)


def _refer(tensor: onnx.TensorProto, location: str, offset: int, length: int) -> None:
    """Make a tensor name a range of a file as its content."""
    for field in ("raw_data", "external_data"):
        tensor.ClearField(field)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    entries = {"location": location, "offset": str(offset), "length": str(length)}
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
