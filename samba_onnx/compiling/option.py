"""What is said of one option of a compilation: the field of the record says it, and nothing else does."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Any, Final, TypeVar

from samba_onnx.compiling.sambaflow_arguments import Argument
from samba_onnx.errors import UsageError

__all__ = [
    "BOTH",
    "CommandFlag",
    "Front",
    "Option",
    "checked",
    "default_of",
    "option",
    "option_of",
    "text_of",
]

T = TypeVar("T")
_KEY: Final = "samba_onnx.option"


class Front(StrEnum):
    """What a compiled model is made of."""

    ONNX = "onnx"
    TORCH = "torch"


BOTH: Final = frozenset(Front)


@dataclass(frozen=True)
class CommandFlag:
    """How a command line, a variable or a file of settings states an option."""

    kind: Any
    """What the parser reads: ``str``, ``int``, ``float``, ``bool``, or a list of one of them."""
    name: str = ""
    """The parameter of a command; empty for the name of the field."""
    help: str = ""
    """What ``--help`` says; empty for what the option says of itself."""
    spelling: str = ""
    """On the command line; empty for ``--name``, with hyphens."""
    metavar: str | None = None
    """What stands for the value; None for the parser's word."""
    default: Any = None
    """What the parser returns where nobody states the option."""
    least: float | None = None
    """The least value that the parser takes, where it is another one than the option's."""
    shows_default: bool = True
    """Whether ``--help`` shows that."""

    @property
    def spelled(self) -> str:
        """The flag as it is typed."""
        return self.spelling or f"--{self.name.replace('_', '-')}"

    @property
    def is_repeatable(self) -> bool:
        """Whether it may be given several times."""
        return getattr(self.kind, "__origin__", None) is list


@dataclass(frozen=True)
class Option:
    """All that is known of an option but its name, its type and its default, which the field states itself."""

    help: str
    """One sentence or several, for people who never saw the code."""
    flags: tuple[CommandFlag, ...] = ()
    """On the command line; none for an option of Python alone. Several say the same in different ways."""
    panel: str | None = None
    """The heading that flags stand under in ``--help``; None for the first."""
    read: Callable[..., Any] | None = None
    """Makes the value of what the flags state, one argument for each flag; None takes it as it is."""
    accept: Callable[[Any], Any] | None = None
    """Makes the value of what Python's callers give; None takes it as it is."""
    choices: type[Enum] | None = None
    """The values that are legal, where there is a list of them."""
    least: float | None = None
    """The least value that is legal."""
    fronts: frozenset[Front] = BOTH
    """For which models it counts."""
    elsewhere: str = ""
    """What is said where it is stated for another model."""
    trains: bool = False
    """Whether it counts only for a program that trains."""
    writes: bool = False
    """Whether it counts only where a PEF is written."""
    before: bool = False
    """Whether it is decided before there is a program, so that whoever compiles programs cannot state it."""
    python: str | None = ""
    """What Python's documentation adds, as the form of a value; None where it is no keyword of a function."""
    settings: tuple[Argument, ...] = ()
    """How programs for SambaFlow state it, the first that says something before those that follow."""
    runs_code: bool = False
    """Whether code in the files that it names is executed: no file of settings may state it."""
    is_path: bool = False
    """Whether it names a file, which a file of settings may state from its own folder."""


def option(default: T, help: str, **facts: Any) -> T:
    """Return a field of a record of options.

    Args:
        default: What counts where nobody states the option.
        help: As :class:`Option` has it, like all other facts.
        **facts: The rest of an :class:`Option`, and ``flag``, the only flag, which needs no name.
    """
    flag = facts.pop("flag", None)
    if flag is not None:
        facts["flags"] = (flag,)
    metadata: Mapping[str, Any] = MappingProxyType({_KEY: Option(help, **facts)})
    # The declared type is that of the value, as of dataclasses.field itself.
    # dataclasses refuse a mutable default, which all records would share.
    if isinstance(default, dict):
        made: T = dataclasses.field(default_factory=type(default), metadata=metadata)
        return made
    field: T = dataclasses.field(default=default, metadata=metadata)
    return field


def default_of(field: dataclasses.Field[Any]) -> Any:
    """Return what counts where nobody states an option.

    Args:
        field: The field of a record of options.
    """
    made: Any = field.default_factory
    return field.default if made is dataclasses.MISSING else made()


def option_of(field: dataclasses.Field[Any]) -> Option:
    """Return what a field says of its option, every flag with its name and help.

    Args:
        field: A field of a record of options.
    """
    stated: Option = field.metadata[_KEY]
    # Filled in here: in the record itself, a flag does not know which field it belongs to.
    flags = tuple(
        dataclasses.replace(flag, name=flag.name or field.name, help=flag.help or stated.help)
        for flag in stated.flags
    )
    return dataclasses.replace(stated, flags=flags)


def checked(field: dataclasses.Field[Any], value: Any) -> Any:
    """Return a value of an option as its record keeps it.

    Args:
        field: The field.
        value: As a caller states it; None for the default.

    Raises:
        UsageError: It is none of the choices, or below the least one.
    """
    stated = option_of(field)
    if value is None:
        return default_of(field)
    # What reads a value also refuses it: it knows more than a list of choices does.
    if stated.accept is not None:
        return stated.accept(value)
    if stated.choices is not None:
        try:
            return stated.choices(value)
        except ValueError:
            legal = ", ".join(str(choice.value) for choice in stated.choices)
            raise UsageError(f"{field.name} is {str(value)!r}: expected one of {legal}") from None
    if stated.least is not None and value < stated.least:
        raise UsageError(f"{field.name} is {value}: expected at least {stated.least:g}")
    return value


def text_of(value: Any) -> str:
    """Return the value of an option as a PEF keeps it, and as people would write it.

    Args:
        value: A path, a number, a truth value, a choice, or several of them.
    """
    if isinstance(value, Mapping):
        return " ".join(f"{name}={text_of(each)}" for name, each in value.items())
    if isinstance(value, (list, tuple)):
        return ",".join(map(text_of, value))
    if isinstance(value, (set, frozenset)):
        # Sorted: the order of a set differs from process to process, and a PEF must not.
        return ",".join(sorted(map(text_of, value)))
    if value is None:
        # As on a command line, where it leaves a dimension as it is.
        return "?"
    # Before the general case: True and False are Python's words, not those of a command line.
    if isinstance(value, bool):
        return "yes" if value else "no"
    # A target or a host that was loaded is told by its name.
    return str(getattr(value, "name", value)) if not isinstance(value, str) else str(value)
