"""``samba-port survey``."""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from samba_onnx.cli.compile_options import flag_words, takes_options
from samba_onnx.cli.display import Display, refuse_overwriting, write_file
from samba_onnx.cli.failures import EXIT_NO, EXIT_YES, complain
from samba_onnx.cli.limits import FailOption
from samba_onnx.cli.options import (
    OUTPUT,
    HtmlOption,
    JsonOption,
    QuietOption,
    VerboseOption,
    parse_bytes,
)
from samba_onnx.cli.progress import Activity
from samba_onnx.compiling.model_choices import refuse_other_level, target_text
from samba_onnx.compiling.options import CompileOptions
from samba_onnx.errors import UsageError
from samba_onnx.facts.defaults import DEFAULT_TARGET

if TYPE_CHECKING:
    from samba_onnx.tools.survey.analysis_children import Analysis
    from samba_onnx.tools.survey.survey_report import SurveyReport

_EACH = "Limits of each analysis"
_ODD = re.compile(r"[^A-Za-z0-9._-]+")


class SurveyEngine(enum.StrEnum):
    """What runs the analyses of a survey."""

    LOCAL = "local"
    """Processes of this machine."""
    RAY = "ray"
    """A Ray cluster."""


ModelsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="MODELS...",
        help="Folders with .onnx and .pt2 files and config.json of Hugging Face; such files; "
        "package.module:factory; or .txt files with one of these in each line.",
    ),
]
TargetsOption = Annotated[
    str,
    typer.Option(
        "--targets", metavar="TARGET,...", help="Devices, or TOML files of your own, by commas."
    ),
]
ReportsOption = Annotated[
    str,
    typer.Option(
        "--output", "-o", metavar="FOLDER", help="Where the report of each analysis is kept."
    ),
]
RetryOption = Annotated[
    bool, typer.Option("--retry", help="Try again what failed in an earlier survey.")
]
FreshOption = Annotated[
    bool, typer.Option("--fresh", help="Analyze everything again, changed or not.")
]
JobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "-j",
        metavar="N",
        min=1,
        help="Analyses at a time; one for each core, of the cluster with --engine ray, if left out.",
        rich_help_panel=_EACH,
    ),
]
TimeoutOption = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="S",
        min=0.001,
        help="Seconds after which it is stopped.",
        rich_help_panel=_EACH,
    ),
]
MemoryOption = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="BYTES",
        help="Memory that it may take, as 8GB; an even share of what is free if left out.",
        rich_help_panel=_EACH,
    ),
]
EngineOption = Annotated[
    SurveyEngine,
    typer.Option(
        "--engine",
        help="What runs the analyses: processes of this machine, or a Ray cluster (extra ray; RAY_ADDRESS names it), "
        "whose machines share the folders of models and reports.",
        rich_help_panel=_EACH,
    ),
]
CsvOption = Annotated[
    str | None,
    typer.Option(
        "--csv",
        metavar="FILE",
        help="Write a line for each model and target as CSV, too.",
        rich_help_panel=OUTPUT,
    ),
]


_STATED: Final = (
    *("kernel_looping", "level", "placement", "host", "legalise"),
    *("optimization_rules", "default_rules"),
)
"""Options of an analysis that hold for all models of a survey."""


@takes_options(only=_STATED)
def survey(
    models: ModelsArgument,
    options: CompileOptions,
    targets: TargetsOption = DEFAULT_TARGET,
    output: ReportsOption = "survey",
    retry: RetryOption = False,
    fresh: FreshOption = False,
    jobs: JobsOption = None,
    timeout: TimeoutOption = 600.0,
    memory: MemoryOption = None,
    engine: EngineOption = SurveyEngine.LOCAL,
    fail_on_fallback: FailOption = False,
    csv: CsvOption = None,
    json: JsonOption = None,
    html: HtmlOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> int:
    """Analyze many models, and show what helps most.

    Each analysis is a process of its own, whose report is kept: a survey that was interrupted, or is made
    again, does only what is missing or has changed.

    Examples:
      samba-port survey models/
      samba-port survey models/ my_project.models:resnet --targets sn30,sn40l
      samba-port survey list.txt --csv survey.csv --html survey.html
      samba-port survey models/ --jobs 4 --timeout 300 --memory 8GB --retry
      samba-port survey models/ --engine ray --jobs 64

    Exit status 1 means that an analysis failed or, with --fail-on-fallback, that a node runs on the CPU.
    """
    display = Display(json, quiet, verbose, html=html)
    devices = _targets(targets, options)
    # Once for the survey, and not in the report of each of its analyses.
    refuse_other_level(options)
    files = {"--json": json, "--html": html, "--csv": csv}
    names = _models(models, output, files | {"--output": output})
    refuse_overwriting(options.sections.optimization_rules, outputs=files)
    # Each device loops already where it is to.
    each = options.replace(kernel_looping=False)
    limits = (jobs or 0, timeout, parse_bytes("--memory", memory))
    run = _runner(engine, flag_words(each, _STATED), limits)
    with Activity(quiet) as activity:
        activity.step("survey")
        analyses = _analyses(names, devices, each, output)
        report = _survey(analyses, devices, run, (retry, fresh), activity)
    _show(report, csv, display)
    return _status(report, fail_on_fallback)


def _models(models: Sequence[str], folder: str, outputs: dict[str, str | None]) -> tuple[str, ...]:
    """Return the models, none of which the command would write over."""
    from samba_onnx.compiling.model_sources import find_models

    names = find_models(models)
    refuse_overwriting(*names, outputs=outputs)
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise UsageError(f"--output {folder}: expected a folder")
    return names


def _targets(text: str, options: CompileOptions) -> tuple[str, ...]:
    """Return the targets, each of which exists."""
    from samba_onnx.passes.targets import listed, load_target

    looping = options.device.kernel_looping
    names = tuple(
        dict.fromkeys(
            target_text(options.replace(target=name, kernel_looping=looping))
            for name in listed(text)
        )
    )
    for name in names:
        # Refused here once, and not by the analysis of each model.
        load_target(name)
    return names


def _analyses(
    models: Sequence[str], targets: Sequence[str], options: CompileOptions, folder: str
) -> list[Analysis]:
    """Return what there is to do, with the place of each result."""
    import json

    import samba_onnx
    from samba_onnx.compiling.model_sources import model_digest
    from samba_onnx.passes.targets import parted
    from samba_onnx.report import Report
    from samba_onnx.report.documents import json_schema
    from samba_onnx.tools.survey.analysis_children import Analysis

    # A report of another form, as a version in development writes it, is made again.
    form = json.dumps(json_schema(Report))
    version = samba_onnx.__version__
    texts = options.texts()
    files = {
        name: _content(texts[name]) for name in ("host", "optimization_rules") if name in texts
    }
    known = texts | files | {"version": version, "form": form}
    analyses = []
    for model in models:
        digest = model_digest(model, known)
        for target in targets:
            base, conditions = parted(target)
            whole = _joined(digest, _content(base), *conditions)
            name = f"{_file_name(model)}.{_file_name(Path(target).stem)}.{whole[:16]}.json"
            analyses.append(Analysis(model, target, Path(folder, name)))
    return analyses


def _joined(*texts: str) -> str:
    import hashlib

    return hashlib.sha256("\n".join(texts).encode("utf-8", "surrogateescape")).hexdigest()


def _content(name: str) -> str:
    """Return the name of a profile that comes with the product, or the content of the user's file."""
    path = Path(name)
    # Of any encoding: it only counts whether it is the same.
    return path.read_bytes().decode("latin-1") if path.is_file() else name


def _file_name(text: str) -> str:
    """Return the end of a name in letters that every file system takes."""
    # Two such names, a digest and a suffix are within the 255 bytes that file systems take.
    return _ODD.sub("_", text)[-60:].lstrip("._-") or "model"


def _runner(
    engine: SurveyEngine, options: Sequence[str], limits: tuple[int, float, int | None]
) -> Callable[[Sequence[Analysis], Callable[[int], None]], None]:
    """Return what runs analyses, and calls something with the number of those that ended."""
    from samba_onnx.tools.survey.analysis_children import ChildLimits, run_analyses
    from samba_onnx.tools.survey.cluster_analyses import run_on_cluster

    run = run_on_cluster if engine is SurveyEngine.RAY else run_analyses
    return lambda missing, progress: run(missing, options, ChildLimits(*limits), progress)


def _survey(
    analyses: Sequence[Analysis],
    targets: Sequence[str],
    run: Callable[[Sequence[Analysis], Callable[[int], None]], None],
    again: tuple[bool, bool],
    activity: Activity,
) -> SurveyReport:
    """Do what is missing, and add up all results."""
    from samba_onnx.report.reading import read_report
    from samba_onnx.tools.survey.survey_totals import Survey

    retry, fresh = again
    missing = [
        each for each in analyses if fresh or (not each.is_done and (retry or each.error() is None))
    ]
    for each in missing:
        # An analysis that fails must not leave an earlier report for its own.
        each.report.unlink(missing_ok=True)
        each.failure.unlink(missing_ok=True)
    activity.count(0, len(missing) or 1)
    run(missing, lambda done: activity.count(done, len(missing)))
    # All of them, those of earlier surveys too: the answer is about the models, not about this run.
    survey = Survey(targets)
    for each in analyses:
        if each.is_done:
            report = read_report(each.report.read_bytes(), str(each.report))
            survey.add(each.model, each.target, str(each.report), report)
        else:
            error = each.error() or "the record of its failure cannot be read"
            survey.fail(each.model, each.target, str(each.failure), error)
    return survey.report()


def _show(report: SurveyReport, csv: str | None, display: Display) -> None:
    """Write the table and show the answer."""
    from samba_onnx.tools.survey.survey_text import survey_text
    from samba_onnx.tools.survey.survey_totals import csv_text

    if csv is not None:
        write_file(csv, csv_text(report).encode("utf-8", "backslashreplace"))

    def page() -> str:
        from samba_onnx.tools.survey.survey_page import survey_page

        return survey_page(report, display.html or "")

    display.show(report.headline, lambda rows: survey_text(report, rows), report, page)


def _status(report: SurveyReport, fail_on_fallback: bool) -> int:
    """Say what was not accepted, and return the exit status."""
    from samba_onnx.report.units import count_text

    complaints = []
    failed = sum(row.failed for row in report.targets)
    if failed:
        complaints.append(f"{count_text(failed, 'analysis', 'analyses')} failed")
    partial = sum(row.analyzed - row.whole for row in report.targets)
    if fail_on_fallback and partial:
        what = count_text(partial, "analysis shows", "analyses show")
        complaints.append(f"{what} nodes on the CPU")
    for complaint in complaints:
        complain("samba-port survey", complaint)
    return EXIT_NO if complaints else EXIT_YES
