"""Whether one node keeps to its operator's row: types, shapes, attributes, constants, limits."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from samba_onnx.passes.reasons import Reason, ReasonCode
from samba_onnx.passes.targets.constants import constant_tensor
from samba_onnx.passes.targets.dimensions import dimension_hint
from samba_onnx.passes.targets.limits import LIMITS
from samba_onnx.passes.targets.rows import DTYPE_NAMES, Operand, Row, Status
from samba_onnx.passes.targets.schema import NumberRange

_FLOATS = frozenset({ir.DataType.DOUBLE, ir.DataType.FLOAT16})
_UNSIGNED = frozenset(
    {ir.DataType.UINT8, ir.DataType.UINT16, ir.DataType.UINT32, ir.DataType.UINT64}
)


def check(node: ir.Node, row: Row, target: str) -> Reason | Status:
    """Compare a node with its operator's row.

    Args:
        node: The node.
        row: The row of its operator.
        target: The target's name, for messages.

    Returns:
        The first reason against the node, or the least status of its data types.
    """
    status = Status.FULL
    for where, value, operand in _operands(node, row):
        if operand is None:
            return Reason(
                ReasonCode.VERSION, f"{row.name} has {where}, which its row does not know"
            )
        found = _check_operand(node, row, target, where, value, operand)
        if isinstance(found, Reason):
            return found
        status = max(status, found)
    return _check_attributes(node, row, target) or _check_limits(node, row) or status


def _operands(node: ir.Node, row: Row) -> Iterator[tuple[str, ir.Value, Operand | None]]:
    """Yield every operand that the node has: where it stands, its value, what the row says."""
    for position, value in enumerate(node.inputs):
        if value is not None:
            operand = row.input(position)
            name = operand.name if operand else str(position)
            yield f"input {name}", value, operand
    for position, value in enumerate(node.outputs):
        if value.name != "" or value.uses() or value.is_graph_output():  # else left out
            operand = row.output(position)
            name = operand.name if operand else str(position)
            yield f"output {name}", value, operand


def _check_operand(
    node: ir.Node, row: Row, target: str, where: str, value: ir.Value, operand: Operand
) -> Reason | Status:
    subject = f"{row.name}: {where}"
    if operand.absent:
        return Reason(
            ReasonCode.LIMIT, f"{subject} is not supported by {target}; it must be left out"
        )
    if operand.static:
        return _check_static(subject, target, value)
    found = _check_type(subject, target, value, operand)
    if isinstance(found, Reason):
        return found
    return _check_shape(node, subject, target, value, operand) or found


def _check_static(subject: str, target: str, value: ir.Value) -> Reason | Status:
    if constant_tensor(value) is not None:
        return Status.FULL
    return Reason(
        ReasonCode.STATIC_INPUT,
        f"{subject} is computed at run time; {target} needs it at compile time",
    )


def _check_type(subject: str, target: str, value: ir.Value, operand: Operand) -> Reason | Status:
    kind = value.type
    if kind is None and value.const_value is not None:
        kind = ir.TensorType(value.const_value.dtype)
    if kind is None:
        return Reason(ReasonCode.UNKNOWN_TYPE, f"{subject} has a type that could not be inferred")
    if not isinstance(kind, ir.TensorType):
        return Reason(ReasonCode.VALUE_KIND, f"{subject} is {_kind_name(kind)}, not a tensor")
    status = operand.types.get(kind.dtype)
    if status is not None:
        return status
    if kind.dtype is ir.DataType.UNDEFINED:
        return Reason(ReasonCode.UNKNOWN_TYPE, f"{subject} has a type that could not be inferred")
    supported = ", ".join(DTYPE_NAMES[dtype] for dtype in operand.types) or "none"
    return Reason(
        ReasonCode.DTYPE,
        f"{subject} is {DTYPE_NAMES.get(kind.dtype, kind.dtype)}; {target} supports {supported}",
        _type_hint(kind.dtype),
    )


def _kind_name(kind: ir.TypeProtocol) -> str:
    if isinstance(kind, ir.SequenceType):
        return "a sequence"
    if isinstance(kind, ir.OptionalType):
        return "an optional"
    return "a sparse tensor" if isinstance(kind, ir.SparseTensorType) else "of another kind"


def _type_hint(dtype: ir.DataType) -> str:
    if dtype in _FLOATS:
        return "export the model in float32 or bfloat16"
    if dtype in _UNSIGNED:
        return "cast it to int32 or int64 in the model"
    return ""


def _check_shape(
    node: ir.Node, subject: str, target: str, value: ir.Value, operand: Operand
) -> Reason | None:
    shape: ir.ShapeProtocol | None = value.shape
    if shape is None and value.const_value is not None:
        shape = value.const_value.shape
    if shape is None:
        return Reason(
            ReasonCode.UNKNOWN_RANK,
            f"{subject} has a shape that could not be inferred; {target} runs static shapes",
        )
    for dim in shape:
        if not isinstance(dim, int):
            return Reason(
                ReasonCode.DYNAMIC_SHAPE,
                f"{subject} has the dynamic shape {shape}; {target} runs static shapes",
                dimension_hint(node, dim.value),
            )
        if dim == 0:
            return Reason(ReasonCode.EMPTY, f"{subject} has no elements (shape {shape})")
    if operand.ranks is None or operand.ranks[0] <= len(shape) <= operand.ranks[1]:
        return None
    allowed = " to ".join(map(str, dict.fromkeys(operand.ranks)))
    return Reason(
        ReasonCode.RANK, f"{subject} has {len(shape)} dimensions; {target} supports {allowed}"
    )


def _check_attributes(node: ir.Node, row: Row, target: str) -> Reason | None:
    for name, allowed in row.attributes.items():
        attribute = node.attributes.get(name)
        if attribute is None:
            continue  # its default is always supported
        if attribute.is_ref():
            return Reason(ReasonCode.ATTRIBUTE, f"{row.name}: attribute {name} is not resolved")
        value = attribute.value
        elements = value if isinstance(value, (list, tuple)) else (value,)
        if not all(_allowed(element, allowed) for element in elements):
            return Reason(
                ReasonCode.ATTRIBUTE,
                f"{row.name}: attribute {name} is {_text(value)}; "
                f"{target} supports {describe_rule(allowed)}",
            )
    return None


def _allowed(value: object, rule: tuple[int | float | str, ...] | NumberRange) -> bool:
    if not isinstance(rule, NumberRange):
        return value in rule
    if not isinstance(value, (int, float)):
        return False
    return (rule.min is None or value >= rule.min) and (rule.max is None or value <= rule.max)


def _text(value: object) -> str:
    if isinstance(value, (list, tuple)):
        value = list(value)
    return str(value)[:80]


def describe_rule(rule: tuple[int | float | str, ...] | NumberRange) -> str:
    """Return the allowed values of an attribute in words."""
    if not isinstance(rule, NumberRange):
        return ", ".join(str(value) for value in rule)
    if rule.min is None or rule.max is None:
        return f"at least {rule.min:g}" if rule.min is not None else f"at most {rule.max:g}"
    return f"{rule.min:g} to {rule.max:g}"


def _check_limits(node: ir.Node, row: Row) -> Reason | None:
    for name in row.limits:
        found = LIMITS[name](node)
        if found is not None:
            return Reason(ReasonCode.LIMIT, f"{row.name} {found}")
    return None
