"""Translations of your own operators: how an operator of ``torch.library`` is written for the RDU.

A program, or a file that is given to ``samba-port --translations``, registers one per operator::

    import torch
    import samba_onnx.translations as translations

    @torch.library.custom_op("mylib::swish", mutates_args=())
    def swish(x: torch.Tensor, beta: float) -> torch.Tensor: ...

    @translations.translates(swish)
    def _(context, x, beta):
        return context.op("Mul", x, context.op("Sigmoid", context.op("Mul", x, beta)))

The operator's own kernel computes what the program is compared with, as for every module. See
``docs/custom_operators.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import torch
from torch._library.custom_ops import CustomOpDef
from torch._ops import OpOverload, OpOverloadPacket

from samba_onnx.errors import UsageError
from samba_onnx.export.operators.custom import CustomRule, register
from samba_onnx.export.operators.custom import unregister as _unregister
from samba_onnx.export.operators.custom_context import TranslationContext
from samba_onnx.export.operators.registry import Result, ResultSpec
from samba_onnx.export.translation.builder import GraphBuilder

__all__ = [
    "GraphBuilder",
    "Operator",
    "Result",
    "ResultSpec",
    "TranslationContext",
    "decomposes",
    "translates",
    "unregister",
]

Operator: TypeAlias = "str | CustomOpDef | OpOverload | OpOverloadPacket"
"""An operator: what ``torch.library.custom_op`` returned, ``torch.ops.mylib.swish``, one overload of it, or
the name, ``"mylib::swish"`` or ``"mylib::swish.default"``. Without an overload, all are meant."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


def translates(operator: Operator) -> Callable[[_Function], _Function]:
    """Register how an operator is written in ONNX; a decorator.

    The function is called for each use of the operator, with a :class:`TranslationContext` and the arguments of
    the operator's schema in its order, defaults filled in: tensors as ``onnx_ir.Value`` with static
    shapes, everything else as torch has it. It returns a value for each result, of the type and shape
    that the operator's fake kernel states: one alone, or a list. Nothing of ONNX but its default
    domain has to be known: ``context.op("Mul", x, y)`` appends a node and returns its result.

    Args:
        operator: The operator, which torch must know by now.

    Raises:
        UsageError: torch has no such operator, or it has a translation already, of another function
            or samba-onnx's own.
    """
    return _decorator(operator, is_decomposition=False)


def decomposes(operator: Operator) -> Callable[[_Function], _Function]:
    """Register how an operator is computed by others of torch; a decorator.

    The function takes the operator's own arguments and returns the same results. It is traced when the
    operator is compiled, so that whatever can be compiled may stand in it.

    Args:
        operator: The operator, which torch must know by now.

    Raises:
        UsageError: As for :func:`translates`.
    """
    return _decorator(operator, is_decomposition=True)


def unregister(operator: Operator) -> None:
    """Forget what was registered for an operator, so that something else can be.

    Args:
        operator: As it was given to :func:`translates` or :func:`decomposes`.

    Raises:
        UsageError: torch has no such operator.
    """
    _unregister(_name(operator))


def _decorator(operator: Operator, *, is_decomposition: bool) -> Callable[[_Function], _Function]:
    name = _name(operator)

    def enter(function: _Function) -> _Function:
        if not callable(function):
            raise UsageError(
                f"the translation of {name} is {type(function).__name__}: decorate a function"
            )
        register(name, CustomRule(function, is_decomposition))
        return function

    return enter


def _name(operator: Operator) -> str:
    """Return the name of an operator that torch has."""
    if isinstance(operator, OpOverload):
        return f"{operator._schema.name}.{operator._overloadname}"
    if isinstance(operator, OpOverloadPacket):
        return operator._qualified_op_name
    if isinstance(operator, CustomOpDef):
        return operator._qualname
    if not isinstance(operator, str):
        raise UsageError(
            f"an operator is {type(operator).__name__}; give what torch.library.custom_op returned, or its "
            "name, as 'mylib::swish'"
        )
    namespace, _, rest = operator.partition("::")
    name, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), name, None) if namespace and name else None
    is_named = not operator.endswith(".")
    if packet is None or not is_named or (overload and overload not in packet.overloads()):
        raise UsageError(
            f"torch has no operator {operator!r}: define it before its translation, with "
            "torch.library.custom_op, or import the library that does; names are as 'mylib::swish'"
        )
    return operator
