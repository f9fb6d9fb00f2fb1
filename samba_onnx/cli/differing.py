"""``samba-port diff``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from samba_onnx.cli.constants import ConstantOption, parse_constants
from samba_onnx.cli.display import Display, refuse_overwriting
from samba_onnx.cli.failures import EXIT_NO, EXIT_YES
from samba_onnx.cli.fusion_options import (
    DefaultRulesOption,
    RulesOption,
    fusion_choices,
    torch_fusion,
)
from samba_onnx.cli.model_choices import chosen_target, refuse_constants
from samba_onnx.cli.options import (
    DimOption,
    InputShapeOption,
    JsonOption,
    KernelLoopingOption,
    QuietOption,
    VerboseOption,
    parse_input_shapes,
    parse_sizes,
)
from samba_onnx.cli.parallel_options import parallel_options
from samba_onnx.cli.progress import Activity
from samba_onnx.cli.torch_models import analyze_torch
from samba_onnx.errors import UsageError
from samba_onnx.facts.defaults import DEFAULT_LEVEL, DEFAULT_TARGET
from samba_onnx.workflows.model_sources import is_torch_model

if TYPE_CHECKING:
    from samba_onnx.report import Report

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


def diff(
    before: Annotated[str, typer.Argument(metavar="BEFORE", help=_SIDE)],
    after: Annotated[str, typer.Argument(metavar="AFTER", help=_SIDE)],
    allow: AllowOption = 0.0,
    target: OtherTargetOption = None,
    kernel_looping: KernelLoopingOption = False,
    level: OtherLevelOption = None,
    optimization_rules: RulesOption = None,
    use_o1_default_rules: DefaultRulesOption = False,
    dim: DimOption = None,
    input_shape: InputShapeOption = None,
    constant: ConstantOption = None,
    json: JsonOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> int:
    """Say what moved between two conversions, and why.

    Figures of both sides, nodes that moved between RDU and CPU with their reasons, boundaries, operators,
    sections, and passes that did something else. A model is analyzed for target, level, sizes and RDUs of
    the other side, so that what differs is the model, or this version of the compiler.

    Examples:
      samba-port diff before.pef after.pef
      samba-port diff released.json model.onnx --allow 2
      samba-port diff model.pef model.onnx --target sn30 --json -

    Exit status 1 means worse: more nodes or groups of nodes on the CPU, boundaries, transfers or bytes
    per run, or more modelled time.
    """
    refuse_overwriting(before, after, *filter(None, [optimization_rules]), outputs={"--json": json})
    stated = _stated(dim, input_shape, constant)

    from samba_onnx.report.comparing import difference
    from samba_onnx.report.difference_text import difference_text

    sides = (before, after)
    with Activity(quiet) as activity:
        reports = [stored_report(side) for side in sides]
        other = next((report for report in reports if report is not None), None)
        options = {"target": target, "looping": kernel_looping, "level": level, **stated}
        options |= {"rules": optimization_rules, "default_rules": use_o1_default_rules}
        _refuse_analysis(reports, options)
        left, right = (
            report or _analyzed(side, other, options, activity)
            for side, report in zip(sides, reports, strict=True)
        )
    answer = difference(left, right, (_shown(before), _shown(after)), allowed_percent=allow)
    display = Display(json, quiet, verbose)
    display.show(answer.headline, lambda rows: difference_text(answer, rows), answer)
    return EXIT_NO if answer.worse else EXIT_YES


def _stated(
    dim: list[str] | None, input_shape: list[str] | None, constant: list[str] | None
) -> dict[str, Any]:
    """Return what options say of the inputs of a model that is analyzed."""
    return {
        "dims": parse_sizes(dim),
        "input_shapes": parse_input_shapes(input_shape),
        "constants": parse_constants(constant),
    }


def _refuse_analysis(reports: Sequence[Report | None], options: Mapping[str, Any]) -> None:
    """Refuse options of an analysis where none is made."""
    if all(reports) and any(options.values()):
        raise UsageError(
            "neither side is analyzed, for both are PEFs or reports: options of analysis, as --target, are "
            "for models"
        )


def _shown(side: str) -> str:
    return side if is_torch_model(side) else Path(side).name


def stored_report(side: str) -> Report | None:
    """Return the report that a file holds, as a PEF or as JSON; None for a model.

    Args:
        side: Path of the file, or a factory.

    Raises:
        UsageError: It cannot be opened, or is a JSON document of another kind.
        PefError: It is a damaged PEF.
    """
    if is_torch_model(side):
        return None
    from samba_onnx.pef import load_pef
    from samba_onnx.report import Report
    from samba_onnx.report.reading import read_report
    from samba_onnx.safety.files import open_regular, printable, read_document

    with open_regular(side, what="file", error=UsageError) as file:
        # By how it begins, as reports and PEFs may have any name.
        head = file.read(2)
    if head[:1] == b"{":
        return read_report(read_document(side, what="file", error=UsageError), printable(side))
    if head != b"PK":
        return None
    with load_pef(side) as pef:
        return Report.from_manifest(pef.manifest)


def _analyzed(
    model: str, other: Report | None, options: dict[str, Any], activity: Activity
) -> Report:
    """Analyze a model as the other side was converted, unless options say otherwise.

    Raises:
        UsageError: A report does not tell how the other side was converted, or options do not go together.
    """
    from samba_onnx.report import Report
    from samba_onnx.workflows.compiler import analyze

    target = options["target"] or (other.target if other else DEFAULT_TARGET)
    target = chosen_target(target, options["looping"])
    level = options["level"] or (other.level if other else DEFAULT_LEVEL)
    fusion = fusion_choices(level, options["rules"], options["default_rules"])
    cut = other.parallel if other else None
    parallel = parallel_options(cut.rdus, cut.mode) if cut else None
    if other is not None and options["rules"] is None:
        _refuse_other_rules(other, level, target)
    if is_torch_model(model):
        refuse_constants(options["constants"])
        rules = torch_fusion(fusion)
        manifest = analyze_torch(
            model, activity.step, target=target, level=level, fusion=rules, parallel=parallel
        )
        return Report.from_manifest(manifest)
    dims, shapes = options["dims"], options["input_shapes"]
    # What the user states counts alone: sizes of the other side might contradict it.
    if other is not None and not dims and not shapes:
        dims, shapes = _sizes(other)
    constants = options["constants"] or (_constants(other) if other is not None else {})
    manifest = analyze(
        model,
        target=target,
        level=level,
        dims=dims,
        input_shapes=shapes,
        constants=constants,
        parallel=parallel,
        progress=activity.step,
        **fusion,
    )
    return Report.from_manifest(manifest)


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
        numbers = parse_constants([f"{fixed.name}={fixed.value}"])[fixed.name]
        # As objects, which whole numbers and truth values stay.
        constants[fixed.name] = np.array(numbers, dtype=object).reshape(fixed.shape).tolist()
    return constants
