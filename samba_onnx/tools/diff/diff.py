"""``samba-port diff``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from samba_onnx.cli.compile_options import takes_options
from samba_onnx.cli.display import Display, refuse_overwriting
from samba_onnx.cli.failures import EXIT_NO, EXIT_YES
from samba_onnx.cli.limits import AllowDifferentOption
from samba_onnx.cli.options import HtmlOption, JsonOption, QuietOption, VerboseOption
from samba_onnx.cli.progress import Activity
from samba_onnx.compiling.model_choices import refuse_other_options, target_text
from samba_onnx.compiling.model_sources import is_torch_model
from samba_onnx.compiling.options import CompileOptions
from samba_onnx.compiling.texts import read_constants
from samba_onnx.compiling.torch_loading import analyze_torch
from samba_onnx.errors import UsageError
from samba_onnx.report.stored_reports import stored_report

if TYPE_CHECKING:
    from samba_onnx.report import Report
    from samba_onnx.report.difference import DifferenceReport

_SIDE = "A PEF; a report that --json wrote; or a model, as analyze takes it."

AllowOption = Annotated[
    float,
    typer.Option(
        "--allow", metavar="PERCENT", min=0.0, help="By how much figures may rise unpunished."
    ),
]
OtherTargetOption = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="TARGET",
        help="Device that a model is analyzed for; that of the other side if left out.",
    ),
]
OtherLevelOption = Annotated[
    str | None,
    typer.Option(
        "--level",
        metavar="o0|o1|o3",
        help="Level that a model is analyzed with; that of the other side if left out.",
    ),
]


_STATED: Final = (
    "kernel_looping",
    "optimization_rules",
    "default_rules",
    "dims",
    "input_shapes",
    "constants",
)
"""Options of an analysis that can be stated here; the others are those of the other side."""


@takes_options(only=_STATED, settings=False)
def diff(
    before: Annotated[str, typer.Argument(metavar="BEFORE", help=_SIDE)],
    after: Annotated[str, typer.Argument(metavar="AFTER", help=_SIDE)],
    options: CompileOptions,
    allow: AllowOption = 0.0,
    allow_different: AllowDifferentOption = False,
    target: OtherTargetOption = None,
    level: OtherLevelOption = None,
    json: JsonOption = None,
    html: HtmlOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> int:
    """Say what moved between two conversions, and why.

    Figures of both sides, nodes that moved between RDU and CPU with their reasons, boundaries, operators,
    sections, and passes that did something else. A model is analyzed for target, level, precision, sizes and RDUs of
    the other side, so that what differs is the model, or this version of the compiler.

    Examples:
      samba-port diff before.pef after.pef
      samba-port diff released.json model.onnx --allow 2 --html moved.html
      samba-port diff model.pef model.onnx --target sn30 --json -

    Sides of other sizes, precision, number of RDUs, target or level, unless that is what an option here states, are
    not comparable: an error that names what differs.

    Exit status 1 means worse: more nodes or groups of nodes on the CPU, boundaries, transfers or bytes
    per run, or more modelled time.
    """
    rules = options.sections.optimization_rules
    refuse_overwriting(before, after, rules, outputs={"--json": json, "--html": html})
    display = Display(json, quiet, verbose, html=html)

    from samba_onnx.report.comparing import difference
    from samba_onnx.report.difference_text import difference_text

    with Activity(quiet) as activity:
        left, right = _both((before, after), options, target, level, activity=activity)
    if not allow_different:
        # Kernel looping is a condition of a target.
        _refuse_different(left, right, target or options.device.kernel_looping, level)
    answer = difference(left, right, (_shown(before), _shown(after)), allowed_percent=allow)
    display.show(
        answer.headline,
        lambda rows: difference_text(answer, rows),
        answer,
        partial(_page, answer, left, right),
    )
    return EXIT_NO if answer.worse else EXIT_YES


def _page(answer: DifferenceReport, left: Report, right: Report) -> str:
    # Imported only for a page, which needs an extra.
    from samba_onnx.report.page.answer import difference_page

    return difference_page(answer, left, right, "diff")


def _both(
    sides: tuple[str, str],
    options: CompileOptions,
    target: str | None,
    level: str | None,
    *,
    activity: Activity,
) -> tuple[Report, Report]:
    """Return the reports of both sides, one of a model by analyzing it as the other side was converted."""
    reports = [stored_report(side) for side in sides]
    other = next((report for report in reports if report is not None), None)
    if all(reports) and (options.stated() or target or level):
        raise UsageError(
            "neither side is analyzed, for both are PEFs or reports: options of analysis, as --target, are for models"
        )
    chosen = _like(other, options, target, level)
    # Only now: options of the model are those of the other side, which is read before.
    left, right = (
        report or _analyzed(side, other, chosen, activity)
        for side, report in zip(sides, reports, strict=True)
    )
    return left, right


def _refuse_different(
    left: Report, right: Report, target: str | bool | None, level: str | None
) -> None:
    """Refuse to judge by figures that are of other sizes, or hold under other conditions, unless stated.

    Raises:
        UsageError: They are not comparable.
    """
    from samba_onnx.report.comparability import different, different_text

    # Another version of the compiler is what a report is held against a model for.
    stated = {"target": target, "level": level, "version": "any"}
    pairs = different(left, right, but=[name for name, value in stated.items() if value])
    if pairs:
        raise UsageError(
            f"the two are not comparable: {different_text(pairs)}; see what moved all the same with --allow-different"
        )


def _shown(side: str) -> str:
    return side if is_torch_model(side) else Path(side).name


def _like(
    other: Report | None, options: CompileOptions, target: str | None, level: str | None
) -> CompileOptions:
    """Return the options that an analysis has: those of the other side, unless others are stated."""
    chosen = options.replace(target=target, level=level)
    if other is None:
        return chosen
    # A program that is cut for several RDUs differs from a whole one in every figure.
    cut = other.parallel
    if cut is not None:
        chosen = chosen.replace(n_chips=cut.rdus, tensor_parallel=cut.mode)
    if other.precision:
        chosen = chosen.replace(precision=other.precision)
    return chosen.replace(target=target or other.target, level=level or other.level)


def _analyzed(
    model: str, other: Report | None, options: CompileOptions, activity: Activity
) -> Report:
    """Analyze a model.

    Raises:
        UsageError: A report does not tell how the other side was converted, or options do not go together.
    """
    from samba_onnx.compiling.compiler import analyze
    from samba_onnx.report import Report

    # Refused here, not before: only now it is known which side is a model, and of which kind.
    refuse_other_options(model, options, writes=False)
    if other is not None and options.sections.optimization_rules is None:
        _refuse_other_rules(other, options.sections.level, target_text(options))
    if is_torch_model(model):
        return Report.from_manifest(analyze_torch(model, options, activity.step))
    sizes = options.sizes
    # What the user states counts alone: sizes of the other side might contradict it.
    if other is not None and not sizes.dims and not sizes.input_shapes:
        dims, shapes = _sizes(other)
        options = options.replace(dims=dims, input_shapes=shapes)
    if other is not None and not sizes.constants:
        options = options.replace(constants=_constants(other))
    return Report.from_manifest(analyze(model, options=options, progress=activity.step))


def _refuse_other_rules(other: Report, level: str, target: str) -> None:
    """Refuse to analyze with the target's rules of fusion what is held against a file's."""
    if level != other.level:
        return
    from samba_onnx.passes.targets import load_target

    own = load_target(target).fusion_rules
    # Sections by the target's own rules, or by those in a program, need no file.
    known = {"op_fusion"} | ({own.name} if own else set())
    files = [rule.source for rule in other.fusion if rule.source not in known]
    if files:
        from samba_onnx.safety.files import printable

        raise UsageError(
            f"the other side has sections by the rules of {printable(files[0])}: give that file, too, with "
            "--optimization-rules"
        )


def _sizes(report: Report) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the sizes that a conversion stated: of named dimensions, and shapes of inputs."""
    dims: dict[str, dict[int, None]] = {}
    shapes: dict[str, tuple[int | str | None, ...]] = {}
    # Graphs for several sizes have the same inputs.
    values = {value.name: value for graph in report.graphs[:1] for value in graph.inputs}
    for bound in report.bound_dimensions:
        if bound.name:
            dims.setdefault(bound.name, {})[bound.size] = None
            continue
        for place in bound.inputs:
            value = values.get(place.rpartition("[")[0])
            if value is not None and value.shape is not None:
                shapes[value.name] = value.shape
    sizes = {
        name: tuple(known) if len(known) > 1 else next(iter(known)) for name, known in dims.items()
    }
    return sizes, shapes


def _constants(report: Report) -> dict[str, Any]:
    """Return the inputs that a conversion fixed as constants, with their values.

    Raises:
        UsageError: A report shows the first numbers of one only.
    """
    import numpy as np

    constants = {}
    for fixed in report.fixed_inputs:
        if fixed.value.endswith(", ...]"):
            raise UsageError(
                f"the other side has input {fixed.name!r} fixed as a constant of many numbers: give them, too, with "
                f"--constant {fixed.name}=FILE.npy"
            )
        numbers = read_constants([f"{fixed.name}={fixed.value}"])[fixed.name]
        # As objects, which whole numbers and truth values stay.
        constants[fixed.name] = np.array(numbers, dtype=object).reshape(fixed.shape).tolist()
    return constants
