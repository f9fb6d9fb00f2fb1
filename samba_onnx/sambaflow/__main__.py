"""``python -m samba_onnx.sambaflow program.py ARGUMENTS``: run a program written for SambaFlow."""

from __future__ import annotations

import sys

from samba_onnx.errors import UsageError
from samba_onnx.sambaflow.launching import require_program, run_program

USAGE = "python -m samba_onnx.sambaflow"


def main() -> int:
    """Run the program that the command line of this process names.

    Returns:
        2 if it names none, else 0. What the program exits with passes as ``SystemExit``.
    """
    arguments = sys.argv[1:]
    if arguments[:1] in ([], ["-h"], ["--help"]):
        # Help that was asked for is the answer; without a program it is an error.
        stream = sys.stdout if arguments else sys.stderr
        stream.write(f"usage: {USAGE} PROGRAM [ARGUMENTS]...\n")
        return 0 if arguments else 2
    try:
        require_program(arguments[0])
    except UsageError as error:
        sys.stderr.write(f"{USAGE}: error: {error}\n")
        return 2
    run_program(arguments[0], arguments[1:])
    return 0


if __name__ == "__main__":
    sys.exit(main())
