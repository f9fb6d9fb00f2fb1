"""``samba-port``: the command line; the only room that prints or exits."""

from __future__ import annotations

import sys

__all__ = ["main"]

_ISOLATED = frozenset({"analyze", "convert", "run", "verify"})
"""Commands that hand what others made to native code."""


def main() -> int:
    """Run ``samba-port`` with the arguments of the process.

    Commands that call native code on a model do so in a child process, so that its crash is an
    error message, and Ctrl-C works whatever it does.

    Returns:
        The exit status: 0 yes; 1 ran, but the answer is no; 2 bad input or usage; 130 and 143
        after SIGINT and SIGTERM; 141 if whoever reads the output went away.
    """
    from samba_onnx.cli.application import answer

    arguments = sys.argv[1:]
    wants_help = not {"-h", "--help"}.isdisjoint(arguments)
    if not arguments or wants_help or arguments[0] not in _ISOLATED:
        return answer(arguments)
    from samba_onnx.cli.isolation import isolated

    return isolated(lambda: answer(arguments), f"samba-port {arguments[0]}")
