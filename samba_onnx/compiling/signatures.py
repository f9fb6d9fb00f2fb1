"""Python's functions with the options of a compilation as keywords: their signatures and their documentation."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import Field
from typing import Any, Final, TypeVar

from samba_onnx.compiling.option import BOTH, Front, default_of, option_of
from samba_onnx.compiling.options import option_fields

__all__ = ["keyword_fields", "takes_keywords"]

F = TypeVar("F", bound=Callable[..., Any])
_VARIABLE: Final = "keywords"
_PLACE: Final = "**keywords:"


def keyword_fields(front: Front | None, *, writes: bool = True) -> list[Field[Any]]:
    """Return the fields that a function takes as keywords.

    Args:
        front: What it compiles; None for programs, of which only what counts for all models can be decided.
        writes: Whether it writes a PEF.
    """
    wanted = BOTH if front is None else frozenset({front})
    chosen = []
    for field in option_fields().values():
        stated = option_of(field)
        # With no front, an option must count for both: the programs may be of either.
        counts = wanted <= stated.fronts and (writes or not stated.writes)
        # Precisions and samples are decided before there is a program.
        if counts and stated.python is not None and (front is not None or not stated.before):
            chosen.append(field)
    return chosen


def takes_keywords(front: Front | None, *, writes: bool = True) -> Callable[[F], F]:
    """Give a function that takes ``**keywords`` the signature and the documentation of the options.

    Args:
        front: What it compiles; None for programs.
        writes: Whether it writes a PEF.

    Returns:
        A decorator, which leaves the function as it is but for these two.
    """
    fields = keyword_fields(front, writes=writes)

    def decorate(function: F) -> F:
        own = inspect.signature(function)
        stated = [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default_of(field),
                annotation=field.type,
            )
            for field in fields
        ]
        # The options stand last: they are keywords only, which nothing may follow.
        others = [each for name, each in own.parameters.items() if name != _VARIABLE]
        signature = own.replace(parameters=[*others, *stated])
        function.__signature__ = signature  # type: ignore[attr-defined]
        function.__doc__ = _documented(function.__doc__ or "", fields)
        return function

    return decorate


def _documented(text: str, fields: list[Field[Any]]) -> str:
    """Return a docstring in which each option stands in the place of ``**keywords``."""
    lines = text.splitlines()
    place = next((n for n, line in enumerate(lines) if line.strip().startswith(_PLACE)), None)
    # Without an entry there is nothing to put them in the place of, as under `python -OO`.
    if place is None:
        return text
    margin = lines[place][: len(lines[place]) - len(lines[place].lstrip())]
    end = place + 1
    # What stands deeper belongs to the entry.
    while end < len(lines) and lines[end].startswith(f"{margin} "):
        end += 1
    return "\n".join([*lines[:place], *_entries(fields, margin), *lines[end:]])


def _entries(fields: list[Field[Any]], margin: str) -> list[str]:
    entries = []
    for field in fields:
        stated = option_of(field)
        # On a command line a flag is repeated; Python's callers give several values at once.
        text = f"{field.name}: {stated.help.removesuffix('; repeatable.').rstrip('.')}. {stated.python or ''}"
        entries += textwrap.wrap(
            text.strip(), 110, initial_indent=margin, subsequent_indent=f"{margin}    "
        )
    return entries
