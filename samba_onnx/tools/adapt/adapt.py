"""``samba-port adapt``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from samba_onnx.cli.display import Display, refuse_overwriting, write_file
from samba_onnx.cli.failures import EXIT_NO, EXIT_YES
from samba_onnx.cli.options import (
    OUTPUT,
    JsonOption,
    QuietOption,
    SeedOption,
    VerboseOption,
)

if TYPE_CHECKING:
    from samba_onnx.tools.adapt.adapt_report import AdaptReport, Check, StepReport
    from samba_onnx.tools.adapt.adapting import Adapted


ProgramArgument = Annotated[
    str, typer.Argument(metavar="PROGRAM", help="A training program of plain PyTorch.")
]
ArgumentsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[-- ARGUMENTS]...", help="The program's own command line, for --check."
    ),
]
OutputOption = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE.py",
        help="Write the SambaFlow program.",
        rich_help_panel=OUTPUT,
    ),
]
PartialOption = Annotated[
    bool,
    typer.Option("--partial", help="Write it, too, if it cannot run before it is completed."),
]
CheckOption = Annotated[
    int,
    typer.Option(
        "--check",
        metavar="N",
        min=0,
        help="Run both programs for N steps, and compare losses and weights; this executes the program.",
    ),
]
TimeoutOption = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", min=1, help="For each of the two programs."),
]


def adapt(
    program: ProgramArgument,
    arguments: ArgumentsArgument = None,
    output: OutputOption = None,
    partial: PartialOption = False,
    check: CheckOption = 0,
    seed: SeedOption = 0,
    timeout: TimeoutOption = 600.0,
    json: JsonOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> int:
    """Write a plain PyTorch program for SambaFlow.

    Nothing is executed without --check. What cannot be adapted is listed with its line, and what to write there.

    Examples:
      samba-port adapt train.py
      samba-port adapt train.py -o train_rdu.py --json adapt.json
      samba-port adapt train.py --check 20 -- --epochs 1
    """
    from samba_onnx.tools.adapt.adapt_text import adapt_text
    from samba_onnx.tools.adapt.library import require_libcst

    require_libcst()
    refuse_overwriting(program, outputs={"--output": output, "--json": json})
    from samba_onnx.tools.adapt.adapting import adapt_source
    from samba_onnx.tools.adapt.program_files import read_source

    adapted = adapt_source(read_source(program))
    runs = not adapted.blocking and not adapted.is_already
    compared = None
    if check and runs:
        compared = _compared(adapted, arguments or [], check, seed, timeout)
    agrees = compared is None or compared[0].agrees
    written = ""
    if output is not None and not adapted.is_already and (partial or (agrees and runs)):
        write_file(output, adapted.text.encode())
        written = output
    report = make_report(program, adapted, written, compared)
    Display(json, quiet, verbose).show(
        report.headline, lambda rows: adapt_text(report, rows), report
    )
    return EXIT_YES if report.is_complete and agrees else EXIT_NO


def _compared(
    adapted: Adapted, arguments: list[str], steps: int, seed: int, seconds: float
) -> tuple[Check, StepReport]:
    """Run original and adapted program, and return how they differ."""
    from samba_onnx.tools.adapt.checking import CheckRequest, check

    request = CheckRequest(
        program=adapted.path,
        adapted=adapted,
        arguments=tuple(arguments),
        steps=steps,
        seed=seed,
        seconds=seconds,
    )
    return check(request)


def make_report(
    program: str, adapted: Adapted, output: str, compared: tuple[Check, StepReport] | None
) -> AdaptReport:
    """Return what became of a program as a document.

    Args:
        program: The program as it was given.
        adapted: What became of it.
        output: The file that was written; empty if none was.
        compared: The comparison with the original, if one was made.
    """
    from samba_onnx.tools.adapt.adapt_report import AdaptReport
    from samba_onnx.tools.adapt.adapt_text import headline
    from samba_onnx.tools.adapt.linting import lint_text_of

    check, compiled = compared if compared is not None else (None, None)
    complete = not adapted.blocking
    return AdaptReport(
        headline=headline(program, adapted, output, check),
        program=program,
        is_sambaflow=adapted.is_already,
        is_complete=complete,
        output=output,
        changes=adapted.changes,
        open_points=adapted.points,
        diff=adapted.diff,
        lint=lint_text_of(adapted.text, program) if complete else (),
        check=check,
        compiled=compiled,
    )
