"""The type of a graph's value in ONNX's text form."""

from __future__ import annotations

import onnx_ir as ir

from samba_onnx.facts.dtypes import tensor_text


def type_text(value: ir.Value) -> str:
    """Return a value's type as ONNX and onnxruntime write it.

    Args:
        value: Any value.

    Returns:
        ``tensor(float)``, ``seq(tensor(int64))``, ``optional(tensor(bool))``; empty where the type
        could not be inferred.
    """
    kind: ir.TypeProtocol | None = value.type
    # An initializer of some exporters has a type in its tensor only.
    if kind is None and value.const_value is not None:
        kind = ir.TensorType(value.const_value.dtype)
    return "" if kind is None else _text(kind)


def _text(kind: ir.TypeProtocol) -> str:
    if kind.dtype is ir.DataType.UNDEFINED:
        return ""
    # By the class itself: isinstance is slow on these, which fulfil a runtime protocol.
    if type(kind) is ir.SequenceType:
        return f"seq({_text(kind.elem_type)})"
    if type(kind) is ir.OptionalType:
        return f"optional({_text(kind.elem_type)})"
    text = tensor_text(kind.dtype.name)
    return f"sparse_{text}" if type(kind) is ir.SparseTensorType else text
