"""Numbers that notice what they are used for, beyond being counted on and printed.

``self.calls += 1`` for a log changes nothing of what is computed, ``if self.calls > 1000`` does, although
the first thousand calls do not show it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from samba_onnx.export.capture.explanations import user_place

__all__ = ["CountedFloat", "CountedInt", "Uses", "counted"]

Uses: TypeAlias = list[str]
"""The user's lines that used a number."""

_ARITHMETIC: Final = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
_UNARY: Final = ("neg", "pos", "abs")
_QUESTIONS: Final = ("eq", "ne", "lt", "le", "gt", "ge")
_CONVERSIONS: Final = ("bool", "hash", "int", "float", "trunc", "floor", "ceil", "round")


class CountedInt(int):
    """An integer that says where it was compared, converted, or asked for its truth."""

    uses: Uses


class CountedFloat(float):
    """A floating-point number of the same kind."""

    uses: Uses


def counted(value: Any, uses: Uses) -> Any:
    """Return a number that notices its uses; anything else as it is.

    Args:
        value: The number.
        uses: Receives the user's line for every use; numbers that are computed of it have the same.
    """
    # By exact type: truth values are integers, and bool cannot be derived from.
    if type(value) not in (int, float):
        return value
    number = (CountedInt if isinstance(value, int) else CountedFloat)(value)
    number.uses = uses
    return number


def _computing(kind: type[Any], name: str) -> Callable[..., Any]:
    original = getattr(kind, name)

    def compute(self: Any, *others: Any) -> Any:
        return counted(original(self, *others), self.uses)

    return compute


def _noting(kind: type[Any], name: str) -> Callable[..., Any]:
    original = getattr(kind, name)

    def note(self: Any, *others: Any) -> Any:
        self.uses.append(user_place())
        return original(self, *others)

    return note


# repr and str stay as they are: to print a number decides nothing.
for _kind, _base in ((CountedInt, int), (CountedFloat, float)):
    for _name in (*_ARITHMETIC, *(f"r{name}" for name in _ARITHMETIC), *_UNARY):
        setattr(_kind, f"__{_name}__", _computing(_base, f"__{_name}__"))
    for _name in (*_QUESTIONS, *_CONVERSIONS):
        if hasattr(_base, f"__{_name}__"):
            setattr(_kind, f"__{_name}__", _noting(_base, f"__{_name}__"))
