"""How programs for SambaFlow state something: a row of their argument parser, and a field of their settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

__all__ = ["COMPILING", "EVERY", "RUNNING", "Argument", "Command", "compiler_row"]


class Command(StrEnum):
    """What a SambaFlow program is started for: its sub-commands."""

    COMPILE = "compile"
    RUN = "run"
    TEST = "test"
    MEASURE_PERFORMANCE = "measure-performance"
    MEASURE_SECTIONS = "measure-sections"


EVERY: Final = frozenset(Command)
COMPILING: Final = frozenset({Command.COMPILE})
RUNNING: Final = EVERY - COMPILING
"""The commands that load a PEF."""


@dataclass(frozen=True)
class Argument:
    """One thing that a program can be told."""

    name: str
    """Attribute of the Namespace, and field of the settings object."""
    help: str
    flags: tuple[str, ...] = ()
    """On the command line; empty for ``--name``, with hyphens."""
    kind: Any = str
    """Type of its value; ``bool`` for a flag without a value, ``Any`` where SambaFlow's manuals do
    not say which of both it is."""
    default: Any = None
    commands: frozenset[Command] = EVERY
    choices: tuple[Any, ...] = ()
    several: bool = False
    """Whether it takes a list of values."""
    hint: bool = False
    """Whether it has no effect on what is computed here."""
    experimental: bool = False
    """Whether ``--help`` shows it with ``--debug`` only."""
    idle: str = ""
    """Why it has no effect, where it is no hint to the compiler; empty for one that has."""
    beside: str = ""
    """The argument with which together it is no hint but takes effect; empty for one that never does."""
    states: Callable[[Any], Any] | None = field(default=None, compare=False)
    """Makes the value of an option of what it is given, None where it says nothing of the option."""

    @property
    def options(self) -> tuple[str, ...]:
        """How it is written on a command line."""
        return self.flags or (f"--{self.name.replace('_', '-')}",)


def compiler_row(name: str, text: str, kind: Any = str, **facts: Any) -> Argument:
    """Return a row that only SambaFlow's compiler takes.

    Args:
        name: Attribute of the Namespace.
        text: Its help.
        kind: Type of its value.
        **facts: The rest of an :class:`Argument`.
    """
    # A flag that nobody gave is False, as argparse has it; of a value, None says that.
    default = False if kind is bool else None
    return Argument(
        name, text, **{"default": default, "commands": COMPILING, "kind": kind, **facts}
    )
