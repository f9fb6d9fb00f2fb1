"""Somebody else's models in forms that onnxruntime can run, when it cannot run them as they are."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.inliner
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # has no stubs

from samba_onnx.runtime.engine.lowerings.bfloat16 import lower_bfloat16, uses_bfloat16
from samba_onnx.runtime.engine.widening import widened

__all__ = ["bfloat16_source", "wide_source"]


def bfloat16_source(model: onnx.ModelProto | Path, folder: str = "") -> tuple[bytes, str] | None:
    """Return a model whose bfloat16 is computed on float32 kernels and rounded after each operator.

    Args:
        model: In memory, or a file that may have external data beside it.
        folder: Where the files of external initializers lie, of a model in memory.

    Returns:
        The serialised model and the folder of its external data; None without any bfloat16.

    Raises:
        ExecutionError: Types cannot be inferred.
    """
    try:
        proto, place = _read(model, folder)
    except (DecodeError, OSError, ValueError):
        return None  # the file is no model
    lowered = onnx.inliner.inline_local_functions(proto)
    if not uses_bfloat16(lowered):
        return None
    lower_bfloat16(lowered)
    return lowered.SerializeToString(), place


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
