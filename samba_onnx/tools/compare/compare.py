"""``samba-port compare``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from samba_onnx.cli.display import Display, refuse_overwriting
from samba_onnx.cli.failures import EXIT_NO, EXIT_YES
from samba_onnx.cli.options import (
    CustomOpsOption,
    HtmlOption,
    JsonOption,
    QuietOption,
    SeedOption,
    ThreadsOption,
    TranslationsOption,
    VerboseOption,
)
from samba_onnx.cli.progress import Activity
from samba_onnx.cli.stored_inputs import AtolOption, InputFileOption, RtolOption
from samba_onnx.compiling.model_choices import refuse_translations
from samba_onnx.compiling.model_sources import is_torch_model
from samba_onnx.compiling.torch_loading import compare_torch
from samba_onnx.errors import UsageError

if TYPE_CHECKING:
    from samba_onnx.comparing.compared_values import ComparedValue, ValueComparison
    from samba_onnx.pef import Pef
    from samba_onnx.tools.compare.compare_report import ValueComparisonReport, ValueErrorReport

_ADVICE: Final = (
    "samba-port reduce writes the smallest part of the model that shows it; to tell an engine's fault from "
    "the compiler's, run samba-port verify with --engine reference"
)

OriginalArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="What the PEF was made of: an ONNX model, factory or .pt2 file."
    ),
]


def compare(
    model: OriginalArgument,
    pef: Annotated[str, typer.Argument(metavar="PEF", help="The converted model.")],
    input_file: InputFileOption = None,
    seed: SeedOption = 0,
    rtol: RtolOption = None,
    atol: AtolOption = None,
    threads: ThreadsOption = None,
    custom_ops: CustomOpsOption = None,
    translations: TranslationsOption = None,
    json: JsonOption = None,
    html: HtmlOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> int:
    """Find the first value that a PEF computes differently.

    Both are executed section by section, each on its own values, and no more than one section's are in
    memory. The first value beyond the tolerance is where an error begins, with its node and the line of
    the model. A PyTorch module runs in eager torch on its example inputs: compared are its layers, and
    where the PEF trains the gradient of each parameter.

    Examples:
      samba-port compare model.onnx model.pef
      samba-port compare model.onnx model.pef --input x=x.npy -v --html errors.html
      samba-port compare model.onnx model.pef --json - | jq .first
      samba-port compare my_project.models:resnet resnet.pef

    Exit status 1 means that a value is beyond the tolerance.
    """
    refuse_translations(model, translations)
    refuse_overwriting(model, pef, outputs={"--json": json, "--html": html})
    display = Display(json, quiet, verbose, html=html)

    from samba_onnx.pef import load_pef
    from samba_onnx.tools.compare.compare_text import values_text

    options: dict[str, Any] = {"input_file": input_file, "seed": seed, "rtol": rtol, "atol": atol}
    options["custom_ops"] = custom_ops or ()
    with Activity(quiet) as activity, load_pef(pef) as opened:
        if is_torch_model(model):
            _refuse_onnx_options(any(options.values()))
            options = {"threads": threads, "translations": translations}
            comparison = compare_torch(model, opened, activity.step, **options)
        else:
            comparison = _compare_onnx(model, opened, activity, threads=threads, **options)
        report = _report(comparison, Path(pef).name)
        page = "" if html is None else _page(report, opened)
    display.show(report.headline, lambda rows: values_text(report, rows), report, lambda: page)
    return EXIT_YES if report.passed else EXIT_NO


def _page(report: ValueComparisonReport, pef: Pef) -> str:
    """Return the page, while the PEF is open: it shows the nodes."""
    from samba_onnx.tools.compare.compare_page import values_page

    return values_page(report, pef.manifest)


def _compare_onnx(
    model: str, pef: Pef, activity: Activity, input_file: list[str] | None, **options: Any
) -> ValueComparison:
    from samba_onnx.comparing.value_comparison import compare_values
    from samba_onnx.runtime.input_files import all_inputs

    activity.step("compare")
    inputs = all_inputs(pef, input_file)
    return compare_values(model, pef, progress=activity.count, inputs=inputs, **options)


def _refuse_onnx_options(stated: bool) -> None:
    if stated:
        raise UsageError(
            "--input, --seed, --rtol, --atol and --custom-ops are for ONNX models: a PyTorch module runs "
            "on its example inputs, and is judged against float64"
        )


def _report(comparison: ValueComparison, pef: str) -> ValueComparisonReport:
    """Put the answer together."""
    from samba_onnx.tools.compare.compare_report import ValueComparisonReport

    values = tuple(_value(value) for value in comparison.values)
    first = next((value for value in values if not value.passed), None)
    return ValueComparisonReport(
        headline=_headline(comparison, pef),
        passed=comparison.passed,
        graph=comparison.graph,
        inputs=comparison.inputs,
        total=comparison.total,
        compared=len(values),
        gone=dict(comparison.gone),
        own=comparison.own,
        first=first,
        advice="" if first is None else _ADVICE,
        values=values,
    )


def _headline(comparison: ValueComparison, pef: str) -> str:
    from samba_onnx.report.units import count_text, printable

    start, count = f"{printable(pef)}: ", len(comparison.values)
    first = comparison.first
    of_all = f"{count:,} of {count_text(comparison.total, 'value')}"
    if first is None:
        return f"{start}{of_all} of the original compared, all within the tolerance"
    failed = sum(not value.passed for value in comparison.values)
    place = f" at {printable(first.location)}" if first.location else ""
    verb = "is" if failed == 1 else "are"
    return (
        f"{start}{failed:,} of {count_text(count, 'value')} {verb} beyond the tolerance, first "
        f"{printable(first.name)} of {first.operator}{place}"
    )


def _value(value: ComparedValue) -> ValueErrorReport:
    from samba_onnx.tools.compare.compare_report import ValueErrorReport

    statistics = value.statistics
    one = statistics.comparison
    return ValueErrorReport(
        name=value.name,
        operator=value.operator,
        node=value.node,
        location=value.location,
        stage=value.stage,
        dtype=value.dtype or one.type,
        pef_dtype=statistics.dtype or one.type,
        shape=one.shape,
        identical=statistics.identical,
        max_absolute_error=_known(one.max_absolute_error),
        max_relative_error=_known(one.max_relative_error),
        mean_absolute_error=statistics.mean_absolute_error,
        cosine=statistics.cosine,
        tolerance=one.tolerance,
        of_allowed=_known(one.of_allowed),
        mismatched=one.mismatched,
        elements=one.elements,
        passed=one.passed,
        operands_agree=value.operands_agree,
    )


def _known(error: float) -> float | None:
    # JSON has no infinite numbers.
    return error if math.isfinite(error) else None
