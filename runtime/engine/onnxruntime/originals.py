"""Somebody else's models in forms that onnxruntime can run, when it cannot run them as they are."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.inliner
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # has no stubs

from samba_onnx.facts.domains import is_default
from samba_onnx.facts.versions import NEWEST_RUNNABLE_IR, NEWEST_RUNNABLE_OPSET
from samba_onnx.runtime.engine.lowerings.bfloat16 import lower_bfloat16, uses_bfloat16
from samba_onnx.runtime.engine.lowerings.nodes import all_nodes
from samba_onnx.runtime.engine.widening import widened

__all__ = ["runnable_source", "wide_source"]


def runnable_source(model: onnx.ModelProto | Path, folder: str = "") -> tuple[bytes, str] | None:
    """Return a model that onnxruntime refuses in a form that it may run.

    1. A version of the file format or of the default operator set that it does not know becomes the
       newest that it does, if no operator is newer; it still refuses attributes and types that are.
    2. bfloat16 is computed on float32 kernels and rounded after each operator.

    Args:
        model: In memory, or a file that may have external data beside it.
        folder: Where the files of external initializers lie, of a model in memory.

    Returns:
        The serialised model and the folder of its external data; None where neither applies.

    Raises:
        ExecutionError: Types cannot be inferred.
    """
    try:
        proto, place = _read(model, folder)
    except (DecodeError, OSError, ValueError):
        return None  # the file is no model
    lowered = onnx.inliner.inline_local_functions(proto)
    restamped = _restamp(lowered)
    if uses_bfloat16(lowered):
        lower_bfloat16(lowered)
    elif not restamped:
        return None
    return lowered.SerializeToString(), place


def _restamp(proto: onnx.ModelProto) -> bool:
    """State the newest versions that onnxruntime knows in place of newer ones; say whether it did."""
    entries = [
        entry
        for entry in proto.opset_import
        if is_default(entry.domain) and entry.version > NEWEST_RUNNABLE_OPSET
    ]
    if proto.ir_version <= NEWEST_RUNNABLE_IR and not entries:
        return False
    if entries and not all(_is_older(node) for node in all_nodes(proto.graph)):
        return False
    for entry in entries:
        entry.version = NEWEST_RUNNABLE_OPSET
    proto.ir_version = min(proto.ir_version, NEWEST_RUNNABLE_IR)
    return True


def _is_older(node: onnx.NodeProto) -> bool:
    """Tell whether the newest operator set that onnxruntime knows has a node's operator."""
    if not is_default(node.domain):
        return True
    try:
        onnx.defs.get_schema(node.op_type, NEWEST_RUNNABLE_OPSET)
    except onnx.defs.SchemaError:
        return False
    return True


def wide_source(model: onnx.ModelProto | Path, folder: str = "") -> tuple[bytes, str] | None:
    """Return a model that computes in float32 what it computes in float16 and bfloat16.

    Args:
        model: In memory, or a file that may have external data beside it.
        folder: Where the files of external initializers lie, of a model in memory.

    Returns:
        The serialised model and the folder of its external data; None where it has no such form.
    """
    proto, place = _read(model, folder)
    wide = widened(proto)
    return None if wide is None else (wide.SerializeToString(), place)


def _read(model: onnx.ModelProto | Path, folder: str) -> tuple[onnx.ModelProto, str]:
    if isinstance(model, Path):
        return onnx.load(model, load_external_data=False), str(model.absolute().parent)
    return model, folder
