"""Somebody else's models in forms that onnxruntime can run, or runs accurately."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import onnx
import onnx.inliner
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # has no stubs

from samba_onnx.runtime.engine.lowerings.bfloat16 import lower_bfloat16, uses_bfloat16
from samba_onnx.runtime.engine.lowerings.nodes import all_nodes
from samba_onnx.runtime.engine.lowerings.unsigned_weights import make_weights_unsigned
from samba_onnx.runtime.engine.onnxruntime.float64_sums import add_in_float64
from samba_onnx.runtime.engine.onnxruntime.sessions import ACCURACY, may_be_inaccurate
from samba_onnx.runtime.engine.onnxruntime.versions import restamp
from samba_onnx.runtime.engine.unrounding import exact_form, needs_exact_form

__all__ = ["accurate_source", "runnable_source", "wide_source"]

_FLOAT32: Final = 1
"""Value of the attribute for float32; those above stand for fewer bits, down to eight."""


def accurate_source(model: onnx.ModelProto | Path, folder: str = "") -> tuple[bytes | str, str]:
    """Return a model for which onnxruntime computes what it says, on every machine.

    1. The permission to compute with fewer bits than values have goes. It says how fast a machine may be,
       not what the model computes: a comparison with what eight bits make of an operand would tell of
       nothing but that.
    2. Products of uint8 and int8, which saturate on some processors, have uint8 on both sides.
    3. Long sums are in float64: number after number they lose up to half of the digits of float32.

    Args:
        model: In memory, or a file that may have external data beside it.
        folder: Where the files of external initializers lie, of a model in memory.

    Returns:
        The path or the serialised model, and the folder of its external data.
    """
    if isinstance(model, Path) and not may_be_inaccurate(model):
        return str(model), folder
    try:
        proto, place = _read(model, folder)
    except (DecodeError, ValueError):
        return str(model), folder  # no model, which onnxruntime says better
    accurate = onnx.ModelProto()
    accurate.CopyFrom(proto)
    for node in filter(_coarse, all_nodes(accurate.graph)):
        for attribute in node.attribute:
            if attribute.name == ACCURACY:
                attribute.i = _FLOAT32
    make_weights_unsigned(accurate)
    add_in_float64(accurate)
    if isinstance(model, Path) and accurate == proto:
        return str(model), folder
    return accurate.SerializeToString(), place


def _coarse(node: onnx.NodeProto) -> bool:
    """Tell whether a node may be computed with fewer bits."""
    return any(one.name == ACCURACY and one.i > _FLOAT32 for one in node.attribute)


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
    make_weights_unsigned(lowered)
    restamped = restamp(lowered)
    if uses_bfloat16(lowered):
        lower_bfloat16(lowered)
    elif not restamped:
        return None
    return lowered.SerializeToString(), place


def wide_source(model: onnx.ModelProto | Path, folder: str = "") -> tuple[bytes, str] | None:
    """Return a model that computes the same in float32, and without rounding to whole numbers.

    Args:
        model: In memory, or a file that may have external data beside it.
        folder: Where the files of external initializers lie, of a model in memory.

    Returns:
        The serialised model and the folder of its external data; None where it has no such form.
    """
    proto, place = _read(model, folder)
    wide = exact_form(proto) if needs_exact_form(proto) else None
    return None if wide is None else (wide.SerializeToString(), place)


def _read(model: onnx.ModelProto | Path, folder: str) -> tuple[onnx.ModelProto, str]:
    if isinstance(model, Path):
        return onnx.load(model, load_external_data=False), str(model.absolute().parent)
    return model, folder
