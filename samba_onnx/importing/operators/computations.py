"""The table of ONNX operators that can be computed by torch, and how."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import onnx_ir as ir

from samba_onnx.errors import InternalError, ModelError
from samba_onnx.facts.domains import qualified
from samba_onnx.importing.values import Array
from samba_onnx.safety.files import printable

__all__ = ["Computation", "Counterpart", "Node", "computes", "enter", "find", "integers"]


@dataclass(frozen=True, eq=False)
class Node:
    """What a computation is told besides its operands."""

    name: str
    operator: str
    """The operator, with its domain unless that is the default one, as ``com.microsoft::Gelu``."""
    attributes: Mapping[str, Any]
    """Numbers, lists, texts and ``onnx_ir`` tensors, by name."""
    wanted: tuple[bool, ...]
    """Per output: whether anything reads it."""
    training: bool = False
    """Whether the module is in training mode."""

    def integer(self, name: str, default: int = 0) -> int:
        """Return an integer attribute or its default."""
        return int(self.attributes.get(name, default))

    def number(self, name: str, default: float = 0.0) -> float:
        """Return a float attribute or its default."""
        return float(self.attributes.get(name, default))

    def text(self, name: str, default: str = "") -> str:
        """Return a string attribute or its default."""
        return str(self.attributes.get(name, default))

    def integers(self, name: str, default: list[int] | None = None) -> list[int]:
        """Return an attribute of several integers, or its default."""
        # An attribute that is an empty list is given, and no reason for the default.
        values = self.attributes.get(name)
        return list(default or []) if values is None else [int(item) for item in values]

    def tensor(self, name: str) -> Array | None:
        """Return a tensor attribute as an array; None when it is not given."""
        tensor: ir.TensorProtocol | None = self.attributes.get(name)
        # tensor() is read as a numpy array because shapes and fillings are computed before torch
        # sees them.
        return None if tensor is None else tensor.numpy()

    def wants(self, position: int) -> bool:
        """Return whether an output is read."""
        return position < len(self.wanted) and self.wanted[position]

    def refuse(self, reason: str) -> ModelError:
        """Return the error that says why this node cannot be computed by torch.

        Args:
            reason: What is missing, and what to do.
        """
        return ModelError(
            f"node {printable(self.name)!r} ({self.operator}): {reason}",
            node=self.name,
            operator=self.operator,
        )


Computation: TypeAlias = Callable[..., Any]
"""``(node, *operands) -> result``: a tensor, an array where the result is known without looking at
tensors, a list for a sequence, or a tuple of these for several outputs. Operands are tensors; None
where left out; arrays at the positions that the entry names as known, and at flexible ones when they are
known; lists for sequences."""


@dataclass(frozen=True)
class Counterpart:
    """One row of the table."""

    compute: Computation
    known: frozenset[int]
    """Positions of operands that must not depend on tensors, such as a shape."""
    flexible: frozenset[int]
    """Positions of operands that come as arrays when they do not depend on tensors."""


_Function = TypeVar("_Function", bound=Computation)
_TABLE: dict[str, Counterpart] = {}


def enter(
    name: str,
    compute: Computation,
    known: tuple[int, ...] = (),
    flexible: tuple[int, ...] = (),
) -> None:
    """Enter one operator into the table.

    Args:
        name: As ``Conv``; of another than the default domain as ``com.microsoft::Gelu``.
        compute: The computation.
        known: Positions of operands that it gets as arrays.
        flexible: Positions of operands that it gets as arrays where they are known.

    Raises:
        InternalError: The operator is in the table already.
    """
    # A second entry would win in silence, and which one depends on the order of imports.
    if name in _TABLE:
        raise InternalError(f"two computations of {name}: please report this")
    _TABLE[name] = Counterpart(compute, frozenset(known), frozenset(flexible))


def computes(
    *names: str, known: tuple[int, ...] = (), flexible: tuple[int, ...] = ()
) -> Callable[[_Function], _Function]:
    """Enter a function into the table under each of ``names``; see ``enter``."""

    def decorate(function: _Function) -> _Function:
        for name in names:
            enter(name, function, known, flexible)
        return function

    return decorate


def find(domain: str, op_type: str) -> Counterpart | None:
    """Return the row of an operator, if there is one."""
    return _TABLE.get(qualified(domain, op_type))


def integers(array: Array | None) -> list[int] | None:
    """Return a known operand as a flat list of integers; None when it was left out."""
    return None if array is None else [int(item) for item in array.reshape(-1)]
