"""Whether one node keeps to its operator's row: types, shapes, attributes, constants, limits."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from samba_onnx.passes.targets.constants import constant_tensor
from samba_onnx.passes.targets.describe import describe_rule, type_names
from samba_onnx.passes.targets.dimensions import dimension_hint
from samba_onnx.passes.targets.named_limits import LIMITS
from samba_onnx.passes.targets.reasons import Reason, ReasonCode
from samba_onnx.passes.targets.rows import DTYPE_NAMES, OperandLimits, OperatorRow, Status
from samba_onnx.passes.targets.schema import NumberRange

# Types of floats and of unsigned integers that have a near type which the RDU computes with: there
# the hint names it.
_FLOATS = frozenset({ir.DataType.DOUBLE, ir.DataType.FLOAT16})
_UNSIGNED = frozenset(
    {ir.DataType.UINT8, ir.DataType.UINT16, ir.DataType.UINT32, ir.DataType.UINT64}
)


def check(node: ir.Node, row: OperatorRow, target: str) -> Reason | Status:
    """Compare a node with its operator's row.

    Args:
        node: The node.
        row: The row of its operator.
        target: The target's name, for messages.

    Returns:
        The first reason against the node, or the least status of its data types.
    """
    status = Status.FULL
    for value, subject, operand in _operands(node, row):
        answer = _check_operand(node, subject, target, value, operand)
        if isinstance(answer, Reason):
            return answer
        status = max(status, answer)
    # Reasons are true and None is not, so that the first reason wins. The status stands last, for
    # FULL is 0, which is not true either.
    return _check_attributes(node, row, target) or _check_limits(node, row) or status


class _Subject:
    """Words for an operand, such as ``Add: input B``; put together only when a message needs them."""

    __slots__ = ("_kind", "_operand", "_position", "_row")

    def __init__(
        self, row: OperatorRow, kind: str, position: int, operand: OperandLimits | None
    ) -> None:
        self._row, self._kind, self._position, self._operand = row, kind, position, operand

    def __str__(self) -> str:
        name = self._operand.name if self._operand else self._position
        return f"{self._row.name}: {self._kind} {name}"


def _operands(
    node: ir.Node, row: OperatorRow
) -> Iterator[tuple[ir.Value, _Subject, OperandLimits | None]]:
    """Yield each operand and result that a node has: its value, its name in messages, its row's limits."""
    for position, value in enumerate(node.inputs):
        if value is not None:
            operand = row.input(position)
            yield value, _Subject(row, "input", position, operand), operand
    for position, value in enumerate(node.outputs):
        used = bool(value.uses()) or value.is_graph_output()
        operand = row.output(position)
        if used or (value.name != "" and not (operand and operand.absent)):  # else left out
            yield value, _Subject(row, "output", position, operand), operand


def _check_operand(
    node: ir.Node, subject: _Subject, target: str, value: ir.Value, operand: OperandLimits | None
) -> Reason | Status:
    if operand is None:
        return Reason(
            ReasonCode.VERSION, f"{subject} is not part of the operator as {target} knows it"
        )
    if operand.absent:
        return Reason(
            ReasonCode.LIMIT, f"{subject} is not supported by {target}; it must be left out"
        )
    # A constant operand becomes part of the section's configuration and never is a tensor of the
    # device, whose types and shapes would count.
    if operand.static:
        return _check_static(subject, target, value)
    answer = _check_type(subject, target, value, operand)
    if isinstance(answer, Reason):
        return answer
    return _check_shape(node, subject, target, value, operand) or answer


def _check_static(subject: _Subject, target: str, value: ir.Value) -> Reason | Status:
    if constant_tensor(value) is not None:
        return Status.FULL
    return Reason(
        ReasonCode.STATIC_INPUT,
        f"{subject} is computed at run time; {target} needs it at compile time",
    )


def _check_type(
    subject: _Subject, target: str, value: ir.Value, operand: OperandLimits
) -> Reason | Status:
    # Initializers need no type of their own in a model: their tensor has one.
    kind = value.type
    if kind is None and value.const_value is not None:
        kind = ir.TensorType(value.const_value.dtype)
    if kind is not None and not isinstance(kind, ir.TensorType):
        return Reason(ReasonCode.VALUE_KIND, f"{subject} is {_kind_name(kind)}, not a tensor")
    if kind is None or kind.dtype is ir.DataType.UNDEFINED:
        return Reason(ReasonCode.UNKNOWN_TYPE, f"{subject} has a type that could not be inferred")
    status = operand.types.get(kind.dtype)
    if status is not None:
        return status
    return Reason(
        ReasonCode.DTYPE,
        f"{subject} is {DTYPE_NAMES[kind.dtype]}; {target} supports {type_names(operand.types)}",
        _type_hint(kind.dtype),
        DTYPE_NAMES[kind.dtype],
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
    node: ir.Node, subject: _Subject, target: str, value: ir.Value, operand: OperandLimits
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
                dimension_hint(node, shape),
            )
        # An empty tensor has a static shape, but leaves the RDU nothing to run.
        if dim == 0:
            return Reason(ReasonCode.EMPTY, f"{subject} has no elements (shape {shape})")
    if operand.ranks is None or operand.ranks[0] <= len(shape) <= operand.ranks[1]:
        return None
    allowed = " to ".join(map(str, dict.fromkeys(operand.ranks)))
    return Reason(
        ReasonCode.RANK, f"{subject} has {len(shape)} dimensions; {target} supports {allowed}"
    )


def is_static(node: ir.Node) -> bool:
    """Return whether all that a node reads and writes are tensors of static shape, with elements."""
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    return all(_is_static(value) for value in values if value.name or value.uses())


def _is_static(value: ir.Value) -> bool:
    # Of a constant the tensor is sure, whatever shape the model states for it.
    if value.const_value is not None:
        return 0 not in value.const_value.shape
    if not isinstance(value.type, ir.TensorType) or value.shape is None:
        return False
    return all(isinstance(dim, int) and dim > 0 for dim in value.shape)


def _check_attributes(node: ir.Node, row: OperatorRow, target: str) -> Reason | None:
    for name, allowed in row.attributes.items():
        attribute = node.attributes.get(name)
        if attribute is None:
            continue  # its default is always supported
        if attribute.is_ref():
            return Reason(ReasonCode.ATTRIBUTE, f"{row.name}: attribute {name} is not resolved")
        value = attribute.value
        # A range or list of a list attribute, such as strides, holds for each of its elements.
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


def _check_limits(node: ir.Node, row: OperatorRow) -> Reason | None:
    for name in row.limits:
        excess = LIMITS[name].check(node)
        if excess is not None:
            return Reason(ReasonCode.LIMIT, f"{row.name} {excess}")
    return None
