"""``samba-port analyze --what-if``: the plan as it would be on a target that does not exist."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from samba_onnx.cli.display import Display
from samba_onnx.cli.failures import EXIT_YES

if TYPE_CHECKING:
    from samba_onnx.passes.targets import Target
    from samba_onnx.report import Report

WhatIfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--what-if",
        metavar="SUPPOSITION",
        help="Plan again as if this held, and show both: support=TopK,Pad for operators that the target "
        "would run, target=sn30 for another one, link.latency=2us or another hardware figure. May be "
        "repeated.",
        rich_help_panel="Target",
    ),
]


def supposed_target(target: str, suppositions: Sequence[str] | None) -> Target | None:
    """Return the target as suppositions have it; None without any.

    Raises:
        TargetError: There is no such target.
        UsageError: A supposition is malformed.
    """
    if not suppositions:
        return None
    from samba_onnx.passes.targets import load_target
    from samba_onnx.passes.targets.hypotheses import hypothetical

    return hypothetical(load_target(target), suppositions)


def show_supposed(reports: Sequence[Report], suppositions: Sequence[str], display: Display) -> int:
    """Show what differs between a plan for a target and one for the target as suppositions have it.

    Args:
        reports: On the plan as it is, and on the other one.
        suppositions: In what the other target differs.
        display: Where the answer goes.

    Returns:
        The exit status, 0: no supposition is a change for the worse.
    """
    from samba_onnx.report.comparing import difference
    from samba_onnx.report.difference_text import difference_text

    before, after = reports
    answer = difference(before, after, ("as it is", f"with {' and '.join(suppositions)}"))

    def page() -> str:
        # Imported only for a page, which needs an extra.
        from samba_onnx.report.page.answer import difference_page

        return difference_page(answer, before, after, "analyze --what-if")

    display.show(answer.headline, lambda rows: difference_text(answer, rows), answer, page)
    return EXIT_YES
