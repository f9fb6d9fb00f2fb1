"""``samba-port adapt``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from samba_onnx.cli.display import Display, refuse_overwriting
from samba_onnx.cli.failures import EXIT_NO, EXIT_YES
from samba_onnx.cli.options import (
    OUTPUT,
    JsonOption,
    QuietOption,
    SeedOption,
    VerboseOption,
)
from samba_onnx.errors import UsageError
from samba_onnx.safety.files import printable
from samba_onnx.tools.adapt.writing import write_adapted

if TYPE_CHECKING:
    from samba_onnx.tools.adapt.adapt_report import AdaptReport, Check, StepReport
    from samba_onnx.tools.adapt.adapting import Adapted


ProgramArgument = Annotated[
    str,
    typer.Argument(
        metavar="PROGRAM",
        help="A training program of plain PyTorch, or its folder, with --entry.",
    ),
]
EntryOption = Annotated[
    str | None,
    typer.Option(
        "--entry", metavar="FILE.py", help="The file of the folder that is executed, as train.py."
    ),
]
FromOption = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="torch|sambaflow",
        help="What the program is written for; of sambaflow, plain PyTorch is made.",
    ),
]
PatchOption = Annotated[
    str | None,
    typer.Option(
        "--patch",
        metavar="FILE",
        help="Write the differences of all files, as git apply takes them.",
        rich_help_panel=OUTPUT,
    ),
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
        metavar="FILE.py|FOLDER",
        help="Write the SambaFlow program; into a folder, with all files of its own that it imports.",
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
    entry: EntryOption = None,
    written_for: FromOption = "torch",
    output: OutputOption = None,
    patch: PatchOption = None,
    partial: PartialOption = False,
    check: CheckOption = 0,
    seed: SeedOption = 0,
    timeout: TimeoutOption = 600.0,
    json: JsonOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> int:
    """Write a plain PyTorch program for SambaFlow.

    Files of its own that it imports are adapted with it. Nothing is executed without --check. What cannot be
    adapted is listed with its line, and what to write there.

    Examples:
      samba-port adapt train.py
      samba-port adapt train.py -o train_rdu.py --json adapt.json
      samba-port adapt project --entry train.py --patch rdu.patch
      samba-port adapt train.py --check 20 -- --epochs 1
      samba-port adapt train_rdu.py --from sambaflow -o train.py
    """
    from samba_onnx.tools.adapt.adapt_text import adapt_text

    back = _is_back(written_for)
    start, folder = _start(program, entry)
    refuse_overwriting(start, outputs={"--output": output, "--patch": patch, "--json": json})
    from samba_onnx.tools.adapt.checking import CheckRequest
    from samba_onnx.tools.adapt.checking import check as compare

    adapted = _adapted(start, folder, back)
    runs = not adapted.blocking and not adapted.is_already
    compared = None
    if check and runs:
        request = CheckRequest(adapted, tuple(arguments or []), check, seed, timeout)
        compared = compare(replace(request, folder=_absolute(folder), back=back))
    agrees = compared is None or compared[0].agrees
    written = ""
    if not adapted.is_already and (partial or (agrees and runs)):
        written = write_adapted(adapted, folder, output, patch)
    report = make_report(start, adapted, written, compared, back)
    Display(json, quiet, verbose).show(
        report.headline, lambda rows: adapt_text(report, rows), report
    )
    return EXIT_YES if report.is_complete and agrees else EXIT_NO


def _is_back(written_for: str) -> bool:
    """Whether a SambaFlow program is to be written in plain PyTorch."""
    from samba_onnx.tools.adapt.library import require_libcst

    require_libcst()
    if written_for not in {"torch", "sambaflow"}:
        raise UsageError(f"--from is torch or sambaflow, and not {printable(written_for)}")
    return written_for == "sambaflow"


def _adapted(start: str, folder: str | None, back: bool) -> Adapted:
    from samba_onnx.tools.adapt.adapting import adapt_source, restore_source
    from samba_onnx.tools.adapt.program_files import read_source

    source = read_source(start, folder)
    return restore_source(source) if back else adapt_source(source)


def _absolute(folder: str | None) -> str:
    return str(Path(folder).resolve()) if folder else ""


def _start(program: str, entry: str | None) -> tuple[str, str | None]:
    """Return the file that is executed, and the folder that was given, if one was.

    Raises:
        UsageError: One of both is missing.
    """
    if Path(program).is_dir():
        if entry is None:
            raise UsageError(
                f"{printable(program)} is a folder: say by --entry which file is executed"
            )
        return str(Path(program) / entry), program
    if entry is not None:
        raise UsageError(f"--entry is for a folder, and {printable(program)} is none")
    return program, None


def make_report(
    program: str,
    adapted: Adapted,
    output: str,
    compared: tuple[Check, StepReport] | None,
    back: bool = False,
) -> AdaptReport:
    """Return what became of a program as a document.

    Args:
        program: The program as it was given.
        adapted: What became of it.
        output: The file that was written; empty if none was.
        compared: The comparison with the original, if one was made.
        back: Whether a SambaFlow program was written in plain PyTorch.
    """
    from samba_onnx.tools.adapt.adapt_report import AdaptReport, FileReport
    from samba_onnx.tools.adapt.adapt_text import headline
    from samba_onnx.tools.adapt.linting import lint_text_of

    check, compiled = compared if compared is not None else (None, None)
    complete = not adapted.blocking
    return AdaptReport(
        headline=headline(program, adapted, output, check, back),
        program=program,
        is_sambaflow=adapted.is_already != back,
        is_complete=complete,
        output=output,
        changes=adapted.changes,
        open_points=adapted.points,
        files=tuple(FileReport(file.path, file.is_changed) for file in adapted.files),
        diff=adapted.diff,
        lint=lint_text_of(adapted.changed) if complete and not back else (),
        check=check,
        compiled=compiled,
    )
