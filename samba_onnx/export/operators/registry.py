"""The table of ATen operators that can be written in ONNX, and how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar, final

import onnx_ir as ir

from samba_onnx.errors import InternalError
from samba_onnx.export.translation.builder import GraphBuilder

Result: TypeAlias = ir.Value | list[ir.Value | None] | None


@final
@dataclass(frozen=True)
class ResultSpec:
    """What torch says that an operator returns: type and sizes of one tensor."""

    dtype: ir.DataType
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """How a tensor lies in torch's memory, which only ``as_strided`` depends on."""

    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Context:
    """What a translation is given besides the operands."""

    build: GraphBuilder
    results: tuple[ResultSpec | None, ...]
    """Per result of the operator; None for one that is undefined."""
    operator: str
    """The operator's full name, for example ``aten.add.Tensor``."""
    layout: Layout | None = None
    """How the first operand lies in torch's memory; None stands for in order."""

    @property
    def result(self) -> ResultSpec:
        """The only or first result."""
        first = self.results[0]
        if first is None:
            raise InternalError(f"{self.operator} has no result: please report this")
        return first


Translation: TypeAlias = Callable[..., Result]
"""``(context, *arguments) -> result``: arguments in the order of the ATen schema, with defaults
filled in; tensors as values, everything else as torch has it. Returns one value per result, each of
the type and shape that torch states."""

_Function = TypeVar("_Function", bound=Translation)
_TABLE: dict[str, Translation] = {}


def translates(*names: str) -> Callable[[_Function], _Function]:
    """Enter a translation into the table.

    Args:
        *names: ATen operators: ``add`` for all overloads of ``aten.add``, or ``add.Tensor`` for one,
            which goes before the former. Operators outside ``aten`` with their namespace, as
            ``prims::iota``.

    Raises:
        InternalError: An operator is in the table already.
    """

    def enter(function: _Function) -> _Function:
        for name in names:
            if name in _TABLE:
                raise InternalError(f"two translations of {name}: please report this")
            _TABLE[name] = function
        return function

    return enter


def find(namespace: str, name: str, overload: str) -> Translation | None:
    """Return the translation of an operator, if there is one.

    Args:
        namespace: As ``aten``.
        name: As ``add``.
        overload: As ``Tensor``.
    """
    full = name if namespace == "aten" else f"{namespace}::{name}"
    return _TABLE.get(f"{full}.{overload}") or _TABLE.get(full)
