"""What became of a program, for people: the difference, what is open, and how the comparison went."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from samba_onnx.report.layout import titled
from samba_onnx.report.units import count_text, printable
from samba_onnx.tools.adapt.adapt_report import AdaptReport, Check, LintRemark
from samba_onnx.tools.adapt.adapting import Adapted
from samba_onnx.tools.adapt.open_points import OpenPoint

_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def headline(
    program: str, adapted: Adapted, output: str, check: Check | None, back: bool = False
) -> str:
    """Return the answer in one sentence.

    Args:
        program: The program as it was given.
        adapted: What became of it.
        output: The file that was written; empty if none was.
        check: The comparison with the original, if one was made.
        back: Whether a SambaFlow program was written in plain PyTorch.
    """
    name = printable(program)
    if adapted.is_already:
        kind = "no SambaFlow program" if back else "a SambaFlow program already"
        return f"{name} is {kind}, and is left as it is"
    verb = "written in plain PyTorch" if back else "adapted"
    if adapted.blocking:
        count = count_text(len(adapted.blocking), "place")
        done = f"; {printable(output)} has what could be adapted" if output else ""
        return f"{name} cannot be {'written in plain PyTorch' if back else 'adapted'} without a hand's touch: {count} to look at{done}"
    lines = {(change.path, change.line) for change in adapted.changes}
    text = f"{name} {verb}: {count_text(len(lines), 'line')} changed"
    if len(adapted.files) > 1:
        text += f" in {len(adapted.changed)} of {count_text(len(adapted.files), 'file')}"
    notes = [point for point in adapted.points if not point.blocks]
    text += f", {count_text(len(notes), 'note')}" if notes else ""
    if check is not None:
        text += f"; {_verdict(check)}"
    return f"{text}; wrote {printable(output)}" if output else text


def _verdict(check: Check) -> str:
    steps = count_text(check.steps, "step" if check.losses else "run")
    if not check.agrees:
        return f"it computes something else: {check.first_difference}"
    return f"the same over {steps}, losses within {check.loss_error:.1g}"


def adapt_text(report: AdaptReport, rows: int | None = 12) -> RenderableType:
    """Return what ``adapt`` shows.

    Args:
        report: What became of a program.
        rows: Most rows of each list; None for all.

    Returns:
        Something that a rich console prints.
    """
    parts: list[RenderableType] = [Text(report.headline, style="bold")]
    if report.diff and not report.output and report.is_complete and report.check is None:
        parts += [Text(""), _diff(report.diff)]
    blocking = [point for point in report.open_points if point.blocks]
    notes = [point for point in report.open_points if not point.blocks]
    for title, points in (("To be done by hand:", blocking), ("To know:", notes)):
        if points:
            shown = points if rows is None else points[:rows]
            parts += [Text(""), titled(title, *(_point(one) for one in shown))]
    if report.check is not None:
        parts += [Text(""), _check(report.check)]
    if report.compiled is not None:
        lines = [Text(report.compiled.headline), *map(Text, report.compiled.reasons[:rows])]
        parts += [Text(""), titled("On the RDU:", *lines)]
    if report.lint:
        found = report.lint if rows is None else report.lint[:rows]
        lines = [Text(_remark(report, one)) for one in found]
        parts += [Text(""), titled("The linter on the adapted program:", *lines)]
    return Group(*parts)


def _remark(report: AdaptReport, one: LintRemark) -> str:
    # A program of one file has no need of its name in every line.
    place = f"{printable(one.path)}:" if len(report.files) > 1 else ""
    return f"{place}{one.line}: {one.severity}: {one.message} [{one.rule}]"


def _diff(diff: str) -> RenderableType:
    text = Text()
    for line in diff.splitlines():
        text.append(line + "\n", style=_DIFF_STYLES.get(line[:1], ""))
    text.rstrip()
    return text


def _point(point: OpenPoint) -> RenderableType:
    place = f"{printable(point.path)}:{point.line}: {printable(point.code)}"
    return titled(place, Text(f"why: {point.why}"), Text(f"instead: {point.instead}"))


def _check(check: Check) -> RenderableType:
    worst = check.tensors[0] if check.tensors else None
    lines = [
        f"losses: {count_text(len(check.losses), 'step')}, off by at most {check.loss_error:.2g} "
        f"({check.tolerance.losses:g} allowed)"
    ]
    what = "weights and buffers" if check.losses else "results of all runs"
    lines = lines if check.losses else []
    if worst is not None:
        lines.append(
            f"{what}: {count_text(len(check.tensors), 'tensor')}, off by at most "
            f"{worst.error:.2g} ({worst.name}; {check.tolerance.weights:g} allowed)"
        )
    ignored = sum(tensor.ignored for tensor in check.tensors)
    if ignored:
        lines.append(f"left out: {ignored} numbers whose gradients are nothing but rounding")
    if check.dropouts:
        lines.append("dropout was off in both: its masks are others by design")
    if check.without_last_batches:
        lines.append("the original left out smaller last batches, too")
    printed = len(check.printed_differences)
    lines.append(
        f"printed: {count_text(check.printed_lines, 'line')}, {printed} with other numbers"
    )
    lines += check.printed_differences
    lines.append(f"tolerance: {check.tolerance.why}")
    return titled("Original and adapted program:", *map(Text, lines))
