"""Parsers of SambaFlow's command line, with the arguments of a program among them.

The program's own functions come first, on an empty parser, and SambaFlow's arguments after them,
as far as the program left names and flags free. A program so keeps what it defines itself, with its
own types and defaults, and the flags that it did not think of still reach it.
"""

from __future__ import annotations

import dataclasses
import sys
from argparse import SUPPRESS, Action, ArgumentParser, Namespace, _ArgumentGroup
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from samba_onnx.compiling.sambaflow_arguments import Argument, Command
from samba_onnx.sessions.arguments import AFTER_COMPILING, ARGUMENTS, arguments_of, tell_idle

ParserFunction = Callable[[ArgumentParser], Any]
"""Adds arguments of a program to the parser of a sub-command."""

_HELP: Final = {
    Command.COMPILE: "compile the model into a PEF",
    Command.RUN: "run a PEF",
    Command.TEST: "compare a PEF with the model on the CPU",
    Command.MEASURE_PERFORMANCE: "measure throughput and latency of a PEF",
    Command.MEASURE_SECTIONS: "measure every section of a PEF",
}
_EXPERIMENTAL: Final = frozenset({Command.MEASURE_SECTIONS})
"""Sub-commands that the help shows with ``--debug`` only."""


def program_parser(
    functions: Mapping[Command, Sequence[ParserFunction]], *, experimental: bool
) -> ArgumentParser:
    """Return the parser of a program's whole command line.

    Args:
        functions: What the program adds to each sub-command.
        experimental: Whether the help shows experimental arguments.
    """
    shown = [one for one in Command if experimental or one not in _EXPERIMENTAL]
    parser = ArgumentParser()
    commands = parser.add_subparsers(
        dest="command",
        required=True,
        metavar=f"{{{','.join(shown)}}}",
        help="different modes of operation",
    )
    for command in Command:
        text: dict[str, Any] = {"help": _HELP[command]} if command in shown else {}
        # Programs define arguments twice, in the functions for all commands and for one.
        own = commands.add_parser(
            command.value, conflict_handler="resolve", description=_HELP[command], **text
        )
        for function in functions.get(command, ()):
            function(own)
        add_arguments(own, arguments_of(command), experimental=experimental)
        if command is not Command.COMPILE:
            _add_those_of_the_compiler(own, command)
    return parser


def _add_those_of_the_compiler(parser: ArgumentParser, command: Command) -> None:
    """Let a command that loads a PEF be given what the PEF was compiled with.

    Published command lines repeat the compiler's flags in all of their lines, as ``run --mac-v1
    --num-tiles 4``. The help does not show them: they change nothing any more.
    """
    others = (argument for argument in ARGUMENTS if command not in argument.commands)
    add_arguments(parser, map(_after_compiling, others), experimental=False)


def _after_compiling(argument: Argument) -> Argument:
    return dataclasses.replace(argument, experimental=True, idle=argument.idle or AFTER_COMPILING)


def add_arguments(
    parser: ArgumentParser, arguments: Iterable[Argument], *, experimental: bool
) -> None:
    """Add SambaFlow's arguments to a parser that has those of a program.

    Args:
        parser: The parser of one sub-command.
        arguments: Rows of the table.
        experimental: Whether the help shows experimental arguments.
    """
    # argparse says what a parser has in no other way.
    taken, flags = (
        {action.dest: action for action in parser._actions},
        parser._option_string_actions,
    )
    group = parser.add_argument_group("SambaFlow")
    for argument in arguments:
        free = [flag for flag in argument.options if flag not in flags]
        own = taken.get(argument.name)
        # Case 1: the program has it by this name; flags that it left free are its own, too.
        if own is not None:
            _give(parser, own, free)
        # Case 2: the program has all of its flags, for something else.
        elif not free:
            continue
        # Case 3: the program has no such argument.
        else:
            _add(parser, group, argument, free, experimental)


def _give(parser: ArgumentParser, action: Action, flags: Sequence[str]) -> None:
    """Let an optional argument be written in other ways, too."""
    if action.option_strings:
        action.option_strings = [*action.option_strings, *flags]
        parser._option_string_actions.update(dict.fromkeys(flags, action))


def _add(
    parser: ArgumentParser,
    group: _ArgumentGroup,
    argument: Argument,
    flags: Sequence[str],
    experimental: bool,
) -> None:
    # A program may have called set_defaults for an argument that it does not define.
    preset = parser.get_default(argument.name)
    options: dict[str, Any] = {
        "dest": argument.name,
        "default": argument.default if preset is None else preset,
        "help": argument.help if experimental or not argument.experimental else SUPPRESS,
    }
    if argument.kind is bool:
        options |= {"action": _IdleFlag if argument.idle else "store_true"}
    elif argument.kind is Any:
        # With a value or without one: SambaFlow's manuals do not say which.
        options |= {"nargs": "?", "const": True, "action": _Idle if argument.idle else "store"}
    else:
        options["type"] = str.lower if argument.choices and argument.kind is str else argument.kind
        options["choices"] = argument.choices or None
        options["nargs"] = "+" if argument.several else None
        options["action"] = _Idle if argument.idle else "store"
    group.add_argument(*flags, **options)


class _Idle(Action):
    """Keeps the value of an argument that has no effect, and says so when it is given."""

    def __call__(
        self,
        parser: ArgumentParser,
        namespace: Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, values)
        tell_idle(self.dest)


class _IdleFlag(_Idle):
    """The same for a flag without a value."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, const=True, **options)

    def __call__(
        self,
        parser: ArgumentParser,
        namespace: Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        super().__call__(parser, namespace, True, option_string)


def complete(namespace: Namespace) -> None:
    """Add the arguments that a sub-command does not take, by their defaults.

    Programs read them whatever they were started for.

    Args:
        namespace: What was parsed.
    """
    for argument in ARGUMENTS:
        if not hasattr(namespace, argument.name):
            setattr(namespace, argument.name, argument.default)
    namespace.pef_name = namespace.pef_name or script_name()


def script_name() -> str:
    """Return the name of the program that runs, by which its PEF is called.

    Returns:
        File name without suffix, of ``package/__main__.py`` the folder's; empty for Python's own
        prompt and for ``python -c``.
    """
    script = Path(sys.argv[0] if sys.argv else "")
    name = script.parent.name if script.stem == "__main__" else script.stem
    return "" if name.startswith("-") else name


def without_program(argv: Sequence[str]) -> list[str]:
    """Return a command line without the program's own name, which some programs hand over.

    Args:
        argv: With or without it.
    """
    commands = {command.value for command in Command}
    named = bool(argv) and bool(sys.argv) and argv[0] == sys.argv[0] and argv[0] not in commands
    return list(argv[1:] if named else argv)
