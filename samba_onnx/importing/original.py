"""The model as it was given, to be written again with other weights."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx_ir as ir

from samba_onnx.errors import ModelError
from samba_onnx.importing.values import Array
from samba_onnx.loading.file_tensors import ExternalFiles
from samba_onnx.safety.all_tensors import all_tensors
from samba_onnx.safety.files import open_regular, printable

__all__ = ["Original", "Source", "fill", "named_tensors", "require_shape"]

Source: TypeAlias = "onnx.ModelProto | str | os.PathLike[str]"
"""A model in memory, or the path of one."""

_FLOATS = (
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.DOUBLE,
    onnx.TensorProto.FLOAT16,
    onnx.TensorProto.BFLOAT16,
)


@dataclass(frozen=True, eq=False)
class Original:
    """A model without the content of the initializers that a module holds."""

    skeleton: onnx.ModelProto
    held: frozenset[str]
    """Names of the floating-point initializers whose content the module holds."""
    external: bool
    """Whether the model had data beside its file."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Original:
        """Return itself: it never changes."""
        return self

    @staticmethod
    def of(source: Source, held: Collection[str]) -> Original:
        """Keep a model, already loaded and checked once, but for the content of ``held``.

        Args:
            source: A path or a model in memory.
            held: Names of initializers, or of results of Constant nodes, of the main graph.

        Raises:
            ModelFileError: The file, or external data that is not held, cannot be read.
        """
        skeleton = onnx.ModelProto()
        if isinstance(source, onnx.ModelProto):
            skeleton.CopyFrom(source)
            # Data in memory has no folder, so that references to files are refused.
            files = ExternalFiles(None)
        else:
            with open_regular(source) as file:
                skeleton.ParseFromString(file.read())
            files = ExternalFiles(Path(source).parent)
        external = False
        tensors = named_tensors(skeleton)
        # Weights of other types are not trained, and stay in the skeleton.
        names = frozenset(
            name for name in held if name in tensors and tensors[name].data_type in _FLOATS
        )
        # Objects of protobuf cannot be hashed, and equal names may stand for tensors of subgraphs
        # too.
        mine = {id(tensors[name]) for name in names}
        for tensor in all_tensors(skeleton):
            outside = tensor.data_location == onnx.TensorProto.EXTERNAL
            external |= outside
            if id(tensor) in mine:
                _empty(tensor)
            elif outside:
                # The files may be gone, or written over, when the model is written back.
                _embed(tensor, files)
        return Original(skeleton, names, external)


def fill(tensor: onnx.TensorProto, array: Array) -> None:
    """Give a tensor of a skeleton its content, in the form in which the model had it.

    Args:
        tensor: What ``Original`` emptied, or external data.
        array: The content to store, of the tensor's type.

    Raises:
        ModelError: The shape is another than the model's.
    """
    require_shape(tensor, array)
    # Where raw bytes were, they come back: an untrained model is the same byte for byte.
    if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.HasField("raw_data"):
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")
        tensor.raw_data = array.tobytes()
    elif tensor.data_type == onnx.TensorProto.FLOAT:
        tensor.float_data.extend(array.reshape(-1).tolist())
    elif tensor.data_type == onnx.TensorProto.DOUBLE:
        tensor.double_data.extend(array.reshape(-1).tolist())
    elif tensor.data_type in (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16):
        # ONNX keeps 16-bit floats as bit patterns in a list of int32.
        tensor.int32_data.extend(array.view(np.uint16).reshape(-1).tolist())
    else:
        tensor.raw_data = array.tobytes()


def require_shape(tensor: onnx.TensorProto, array: Array) -> None:
    """Refuse content of another shape.

    Args:
        tensor: A tensor of the original model.
        array: What it is to hold.

    Raises:
        ModelError: The shapes differ.
    """
    if tuple(tensor.dims) != array.shape:
        raise ModelError(
            f"{printable(tensor.name)} has shape {list(tensor.dims)} in the model, but the weight "
            f"has {list(array.shape)} now: weights cannot change their shapes"
        )


def _empty(tensor: onnx.TensorProto) -> None:
    """Drop the content; that ``raw_data`` was used stays visible, and the place of external data."""
    if tensor.HasField("raw_data"):
        tensor.raw_data = b""
    for field in ("float_data", "double_data", "int32_data"):
        # Lists of other types belong to no weight; int32_data is used by integers as well.
        if tensor.data_type in _FLOATS:
            tensor.ClearField(field)


def named_tensors(model: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    """Return the tensors of the main graph that a name leads to: initializers and Constants."""
    tensors = {
        node.output[0]: attribute.t
        for node in model.graph.node
        if node.op_type == "Constant" and node.output
        for attribute in node.attribute
        if attribute.name == "value"
    }
    # Initializers come last, so that they win where a Constant has the same name.
    tensors.update((tensor.name, tensor) for tensor in model.graph.initializer)
    return tensors


def _embed(tensor: onnx.TensorProto, files: ExternalFiles) -> None:
    """Take external data that no module holds into the model."""
    outside = ir.serde.deserialize_tensor(tensor)
    if not isinstance(outside, ir.ExternalTensor):
        return
    content = files.tensor(outside).tobytes()
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")
    tensor.raw_data = content
