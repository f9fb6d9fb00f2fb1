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
    if kind is None and value.const_value is not None:
        kind = ir.TensorType(value.const_value.dtype)
    wrappers: list[str] = []
    while isinstance(kind, ir.SequenceType | ir.OptionalType):
        wrappers.append("seq" if isinstance(kind, ir.SequenceType) else "optional")
        kind = kind.elem_type
    if kind is None or kind.dtype is ir.DataType.UNDEFINED:
        return ""
    text = tensor_text(kind.dtype.name)
    if isinstance(kind, ir.SparseTensorType):
        text = f"sparse_{text}"
    for wrapper in reversed(wrappers):
        text = f"{wrapper}({text})"
    return text
