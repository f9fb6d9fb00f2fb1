"""How users' own operators are written: the translations and decompositions that their programs register."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from samba_onnx.errors import UsageError
from samba_onnx.export.operators.registry import find

_ANONYMOUS: Final = frozenset({"_", "<lambda>"})
"""Names of functions that say nothing: two of a file are not one, executed again."""


@dataclass(frozen=True)
class CustomRule:
    """What a user registered for one operator."""

    function: Callable[..., Any]
    is_decomposition: bool
    """Whether it computes with torch; else it writes nodes of ONNX."""

    @property
    def kind(self) -> str:
        """What messages call it."""
        return "decomposition" if self.is_decomposition else "translation"

    @property
    def place(self) -> str:
        """Where it is defined: ``my_ops.py:12``."""
        code = getattr(self.function, "__code__", None)
        if code is None:
            return repr(self.function)
        return f"{code.co_filename.replace(chr(92), '/').rpartition('/')[2]}:{code.co_firstlineno}"

    def is_defined_anew(self, other: CustomRule) -> bool:
        """Return whether another one is the same definition, executed again, as notebooks do."""
        mine, others = self.function, other.function
        names = ("__module__", "__qualname__")
        if self.is_decomposition != other.is_decomposition:
            return False
        if getattr(mine, "__name__", "") in _ANONYMOUS and self._file == other._file:
            return self.place == other.place
        return all(getattr(mine, name, mine) == getattr(others, name, others) for name in names)

    @property
    def _file(self) -> str:
        code = getattr(self.function, "__code__", None)
        return "" if code is None else code.co_filename


_RULES: dict[str, CustomRule] = {}


def register(name: str, rule: CustomRule) -> None:
    """Enter a rule for an operator.

    Args:
        name: ``mylib::swish`` for all overloads, or ``mylib::swish.default`` for one.
        rule: How the operator is written. The same definition, executed again, replaces the one
            before.

    Raises:
        UsageError: The operator has another rule, or one of samba-onnx's own.
    """
    namespace, _, rest = name.partition("::")
    operator, _, overload = rest.partition(".")
    if find(namespace, operator, overload) is not None:
        raise UsageError(
            f"the {rule.kind} of {name} at {rule.place} is not needed: samba-onnx translates that "
            "operator itself; leave it out"
        )
    other = _RULES.get(name)
    if other is not None and not rule.is_defined_anew(other):
        raise UsageError(
            f"{name} has a {other.kind} at {other.place} already, and the {rule.kind} at {rule.place} "
            "would be another one: leave one of them out"
        )
    _RULES[name] = rule


def unregister(name: str) -> None:
    """Take out what was registered for an operator, if anything was.

    Args:
        name: As it was registered.
    """
    _RULES.pop(name, None)


def find_custom(namespace: str, name: str, overload: str) -> CustomRule | None:
    """Return the rule that a user registered for an operator, if there is one.

    Args:
        namespace: As ``mylib``.
        name: As ``swish``.
        overload: As ``default``.
    """
    return _RULES.get(f"{namespace}::{name}.{overload}") or _RULES.get(f"{namespace}::{name}")
