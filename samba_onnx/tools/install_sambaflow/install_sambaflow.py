"""``samba-port install-sambaflow``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from samba_onnx.cli.display import Display, refuse_overwriting
from samba_onnx.cli.failures import EXIT_NO, EXIT_YES
from samba_onnx.cli.options import JsonOption, QuietOption, VerboseOption

if TYPE_CHECKING:
    from samba_onnx.sambaflow.environments import EnvironmentChange


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

    from samba_onnx.sambaflow.environments import add_to_environment, remove_from_environment
    from samba_onnx.tools.install_sambaflow.install_sambaflow_report import EnvironmentReport

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
