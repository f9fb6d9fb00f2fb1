"""What an RDU makes of an adapted program's step, read from the PEF that was compiled of it."""

from __future__ import annotations

from pathlib import Path

from samba_onnx.tools.adapt.adapt_report import StepReport


def compiled_step(pef: Path) -> StepReport:
    """Return what ``samba-port inspect`` would say of a PEF, in short.

    Args:
        pef: The PEF of a training step.
    """
    from samba_onnx.pef import load_pef
    from samba_onnx.report import Report

    with load_pef(pef) as opened:
        report = Report.from_manifest(opened.manifest)
    reasons = {reason: None for fallback in report.fallbacks for reason in fallback.reasons}
    return StepReport(
        headline=report.headline,
        rdu_nodes=report.coverage.rdu_nodes,
        cpu_nodes=report.coverage.cpu_nodes,
        reasons=tuple(reasons),
    )
