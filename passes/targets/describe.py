"""Rows of an operator table in words: for reasons, for a terminal, for the documentation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from samba_onnx.passes.targets.named_limits import LIMITS
from samba_onnx.passes.targets.rows import (
    DTYPE_NAMES,
    OperandLimits,
    OperatorRow,
    Status,
    TypeTable,
)
from samba_onnx.passes.targets.schema import NumberRange


def type_names(types: TypeTable) -> str:
    """Return the data types of an operand in words."""
    # A row narrowed to the types of a target may be left without any.
    return ", ".join(DTYPE_NAMES[dtype] for dtype in types) or "none"


def describe_rule(rule: tuple[int | float | str, ...] | NumberRange) -> str:
    """Return the allowed values of an attribute in words."""
    if not isinstance(rule, NumberRange):
        return " or ".join(str(value) for value in rule)
    parts = [f"at least {rule.min:g}"] if rule.min is not None else []
    parts += [f"at most {rule.max:g}"] if rule.max is not None else []
    return " and ".join(parts) or "any number"


def describe_types(types: TypeTable) -> str:
    """Return data types with their status, as ``full: bfloat16, float32; observed: bool``."""
    grouped = {
        status: ", ".join(DTYPE_NAMES[dtype] for dtype, have in types.items() if have is status)
        for status in Status
    }
    # A status without types would read as if something was missing behind it.
    return "; ".join(
        f"{status.name.lower()}: {names}" for status, names in grouped.items() if names
    )


def describe_limits(row: OperatorRow) -> tuple[str, ...]:
    """Return everything that a row demands besides its data types, one phrase each."""
    return tuple(_limits(row))


def _limits(row: OperatorRow) -> Iterator[str]:
    operands = (*row.inputs, *row.outputs)
    for operand in operands:
        if operand.ranks:
            least, greatest = operand.ranks
            count = f"{least} to {greatest}" if least < greatest else f"{least}"
            yield f"{operand.name} has {count} dimensions"
    for name, rule in row.attributes.items():
        yield f"{name} is {describe_rule(rule)}"
    if row.static:
        yield f"constant at compile time: {', '.join(row.static)}"
    absent = [operand.name for operand in operands if operand.absent]
    if absent:
        yield f"without {', '.join(absent)}"
    for limit in row.limits:
        yield LIMITS[limit].description
    if row.since > 1 or row.until is not None:
        yield f"version {row.since} to {row.until}" if row.until else f"from version {row.since}"


def describe_operands(row: OperatorRow) -> tuple[str, ...]:
    """Return the data types of the operands that have their own, one phrase each."""
    return tuple(
        f"{operand.name}: {describe_types(operand.types)}"
        for operand in _own_types(row, (*row.inputs, *row.outputs))
    )


def _own_types(row: OperatorRow, operands: Iterable[OperandLimits]) -> Iterator[OperandLimits]:
    for operand in operands:
        # Identity, not equality: a row's own table is shared by all operands that state none. Types
        # of operands that must be constant or left out are never checked.
        if operand.types is not row.types and not operand.static and not operand.absent:
            yield operand
