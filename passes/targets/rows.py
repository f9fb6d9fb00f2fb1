"""Rows of an operator table: what a target supports of one operator, ready to be looked up."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass

import onnx
import onnx_ir as ir

from samba_onnx.facts.domains import qualified, split_name
from samba_onnx.passes.targets.reasons import ReasonCode
from samba_onnx.passes.targets.schema import (
    DTYPES,
    NumberRange,
    RowFile,
    TypeLists,
    UnsupportedFile,
)


# Ordered integers, so that the status of a node is the maximum over its operands: it is as well
# known as the least known of them.
class Status(enum.IntEnum):
    """How well support is known, from best to least."""

    FULL = 0
    """The vendor documents full support."""
    EXPERIMENTAL = 1
    """The vendor documents experimental support."""
    OBSERVED = 2
    """A program or log for the RDU uses it; the vendor's table does not say."""
    ASSUMED = 3
    """Inferred from other operators."""

    @property
    def evidence(self) -> str:
        """``documented``, ``observed`` or ``assumed``."""
        return "documented" if self <= Status.EXPERIMENTAL else self.name.lower()


TypeTable = Mapping[ir.DataType, Status]

DTYPE_NAMES: Mapping[ir.DataType, str] = {dtype: name for name, dtype in DTYPES.items()}
"""The names that target files and messages use, by ONNX's own data types."""


@dataclass(frozen=True, slots=True)
class OperandLimits:
    """Types, ranks and further limits of one input or output, by a row of the table."""

    name: str
    """ONNX's formal name."""
    types: TypeTable
    ranks: tuple[int, int] | None = None
    """Least and greatest number of dimensions; None where any will do."""
    static: bool = False
    """Whether it must be a compile-time constant."""
    absent: bool = False
    """Whether it must be left out."""


@dataclass(frozen=True)
class OperatorRow:
    """A supported operator and its limits."""

    domain: str
    op_type: str
    since: int
    """First version of the operator that the row describes."""
    until: int | None
    """Last version; None up to the newest that the table knows."""
    types: TypeTable
    """Data types of every operand that has none of its own."""
    inputs: tuple[OperandLimits, ...]
    outputs: tuple[OperandLimits, ...]
    repeats: tuple[bool, bool]
    """Whether the last input and the last output stand for any number of them."""
    attributes: Mapping[str, tuple[int | float | str, ...] | NumberRange]
    limits: tuple[str, ...]
    source: str

    @property
    def name(self) -> str:
        """The operator, with its domain unless that is ONNX's own."""
        return qualified(self.domain, self.op_type)

    @property
    def evidence(self) -> str:
        """The best evidence of any data type: ``documented``, ``observed`` or ``assumed``."""
        # The best of all types, unlike for a node: a row is shown as documented where at least one
        # of its types is.
        return min(self.types.values(), default=Status.ASSUMED).evidence

    @property
    def static(self) -> tuple[str, ...]:
        """Names of the inputs that must be compile-time constants."""
        return tuple(operand.name for operand in self.inputs if operand.static)

    def input(self, position: int) -> OperandLimits | None:
        """Return what the row says of an input; None where the operator has no such input."""
        return _at(self.inputs, position, self.repeats[0])

    def output(self, position: int) -> OperandLimits | None:
        """Return what the row says of an output; None where the operator has no such output."""
        return _at(self.outputs, position, self.repeats[1])


@dataclass(frozen=True)
class UnsupportedRow:
    """An operator that the target is known not to run."""

    domain: str
    op_type: str
    code: ReasonCode
    note: str

    @property
    def name(self) -> str:
        """The operator, with its domain unless that is ONNX's own."""
        return qualified(self.domain, self.op_type)


def _at(operands: tuple[OperandLimits, ...], position: int, repeats: bool) -> OperandLimits | None:
    if position < len(operands):
        return operands[position]
    # Only the last operand may be variadic, as in Concat: all further ones are like it.
    return operands[-1] if repeats and operands else None


@dataclass(frozen=True)
class _Signature:
    """Formal names of an operator's operands."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    repeats: tuple[bool, bool]


def _signature(domain: str, op_type: str, row: RowFile) -> _Signature:
    """Take the formal names from ONNX; for other operators ``input0``, ``output0``, ... as used."""
    try:
        # The newest schema, without a version: rows name operands as ONNX does today, whichever
        # versions they describe.
        schema = onnx.defs.get_schema(op_type, domain=domain)
    except onnx.defs.SchemaError:
        used = {*row.operands, *row.ranks, *row.static, *row.absent}
        # All four tables may name operands; whichever has the greatest number says how many are
        # described.
        return _Signature(_numbered(used, "input"), _numbered(used, "output"), (True, True))
    variadic = onnx.defs.OpSchema.FormalParameterOption.Variadic
    return _Signature(
        tuple(formal.name for formal in schema.inputs),
        tuple(formal.name for formal in schema.outputs),
        (
            bool(schema.inputs) and schema.inputs[-1].option == variadic,
            bool(schema.outputs) and schema.outputs[-1].option == variadic,
        ),
    )


def _numbered(used: set[str], stem: str) -> tuple[str, ...]:
    numbers = [int(match[1]) for name in used if (match := re.fullmatch(stem + r"(\d{1,3})", name))]
    # One more than the greatest number named: it repeats, and must not inherit what the last named
    # one demands.
    return tuple(f"{stem}{number}" for number in range(max(numbers, default=-1) + 2))


def _types(lists: TypeLists, allowed: frozenset[str] | None) -> TypeTable:
    return {
        DTYPES[name]: Status[status.upper()]
        for status, names in lists.statuses()
        for name in names
        if allowed is None or name in allowed
    }


def build_row(name: str, row: RowFile, dtypes: frozenset[str] | None) -> OperatorRow:
    """Resolve a row as a file states it.

    Args:
        name: The operator, ``domain::Operator`` outside ONNX's own domain.
        row: What the file says.
        dtypes: Data types that the target computes with; None for all.

    Returns:
        The row with operands by position and data types narrowed to the target's.

    Raises:
        ValueError: The row names an operand that the operator does not have.
    """
    domain, op_type = split_name(name)
    signature = _signature(domain, op_type, row)
    stated = {**row.operands, **row.ranks, **dict.fromkeys((*row.static, *row.absent))}
    unknown = sorted(stated.keys() - {*signature.inputs, *signature.outputs})
    if unknown:
        known = ", ".join(dict.fromkeys((*signature.inputs, *signature.outputs)))
        raise ValueError(f"{name} has no operand {unknown[0]!r}; it has {known}")
    # One table for all operands without types of their own: describe.py knows it by identity.
    types = _types(row, dtypes)

    def operand(formal: str) -> OperandLimits:
        own = row.operands.get(formal)
        return OperandLimits(
            name=formal,
            types=types if own is None else _types(own, dtypes),
            ranks=row.ranks.get(formal),
            static=formal in row.static,
            absent=formal in row.absent,
        )

    return OperatorRow(
        domain=domain,
        op_type=op_type,
        since=row.since,
        until=row.until,
        types=types,
        inputs=tuple(operand(formal) for formal in signature.inputs),
        outputs=tuple(operand(formal) for formal in signature.outputs),
        repeats=signature.repeats,
        attributes={
            key: rule if isinstance(rule, NumberRange) else tuple(rule)
            for key, rule in row.attributes.items()
        },
        limits=tuple(row.limits),
        source=row.source,
    )


def build_unsupported(name: str, row: UnsupportedFile) -> UnsupportedRow:
    """Resolve a row of the operators that the target does not run."""
    domain, op_type = split_name(name)
    return UnsupportedRow(domain, op_type, ReasonCode(row.code), row.note)
