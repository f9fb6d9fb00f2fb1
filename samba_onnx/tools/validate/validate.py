"""``samba-port validate``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from samba_onnx.cli.display import Display, refuse_overwriting, write_file
from samba_onnx.cli.failures import EXIT_NO, EXIT_YES
from samba_onnx.cli.options import JsonOption, QuietOption, VerboseOption
from samba_onnx.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from samba_onnx.pef.target_summary import TargetSummary
    from samba_onnx.tools.validate.measurements import Measured
    from samba_onnx.tools.validate.validate_report import (
        FittedConstant,
        MeasuredTime,
        PartError,
        ValidationReport,
    )


def validate(
    results: Annotated[
        str, typer.Argument(metavar="RESULTS.CSV", help="Measured times: pef,section,seconds.")
    ],
    fit: Annotated[
        str | None,
        typer.Option("--fit", metavar="FILE", help="Write a target that fits the device."),
    ] = None,
    within: Annotated[
        float,
        typer.Option("--within", metavar="FACTOR", min=1.0, help="By how much a time may be off."),
    ] = 1.33,
    json: JsonOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> int:
    """Compare times that a device took with those that were planned.

    The table has a line for each measured time: a PEF, by its path from the table; the id of a section, or nothing for
    a whole run of the first graph; and seconds, the median of several runs. With --fit, launches, efficiencies and rates of memory
    are fitted to them, each with the number of times that it rests on; one that none rests on stays as it was planned.

    Examples:
      samba-port validate results.csv
      samba-port validate results.csv --fit my_rdu.toml
      samba-port validate results.csv --within 1.1 --json -

    Exit status 1 means that a time is off by more than --within: as planned, or by a fit that has not seen it.
    """
    refuse_overwriting(results, outputs={"--fit": fit, "--json": json})

    from samba_onnx.tools.validate.measurements import read_measurements
    from samba_onnx.tools.validate.profile_fit import fitted, left_out, profile_text, values

    measured, targets = read_measurements(results)
    ratios: list[float] | None = None
    constants: list[tuple[str, float, float, int]] = []
    if fit is not None:
        target, base = _one_target(targets)
        if len(measured) < 2:
            raise UsageError(f"{results}: a fit needs two measured times and more")
        ratios = left_out(measured)
        constants = values(target, fitted(measured))
        text = profile_text(base, Path(fit).stem, constants, Path(results).name)
        write_file(fit, text.encode())
    report = _report((results, fit), measured, ratios, constants)
    Display(json, quiet, verbose).show(report.headline, lambda rows: _text(report, rows), report)
    # What a fit has seen says nothing of how near it is to what it has not.
    judged = ratios or [time.ratio for time in report.times]
    return EXIT_YES if all(1 / within <= ratio <= within for ratio in judged) else EXIT_NO


def _one_target(targets: Sequence[TargetSummary]) -> tuple[TargetSummary, str]:
    """Return the target of all PEFs, and the built-in one that it is, without conditions."""
    from samba_onnx.passes.targets import available_targets
    from samba_onnx.passes.targets.conditions import parted

    target = targets[0]
    names = sorted({one.name for one in targets})
    if len(names) > 1:
        raise UsageError(f"--fit: the PEFs are for several targets: {', '.join(names)}")
    base = parted(target.name)[0]
    if base not in available_targets() or target.timing is None:
        raise UsageError(f"--fit: {base} is no built-in target, which a profile could extend")
    return target, base


def _report(
    files: tuple[str, str | None],
    measured: Sequence[Measured],
    ratios: Sequence[float] | None,
    constants: Sequence[tuple[str, float, float, int]],
) -> ValidationReport:
    from samba_onnx.report.units import printable
    from samba_onnx.tools.validate.profile_fit import geometric_error
    from samba_onnx.tools.validate.validate_report import (
        FittedConstant,
        MeasuredTime,
        ValidationReport,
    )

    times: list[MeasuredTime] = []
    for place, one in enumerate(measured):
        modelled = one.modelled({})
        seen = None if ratios is None else ratios[place]
        times.append(
            MeasuredTime(one.place, one.seconds, modelled, modelled / one.seconds, one.bound, seen)
        )
    error = geometric_error([time.ratio for time in times])
    left = None if ratios is None else geometric_error(ratios)
    own: tuple[FittedConstant, ...] = tuple(FittedConstant(*row) for row in constants)
    headline = f"{printable(files[0])}: modelled times are off by {error:.0%} on average"
    if left is not None and files[1] is not None:
        headline += f"; by a fit without them by {left:.0%}: {printable(files[1])}"
    return ValidationReport(
        headline=headline,
        results=files[0],
        times=tuple(times),
        parts=_parts(times),
        error=error,
        left_out_error=left,
        profile=files[1],
        constants=own,
    )


def _parts(times: Sequence[MeasuredTime]) -> tuple[PartError, ...]:
    """Return how far times are off by the part that bounds them, the most frequent one first."""
    from samba_onnx.tools.validate.validate_report import PartError

    by_part: dict[str, list[float]] = {}
    for time in times:
        by_part.setdefault(time.bound, []).append(math.log(time.ratio))
    return tuple(
        PartError(name, len(logs), math.exp(sum(logs) / len(logs)))
        for name, logs in sorted(by_part.items(), key=lambda part: -len(part[1]))
    )


def _text(report: ValidationReport, limit: int | None) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from samba_onnx.report.layout import table, titled
    from samba_onnx.report.units import second_text

    times = [
        (
            time.place,
            second_text(time.measured_seconds),
            second_text(time.modelled_seconds),
            f"{time.ratio:.2f}",
            "" if time.left_out_ratio is None else f"{time.left_out_ratio:.2f}",
            time.bound,
        )
        for time in sorted(report.times, key=lambda one: -abs(math.log(one.ratio)))
    ]
    columns = ("time of", ">measured", ">modelled", ">ratio", ">left out", "mostly")
    parts = [(part.bound, str(part.rows), f"{part.ratio:.2f}") for part in report.parts]
    shown: list[RenderableType] = [
        Text(report.headline, style="bold"),
        Text(""),
        titled("Measured times", table(columns, times, limit=limit)),
        Text(""),
        titled("Where the model is off", table(("mostly", ">times", ">ratio"), parts)),
    ]
    if report.constants:
        cells = [
            (constant.name, f"{constant.planned:.3g}", f"{constant.fitted:.3g}", str(constant.rows) if constant.rows else "none: as planned")
            for constant in report.constants
        ]  # fmt: skip
        heads = ("constant", ">planned", ">fitted", ">rests on")
        shown += [Text(""), titled("Constants", table(heads, cells))]
    return Group(*shown)
