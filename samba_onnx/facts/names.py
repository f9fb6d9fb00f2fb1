"""Names that rooms agree on: endings of symbols, names of graphs, and how a free name is found."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable
from typing import Final, TypeVar

__all__ = [
    "BEFORE",
    "GRADIENT",
    "GRADIENT_ROUNDING_SEED",
    "LOSSES",
    "OPT",
    "RATE",
    "ROUNDING_SEED",
    "SEED",
    "SEPARATOR",
    "UPDATED",
    "WIDE",
    "WRITTEN",
    "ZEROED",
    "FreeNames",
    "before_name",
    "free_name",
    "gradient_name",
    "in_a_list",
    "joined",
    "root_name",
    "symbol_name",
    "updated_name",
    "written_name",
    "zeroed_name",
]

SEPARATOR: Final = "__"
"""Joins the parts of a symbol's name: the path through a module tree, and what is derived of it."""
GRADIENT: Final = f"{SEPARATOR}grad"
"""Ends the name of a value's gradient."""
UPDATED: Final = f"{SEPARATOR}updated"
"""Ends the name of a resident's new value."""
WRITTEN: Final = f"{SEPARATOR}written"
"""Ends the name of a weight's value after the forward pass wrote it, as ``max_norm`` of embeddings does;
an optimizer's step is what updates it."""
ZEROED: Final = f"{SEPARATOR}zeroed"
"""Ends the name of a gradient after it was set to zero."""
BEFORE: Final = f"{SEPARATOR}before"
"""Ends the name of what a resident held before it was changed."""
RATE: Final = f"{SEPARATOR}rate"
"""Ends the name of the argin for a dropout's probability of a zero."""
SEED: Final = f"{SEPARATOR}seed"
"""Ends the name of the argin for the seed of a dropout's mask."""
ROUNDING_SEED: Final = f"{SEPARATOR}rounding_seed"
"""Ends the name of the argin for the seed by which an optimizer's step rounds at random."""
GRADIENT_ROUNDING_SEED: Final = f"gradients{ROUNDING_SEED}"
"""Name of the argin for the seed by which gradients are rounded at random."""
OPT: Final = f"{SEPARATOR}opt"
"""Ends the name of an optimizer's OPT part, behind the optimizer's."""
WIDE: Final = f"{SEPARATOR}float32"
"""Ends the name of a value before it is rounded at random."""
LOSSES: Final = "losses"
"""Key of a program's metadata: names of the outputs that training starts from, as a JSON list."""


_Name = TypeVar("_Name", bound="str | os.PathLike[str]")


def in_a_list(names: _Name | Iterable[_Name]) -> tuple[_Name, ...]:
    """Return names of which there may be one or several, as options of the command line may be given once or more.

    A text is a sequence of letters to Python: without this, one name would be taken for as many as it has
    letters, or be searched for others that are a part of it.

    Args:
        names: One, or several.
    """
    if isinstance(names, str | os.PathLike):
        return (names,)
    return tuple(names)


def joined(*parts: str) -> str:
    """Return the parts of a name as one name; empty parts are left out.

    Args:
        parts: The outermost first.
    """
    # A root without prefix must not begin with the separator.
    return SEPARATOR.join(part for part in parts if part)


def root_name(module: object, prefix: str | None = None) -> str:
    """Return the name that leads all names of a module's parameters, buffers and outputs.

    Args:
        module: The module that is converted or exported.
        prefix: Goes in front, as ``parent_module_prefix`` of ``from_torch_model_``.
    """
    return joined(prefix or "", type(module).__name__.lower())


def symbol_name(root: str, path: str) -> str:
    """Return the name of a parameter, buffer or module.

    Args:
        root: As :func:`root_name` returns it.
        path: The path from the root, joined by dots; may be empty.
    """
    return joined(root, *path.split("."))


def gradient_name(symbol: str) -> str:
    """Return the name of a symbol's gradient, which is also the name of its region.

    Args:
        symbol: Name of a parameter, input or output.
    """
    return f"{symbol}{GRADIENT}"


def updated_name(resident: str) -> str:
    """Return the name of a resident's new value.

    Args:
        resident: Name of a weight, buffer, optimizer state or gradient.
    """
    return f"{resident}{UPDATED}"


def written_name(weight: str) -> str:
    """Return the name of a weight's value after the forward pass wrote it.

    Args:
        weight: Name of the weight.
    """
    return f"{weight}{WRITTEN}"


def zeroed_name(gradient: str) -> str:
    """Return the name of a gradient after it was set to zero.

    Args:
        gradient: The gradient's name.
    """
    return f"{gradient}{ZEROED}"


def before_name(resident: str) -> str:
    """Return the name of what a resident held before it was changed.

    Args:
        resident: Name of a weight, buffer, optimizer state or gradient.
    """
    return f"{resident}{BEFORE}"


def free_name(wanted: str, taken: Container[str]) -> str:
    """Return a name that is not in use; for many names, see :class:`FreeNames`.

    Args:
        wanted: Is returned if it is free, else with the lowest number behind it that is.
        taken: Names that are in use.
    """
    # Without memory of its own, so that one name takes time in proportion to the clashes.
    return f"{wanted}_{_free_number(wanted, taken, 1)}" if wanted in taken else wanted


def _free_number(wanted: str, taken: Container[str], number: int) -> int:
    """Return the lowest number that is free behind a name, from ``number`` on."""
    while f"{wanted}_{number}" in taken:
        number += 1
    return number


class FreeNames:
    """Names that are in use, and how to find one that is not.

    A name that is taken gets a number behind it, the lowest that is free. Numbers that were tried
    once for a name are not tried again, so that many clashes take no longer than few.
    """

    def __init__(self, taken: Iterable[str] = (), *, first: int = 1) -> None:
        """Begin with names that are in use.

        Args:
            taken: These names.
            first: The number that the first name to clash gets: ``x_1``, or with 2 ``x_2``.
        """
        self._taken = set(taken)
        self._first = first
        self._next: dict[str, int] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._taken

    def reserve(self, names: Iterable[str]) -> None:
        """Add names that are in use.

        Args:
            names: Any; those that are known already make no difference.
        """
        self._taken.update(names)

    def available(self, wanted: str) -> str:
        """Return a name that is not in use, without reserving it.

        Args:
            wanted: Is returned if it is free, else with a number behind it.
        """
        if wanted not in self._taken:
            return wanted
        number = _free_number(wanted, self._taken, self._next.get(wanted, self._first))
        # The next clash of this name begins here; lower numbers are taken, and names are never
        # given back.
        self._next[wanted] = number
        return f"{wanted}_{number}"

    def take(self, wanted: str) -> str:
        """Return a name that is not in use, and reserve it.

        Args:
            wanted: Is returned if it is free, else with a number behind it.
        """
        name = self.available(wanted)
        self._taken.add(name)
        return name
