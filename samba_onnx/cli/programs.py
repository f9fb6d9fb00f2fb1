"""``samba-port exec`` and ``install-sambaflow``: programs that were written for SambaFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from samba_onnx.cli.display import Display, refuse_overwriting
from samba_onnx.cli.failures import EXIT_NO, EXIT_USAGE, EXIT_YES, complain
from samba_onnx.cli.options import JsonOption, QuietOption, VerboseOption
from samba_onnx.errors import UsageError
from samba_onnx.sambaflow.launching import require_program, run_program

if TYPE_CHECKING:
    from samba_onnx.sambaflow.environments import EnvironmentChange


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


def install_sambaflow(
    remove: Annotated[
        bool, typer.Option("--remove", help="Take it away again.", show_default=False)
    ] = False,
    json: JsonOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> int:
    """Let plain python find sambaflow.

    Programs then run as they are: python train.py, srun python train.py, mpirun -np 2 python train.py.
    One file in site-packages says where samba-onnx's sambaflow lies. A SambaFlow that is really
    installed, now or later, is found before it. Exit status 1 where there is one already.

    Examples:
      samba-port install-sambaflow
      samba-port install-sambaflow --json -
      samba-port install-sambaflow --remove
    """
    refuse_overwriting(outputs={"--json": json})

    from samba_onnx.report.environment import EnvironmentReport
    from samba_onnx.sambaflow.environments import add_to_environment, remove_from_environment

    change = remove_from_environment() if remove else add_to_environment()
    report = EnvironmentReport(
        headline=_what_sambaflow_is(change, remove),
        path=str(change.path),
        changed=change.changed,
        sambaflow="SambaFlow" if change.real else "none" if remove else "samba-onnx",
        real=change.real,
    )
    Display(json, quiet, verbose).show(report.headline, lambda rows: report.headline, report)
    return EXIT_NO if change.real and not remove else EXIT_YES


def _what_sambaflow_is(change: EnvironmentChange, remove: bool) -> str:
    """Return what ``import sambaflow`` finds from now on, in one line."""
    if change.real and not remove:
        return f"SambaFlow itself is installed, {change.real}: nothing was written"
    if remove:
        done = f"removed {change.path}" if change.changed else f"there is no {change.path}"
        return f"{done}: plain python does not find samba-onnx as sambaflow"
    done = "wrote" if change.changed else "there already is"
    return f"plain python finds samba-onnx as sambaflow: {done} {change.path}"


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
