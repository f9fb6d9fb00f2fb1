"""``samba-port``: the command line; the only room that prints or exits."""

from __future__ import annotations

import sys

from samba_onnx.cli.signals import Interrupted, interruptible

__all__ = ["main"]

_ISOLATED = frozenset(
    {"analyze", "compare", "convert", "diff", "reduce", "run", "train-export", "verify"}
)
"""Commands that hand what others made to native code."""


def main() -> int:
    """Run ``samba-port`` with the arguments of the process.

    Commands that call native code on a model do so in a child process, so that its crash is an
    error message, and Ctrl-C works whatever it does. ``exec`` runs a program of the user's, whose
    exceptions pass.

    Returns:
        The exit status: 0 yes; 1 ran, but the answer is no; 2 bad input or usage; 128 + N after
        signal N (130 for Ctrl-C); 141 if whoever reads the output went away.
    """
    if sys.argv[1:2] == ["exec"]:
        from samba_onnx.cli.programs import execute, program_of

        program = program_of(sys.argv[1:])
        if program is not None:  # signals, warnings, exceptions and exit are all the program's
            return execute(program)
    interruptible()  # before anything that takes time to import
    try:
        return _main(sys.argv[1:])
    except Interrupted as interrupted:
        sys.stderr.write("samba-port: interrupted\n")
        return 128 + interrupted.number


def _main(arguments: list[str]) -> int:
    from samba_onnx.cli.application import answer

    wants_help = not {"-h", "--help"}.isdisjoint(arguments)
    if not arguments or wants_help or arguments[0] not in _ISOLATED:
        return answer(arguments)
    from samba_onnx.cli.isolation import isolated

    return isolated(lambda: answer(arguments), f"samba-port {arguments[0]}")
