"""What ``samba-port plan`` says: a modelled training step on several replicas."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from samba_onnx.report.layout import table, titled
from samba_onnx.report.report_records import SCHEMA_VERSION, record
from samba_onnx.report.units import byte_text, count_text, second_text
from samba_onnx.tools.plan.step_model import ScaledStep


@record
class ScalingAssumption:
    """A figure that the model rests on."""

    name: str
    """What it is."""
    value: str
    """How much, with its unit."""
    note: str
    """Where it comes from."""


@record
class ScalingReport:
    """A modelled training step on several replicas."""

    headline: str
    """The answer in one line."""
    pef: str
    """File name without folder."""
    graph: str
    """The graph that trains."""
    target: str
    """The device, one for each replica."""
    reduce_on_rdu: bool
    """Whether devices combine gradients among themselves; otherwise their hosts do."""
    gradient_bytes: int
    """Bytes of gradients that each replica combines with the others."""
    buckets: int
    """In how many parts they travel."""
    backward_sections: int
    """Sections of the backward, between which reductions can begin."""
    steps: tuple[ScaledStep, ...]
    """By number of replicas, then by mode."""
    assumptions: tuple[ScalingAssumption, ...]
    """What the times rest on."""
    schema_version: int = SCHEMA_VERSION
    """Version of this document's form."""


def scaling_text(report: ScalingReport, rows: int | None = 12) -> RenderableType:
    """Return what ``plan`` shows.

    Args:
        report: The plan.
        rows: Longest table; None for all rows. Modes of one number of replicas stay together.

    Returns:
        Something that a rich console prints.
    """
    cells = [
        (
            f"{step.replicas:,}",
            step.mode,
            # Modes differ by what they hide, which is little of a step.
            second_text(step.seconds, closely=True),
            second_text(step.reduction_seconds),
            second_text(step.waiting_seconds),
            f"{step.efficiency:.1%}",
            f"{step.relative_throughput:,.2f}x",
        )
        for step in report.steps
    ]
    columns = (">replicas", "mode", ">step", ">reduction", ">waits", ">efficiency", ">throughput")
    backward = count_text(report.backward_sections, "section")
    what = (
        f"{byte_text(report.gradient_bytes)} of gradients in {count_text(report.buckets, 'bucket')}, "
        f"written by {backward} of the backward"
    )
    figures = [
        (assumption.name, assumption.value, assumption.note) for assumption in report.assumptions
    ]
    return Group(
        Text(report.headline, style="bold"),
        Text(""),
        # Without a limit: a number of replicas without one of its modes could not be compared.
        titled(f"A modelled step ({what})", table(columns, cells, limit=None)),
        Text(""),
        titled("Rests on", table(("what", "value", "origin"), figures, limit=rows)),
    )
