"""``samba-port exec``: a program that was written for SambaFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from samba_onnx.cli.failures import EXIT_USAGE, EXIT_YES, complain
from samba_onnx.errors import UsageError
from samba_onnx.sambaflow.launching import require_program, run_program


def exec(  # the name that users type; nothing here needs Python's own
    program: Annotated[
        str, typer.Argument(metavar="PROGRAM", help="A Python program that imports sambaflow.")
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ARGUMENTS]...", help="The program's own command line."),
    ] = None,
) -> int:
    """Run a program written for SambaFlow, unchanged.

    All that follows PROGRAM is the program's, options too. So are what it prints, its exit status
    and its tracebacks.

    Examples:
      samba-port exec logreg.py compile --pef-name logreg
      samba-port exec logreg.py run --pef out/logreg/logreg.pef --num-epochs 2
      samba-port exec logreg.py --help
    """
    return execute([program, *(arguments or ())])


def execute(command: Sequence[str]) -> int:
    """Run a program in this process; whatever it raises passes.

    Args:
        command: The program and its own command line.

    Returns:
        The exit status 0, or 2 if there is no such program.
    """
    try:
        require_program(command[0])
    except UsageError as error:
        complain("samba-port exec", f"error: {error}")
        return EXIT_USAGE
    run_program(command[0], command[1:])
    return EXIT_YES
