"""``samba-port convert`` and ``samba-port analyze``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from samba_onnx.cli.display import Display, refuse_overwriting
from samba_onnx.cli.failures import EXIT_NO, EXIT_YES, complain
from samba_onnx.cli.options import (
    LIMITS,
    DimOption,
    InputShapeOption,
    JsonOption,
    LevelOption,
    ModelArgument,
    QuietOption,
    SeedOption,
    TargetOption,
    VerboseOption,
    parse_bytes,
    parse_dims,
    parse_input_shapes,
)
from samba_onnx.cli.progress import Activity

if TYPE_CHECKING:
    from rich.console import RenderableType

    from samba_onnx.report import Report

FailOption = Annotated[
    bool,
    typer.Option("--fail-on-fallback", help="No node may run on the CPU.", rich_help_panel=LIMITS),
]
FallbacksOption = Annotated[
    int | None,
    typer.Option(
        "--max-fallbacks",
        metavar="N",
        min=0,
        help="At most N fallbacks: groups of CPU nodes in the schedule.",
        rich_help_panel=LIMITS,
    ),
]
TransferOption = Annotated[
    str | None,
    typer.Option(
        "--max-transfer-bytes",
        metavar="N",
        help="At most N bytes between host and RDU in every run; 1.5MB is understood.",
        rich_help_panel=LIMITS,
    ),
]


@dataclass(frozen=True)
class Limits:
    """What the user accepts."""

    fallbacks: int | None
    transfer_bytes: int | None

    def exceeded(self, report: Report) -> tuple[str, ...]:
        """Return a sentence for every limit that the report exceeds."""
        from samba_onnx.report.units import count_text

        complaints = []
        places = report.coverage.cpu_places
        if self.fallbacks is not None and places > self.fallbacks:
            found = count_text(places, "fallback")
            complaints.append(f"{found} to the CPU, {self.fallbacks} allowed")
        size = sum(total.bytes for total in report.transfers_per_run)
        if self.transfer_bytes is not None and size > self.transfer_bytes:
            complaints.append(
                f"{size} bytes are transferred in every run, {self.transfer_bytes} allowed"
            )
        return tuple(complaints)


def convert(
    model: ModelArgument,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="PEF to write; MODEL with suffix .pef by default.",
        ),
    ] = None,
    target: TargetOption = "sn40l",
    level: LevelOption = "o3",
    sample: Annotated[
        bool | None,
        typer.Option(
            "--sample/--no-sample",
            help="Keep a seeded input with the model's outputs in the PEF, so that it can test "
            "itself. Unless asked for, none is made of more than 1 GiB of weights.",
            show_default=False,
        ),
    ] = None,
    sample_seconds: Annotated[
        float,
        typer.Option(
            "--sample-seconds",
            metavar="S",
            min=0.001,
            help="Give up the run that makes the sample after S seconds.",
        ),
    ] = 60.0,
    seed: SeedOption = 0,
    dim: DimOption = None,
    input_shape: InputShapeOption = None,
    fail_on_fallback: FailOption = False,
    max_fallbacks: FallbacksOption = None,
    max_transfer_bytes: TransferOption = None,
    json: JsonOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> int:
    """Convert an ONNX model into a PEF, and report what runs where.

    Examples:
      samba-port convert model.onnx
      samba-port convert model.onnx -o out/m.pef --target sn30 --dim batch=8
      samba-port convert model.onnx --json report.json --fail-on-fallback

    A limit that is exceeded gives exit status 1; the PEF is written all the same.
    """
    display = Display(json, quiet, verbose)
    limits = _limits(fail_on_fallback, max_fallbacks, max_transfer_bytes)
    dims, shapes = parse_dims(dim), parse_input_shapes(input_shape)
    destination = output or str(Path(model).with_suffix(".pef"))
    refuse_overwriting(
        model, outputs={"--output": destination, "the log": f"{destination}.log", "--json": json}
    )

    from samba_onnx.compiler import convert as compile_model
    from samba_onnx.report import Report

    with (
        Activity(quiet) as activity,
        compile_model(
            model,
            destination,
            target=target,
            level=level,
            dims=dims,
            input_shapes=shapes,
            sample=sample,
            sample_seconds=sample_seconds,
            seed=seed,
            progress=activity.step,
        ) as pef,
    ):
        report = Report.from_manifest(pef.manifest)
    return _give(report, display, limits, "convert", written=destination)


def analyze(
    model: ModelArgument,
    target: TargetOption = "sn40l",
    level: LevelOption = "o3",
    dim: DimOption = None,
    input_shape: InputShapeOption = None,
    fail_on_fallback: FailOption = False,
    max_fallbacks: FallbacksOption = None,
    max_transfer_bytes: TransferOption = None,
    json: JsonOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> int:
    """Report what would run where, without writing a PEF.

    Weights are not read.

    Examples:
      samba-port analyze model.onnx
      samba-port analyze model.onnx --target sn10 --dim batch=8 --dim seq=128
      samba-port analyze model.onnx --json - --max-transfer-bytes 2MB
    """
    display = Display(json, quiet, verbose)
    limits = _limits(fail_on_fallback, max_fallbacks, max_transfer_bytes)
    dims, shapes = parse_dims(dim), parse_input_shapes(input_shape)
    refuse_overwriting(model, outputs={"--json": json})

    from samba_onnx.compiler import analyze as analyze_model
    from samba_onnx.report import Report

    with Activity(quiet) as activity:
        manifest = analyze_model(
            model,
            target=target,
            level=level,
            dims=dims,
            input_shapes=shapes,
            progress=activity.step,
        )
    return _give(Report.from_manifest(manifest), display, limits, "analyze")


def _limits(fail_on_fallback: bool, fallbacks: int | None, transfer_bytes: str | None) -> Limits:
    """Read the limits; ``--fail-on-fallback`` is ``--max-fallbacks 0``."""
    return Limits(
        0 if fail_on_fallback else fallbacks, parse_bytes("--max-transfer-bytes", transfer_bytes)
    )


def _give(
    report: Report, display: Display, limits: Limits, command: str, written: str | None = None
) -> int:
    """Show the report, and answer with an exit status."""
    from rich.console import Group
    from rich.text import Text

    from samba_onnx.report.terminal import summary
    from samba_onnx.report.units import byte_text, printable

    def content(rows: int | None) -> RenderableType:
        if written is None:
            return summary(report, rows)
        size = byte_text(Path(written).stat().st_size)
        return Group(summary(report, rows), Text(f"\nWrote {printable(written)} ({size})"))

    display.show(report.headline, content, report)
    complaints = limits.exceeded(report)
    for complaint in complaints:
        complain(f"samba-port {command}", complaint)
    return EXIT_NO if complaints else EXIT_YES
