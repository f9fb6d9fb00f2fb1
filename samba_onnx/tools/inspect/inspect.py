"""``samba-port inspect``."""

from __future__ import annotations

from typing import Annotated

import typer

from samba_onnx.cli.display import Display, refuse_overwriting
from samba_onnx.cli.failures import EXIT_YES
from samba_onnx.cli.options import JsonOption, PefArgument, QuietOption, VerboseOption
from samba_onnx.cli.progress import Activity
from samba_onnx.compiling.model_choices import refuse_model


def inspect(
    pef: PefArgument,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check every byte against its checksum first.")
    ] = False,
    json: JsonOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> int:
    """Show a PEF's sections, schedule and transfers.

    Examples:
      samba-port inspect model.pef
      samba-port inspect model.pef --verify -q
      samba-port inspect model.pef --json - | jq .graphs[0].schedule
    """
    refuse_model(pef, "inspect")
    refuse_overwriting(pef, outputs={"--json": json})

    from samba_onnx.pef import load_pef
    from samba_onnx.report import Report
    from samba_onnx.tools.inspect.inspect_text import details

    with Activity(quiet) as activity, load_pef(pef) as opened:
        if verify:
            activity.step("check every byte")
            opened.verify(activity.count)
        report = Report.from_manifest(opened.manifest, program=json is not None)
    Display(json, quiet, verbose).show(report.headline, lambda rows: details(report, rows), report)
    return EXIT_YES
