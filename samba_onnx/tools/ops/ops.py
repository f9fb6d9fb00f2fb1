"""``samba-port ops``."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Annotated

import typer

from samba_onnx.cli.display import Display, write_text
from samba_onnx.cli.failures import EXIT_YES
from samba_onnx.cli.options import JsonOption, QuietOption, TargetOption, VerboseOption
from samba_onnx.errors import UsageError
from samba_onnx.facts.defaults import DEFAULT_TARGET

if TYPE_CHECKING:
    from samba_onnx.passes.targets import OperandLimits, OperatorRow, Target
    from samba_onnx.tools.ops.ops_report import (
        OperandReport,
        OperatorReport,
        OperatorTableReport,
    )


def ops(
    operators: Annotated[
        list[str] | None,
        typer.Argument(metavar="[OPERATOR]...", help="Only these; all if left out."),
    ] = None,
    target: TargetOption = DEFAULT_TARGET,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the page of the documentation.")
    ] = False,
    json: JsonOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> int:
    """List a target's operators, limits and evidence.

    Examples:
      samba-port ops
      samba-port ops Conv Gemm --target sn10
      samba-port ops --markdown > docs/operators.md
    """
    from samba_onnx.passes.targets import load_target
    from samba_onnx.tools.ops.ops_text import operators_text

    profile = load_target(target)
    if markdown:
        if operators or json is not None:
            raise UsageError("--markdown prints the whole table and nothing else")
        from samba_onnx.passes.targets.markdown import operator_table_markdown

        write_text(operator_table_markdown(profile))
        return EXIT_YES
    report = _operator_table(profile, operators or [])
    Display(json, quiet, verbose).show(report.headline, lambda rows: operators_text(report), report)
    return EXIT_YES


def _operator_table(target: Target, wanted: list[str]) -> OperatorTableReport:
    """Return the rows of a target, or of some operators."""
    from samba_onnx.tools.ops.ops_report import OperatorTableReport, UnsupportedReport

    names = {row.name for row in target.rows} | {row.name for row in target.unsupported}
    for name in wanted:
        if name not in names:
            close = difflib.get_close_matches(name, sorted(names), 3)
            hint = f"; did you mean {', '.join(close)}?" if close else ""
            raise UsageError(f"{target.name} has no row for operator {name}{hint}")
    rows = [row for row in target.rows if not wanted or row.name in wanted]
    refused = [row for row in target.unsupported if not wanted or row.name in wanted]
    return OperatorTableReport(
        headline=(
            f"{target.name}: {len(rows)} operators run on the RDU, {len(refused)} are known not to"
        ),
        target=target.name,
        operators=tuple(_operator(row) for row in rows),
        unsupported=tuple(UnsupportedReport(row.name, row.code, row.note) for row in refused),
    )


def _operator(row: OperatorRow) -> OperatorReport:
    from samba_onnx.facts.operators import operations
    from samba_onnx.passes.targets.describe import describe_rule
    from samba_onnx.passes.targets.named_limits import LIMITS
    from samba_onnx.tools.ops.ops_report import OperatorReport

    # Operands that are as the row says in general need no words of their own.
    own = [
        operand
        for operand in (*row.inputs, *row.outputs)
        if operand.types != row.types or operand.ranks or operand.static or operand.absent
    ]
    return OperatorReport(
        operator=row.name,
        since=row.since,
        until=row.until,
        evidence=row.evidence,
        types=_types(row),
        operations=operations(row.name),
        operands=tuple(_operand(operand) for operand in own),
        attributes={name: describe_rule(rule) for name, rule in row.attributes.items()},
        limits=tuple(LIMITS[name].description for name in row.limits),
        source=row.source,
    )


def _operand(operand: OperandLimits) -> OperandReport:
    from samba_onnx.tools.ops.ops_report import OperandReport

    return OperandReport(
        operand.name, _types(operand), operand.ranks, operand.static, operand.absent
    )


def _types(owner: OperatorRow | OperandLimits) -> dict[str, str]:
    """Return the evidence of each data type."""
    from samba_onnx.passes.targets.rows import DTYPE_NAMES

    return {DTYPE_NAMES[dtype]: status.name.lower() for dtype, status in owner.types.items()}
