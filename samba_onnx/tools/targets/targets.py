"""``samba-port targets``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from samba_onnx.cli.display import Display
from samba_onnx.cli.failures import EXIT_YES
from samba_onnx.cli.options import JsonOption, QuietOption, VerboseOption

if TYPE_CHECKING:
    from samba_onnx.passes.targets import Target
    from samba_onnx.tools.targets.targets_report import (
        TargetReport,
    )


def targets(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TARGET]...", help="Only these, or TOML files of your own."),
    ] = None,
    json: JsonOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> int:
    """List targets, hardware figures and what is assumed.

    Examples:
      samba-port targets
      samba-port targets sn40l --json -
      samba-port targets my_target.toml
    """
    from samba_onnx.passes.targets import available_targets, load_target
    from samba_onnx.tools.targets.targets_report import TargetListReport
    from samba_onnx.tools.targets.targets_text import targets_text

    reports = tuple(_target(load_target(name)) for name in names or available_targets())
    headline = "targets: " + ", ".join(report.name for report in reports)
    report = TargetListReport(headline, reports)
    Display(json, quiet, verbose).show(headline, lambda rows: targets_text(report), report)
    return EXIT_YES


def _target(target: Target) -> TargetReport:
    from samba_onnx.tools.targets.targets_report import TargetReport

    summary = target.summary
    return TargetReport(
        name=summary.name,
        description=target.description,
        operators=len(target.rows),
        tiers=summary.tiers,
        peak_flops_per_second=summary.peak_flops,
        link_bytes_per_second=summary.link_bytes_per_second,
        link_latency_seconds=summary.link_latency_seconds,
        assumptions=summary.assumptions,
    )
