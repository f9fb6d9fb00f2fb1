"""Nodes of ONNX whose results nobody states: onnx's own inference does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import onnx
import onnx_ir as ir

from samba_onnx.errors import ModelError
from samba_onnx.export.translation.builder import GraphBuilder, Operand
from samba_onnx.export.translation.value_types import element
from samba_onnx.facts.versions import OPSET

_LARGEST: Final = 1 << 16
"""Elements of the largest constant whose content inference is shown: shapes, axes and bounds are small."""


def infer_and_emit(
    builder: GraphBuilder,
    op_type: str,
    operands: Sequence[Operand | Sequence[int] | None],
    attributes: dict[str, Any],
    outputs: int,
) -> list[ir.Value]:
    """Append a node of ONNX; types and shapes of its results are what onnx infers.

    Args:
        builder: The graph to append to.
        op_type: An operator of ONNX's own domain.
        operands: Its inputs: values; numbers, which get the type of the first value; lists of
            integers; None for one that is left out.
        attributes: Its attributes; None leaves one out.
        outputs: How many results it has.

    Raises:
        ModelError: There is no such operator, it does not take these inputs, or the shape of a result is not
            known without values.
    """
    values = _as_values(builder, op_type, operands)
    names = ["" if value is None else f"in{index}" for index, value in enumerate(values)]
    chosen = {key: value for key, value in attributes.items() if value is not None}
    try:
        schema = onnx.defs.get_schema(op_type, OPSET, "")
        node = onnx.helper.make_node(op_type, names, [f"out{i}" for i in range(outputs)], **chosen)
        known = {
            name: value for name, value in zip(names, values, strict=True) if value is not None
        }
        inferred = onnx.shape_inference.infer_node_outputs(
            schema,
            node,
            {name: _type(value) for name, value in known.items()},
            {name: data for name, value in known.items() if (data := _content(value)) is not None},
            opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        )
    except Exception as error:  # onnx raises errors of several kinds, of no common class
        reason = " ".join(str(error).split())[:300]
        raise ModelError(f"operator {op_type} of ONNX cannot be written so: {reason}") from None
    specs = [_spec(op_type, inferred.get(f"out{index}")) for index in range(outputs)]
    return builder.emit_several(op_type, values, specs, **chosen)


def _as_values(
    builder: GraphBuilder, op_type: str, operands: Sequence[Operand | Sequence[int] | None]
) -> list[ir.Value | None]:
    kinds = [element(operand) for operand in operands if isinstance(operand, ir.Value)]
    if any(isinstance(each, ir.Value) and each.graph is not builder.graph for each in operands):
        raise ModelError(
            f"operator {op_type} of ONNX is given a value of another graph: a translation computes with what "
            "it is given and with what it made of that, anew for each use"
        )
    values: list[ir.Value | None] = []
    for operand in operands:
        if operand is None or isinstance(operand, ir.Value):
            values.append(operand)
        elif isinstance(operand, Sequence):
            values.append(builder.integers(operand))
        elif not kinds:
            raise ModelError(f"operator {op_type} of ONNX is given numbers only: give it a tensor")
        else:
            values.append(builder.constant(operand, kinds[0]))
    return values


def _type(value: ir.Value) -> onnx.TypeProto:
    assert value.shape is not None
    sizes = [int(size) for size in value.shape]  # type: ignore[arg-type]  # static throughout
    return onnx.helper.make_tensor_type_proto(int(element(value)), sizes)


def _content(value: ir.Value) -> onnx.TensorProto | None:
    constant = value.const_value
    if constant is None or constant.size > _LARGEST:
        return None
    return onnx.numpy_helper.from_array(constant.numpy())


def _spec(op_type: str, kind: onnx.TypeProto | None) -> tuple[ir.DataType, list[int]]:
    tensor = None if kind is None else kind.tensor_type
    if tensor is None or not tensor.HasField("shape"):
        raise ModelError(
            f"operator {op_type} of ONNX has a result whose shape is not known: state it, with build.emit"
        )
    sizes = [size.dim_value if size.HasField("dim_value") else None for size in tensor.shape.dim]
    if None in sizes:
        raise ModelError(
            f"operator {op_type} of ONNX has a result whose sizes depend on values: a compiled graph has "
            "fixed sizes; state them, with build.emit"
        )
    return ir.DataType(tensor.elem_type), [size for size in sizes if size is not None]
