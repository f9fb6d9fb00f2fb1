"""``samba-port``: the command line; the only room that prints or exits."""

from __future__ import annotations

import gc
import sys

from samba_onnx.cli.signals import Interrupted, interruptible
from samba_onnx.tools import Tool, find_tools

__all__ = ["main"]


def main() -> int:
    """Run ``samba-port`` with the arguments of the process.

    Commands that call native code on a model do so in a child process, so that its crash is an
    error message, and Ctrl-C works whatever it does. ``exec`` runs a program of the user's, whose
    exceptions pass.

    Returns:
        The exit status: 0 yes; 1 ran, but the answer is no; 2 bad input or usage; 128 + N after
        signal N (130 for Ctrl-C); 141 if whoever reads the output went away.
    """
    arguments = sys.argv[1:]
    tool = find_tools().get(arguments[0]) if arguments else None
    if tool is not None and tool.passes_on:
        program = _program_of(arguments[1:])
        if program:  # signals, warnings, exceptions and exit are all the program's
            return int(tool.function("execute")(program))
    interruptible()  # before anything that takes time to import
    try:
        return _answer(arguments, tool)
    except Interrupted as interrupted:
        sys.stderr.write("samba-port: interrupted\n")
        return 128 + interrupted.number


def _program_of(arguments: list[str]) -> list[str]:
    """Return the program that the arguments behind a command name, with its own command line.

    Empty where they ask for help, or name no program.
    """
    rest = arguments[1:] if arguments[:1] == ["--"] else arguments
    return rest if rest and not rest[0].startswith("-") else []


def _answer(arguments: list[str], tool: Tool | None) -> int:
    # Hardly anything that imports and plans make is garbage: to look took a tenth of a command.
    gc.set_threshold(200_000, *gc.get_threshold()[1:])
    from samba_onnx.cli.application import answer

    wants_help = not {"-h", "--help"}.isdisjoint(arguments)
    if wants_help or tool is None or not tool.isolated:
        return answer(arguments)
    from samba_onnx.cli.isolation import isolated

    return isolated(lambda: answer(arguments), f"samba-port {tool.name}")
