"""``samba-port convert`` and ``samba-port analyze``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from samba_onnx.cli.annotated_models import refuse_annotated, write_annotated
from samba_onnx.cli.calibrating import host_profile
from samba_onnx.cli.checked_passes import CheckPassesOption, writing_the_guilty_part
from samba_onnx.cli.display import Display, refuse_overwriting
from samba_onnx.cli.failures import EXIT_NO, EXIT_YES, complain
from samba_onnx.cli.limits import AcceptedLimits, accepted_limits
from samba_onnx.cli.options import (
    TORCH,
    AnnotatedOption,
    CustomOpsOption,
    DimOption,
    FailOption,
    FallbacksOption,
    Float16Option,
    HostOption,
    InputShapeOption,
    JsonOption,
    KeepDynamicOption,
    LegaliseOption,
    LevelOption,
    NoLegaliseOption,
    PlacementOption,
    PortableArgument,
    QuietOption,
    SampleInputOption,
    SeedOption,
    SpatialBatchesOption,
    TargetOption,
    TransferOption,
    VerboseOption,
    parse_input_shapes,
    parse_sizes,
)
from samba_onnx.cli.progress import Activity
from samba_onnx.cli.supposing import WhatIfOption, show_supposed, supposed_target
from samba_onnx.cli.torch_models import analyze_torch, convert_torch
from samba_onnx.errors import UsageError
from samba_onnx.workflows.model_sources import (
    configuration_file,
    is_configuration,
    is_factory,
    is_torch_model,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from samba_onnx.passes.planning.legalising import LegalisationOptions
    from samba_onnx.passes.targets import Target
    from samba_onnx.pef.manifest import Manifest
    from samba_onnx.report import Report


def convert(
    model: PortableArgument,
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
    placement: PlacementOption = "optimal",
    host: HostOption = "default",
    legalise: LegaliseOption = "auto",
    no_legalise: NoLegaliseOption = None,
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
    custom_ops: CustomOpsOption = None,
    dim: DimOption = None,
    input_shape: InputShapeOption = None,
    sample_input: SampleInputOption = None,
    keep_dynamic: KeepDynamicOption = False,
    float16: Float16Option = None,
    fail_on_fallback: FailOption = False,
    max_fallbacks: FallbacksOption = None,
    max_transfer_bytes: TransferOption = None,
    check_passes: CheckPassesOption = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check/--no-check",
            help="Compare what was exported with eager torch on the example inputs, and write "
            "nothing if it computes something else.",
            show_default=False,
            rich_help_panel=TORCH,
        ),
    ] = True,
    train: Annotated[
        bool,
        typer.Option(
            "--train",
            help="The function returns a module, inputs and an optimizer: convert for training. The "
            "PEF carries no weights.",
            rich_help_panel=TORCH,
        ),
    ] = False,
    loss_index: Annotated[
        list[int] | None,
        typer.Option(
            "--loss-index",
            metavar="INDEX",
            help="With --train: an output that training starts from, counted from 0 over all outputs; "
            "may be given several times. Without, those that losses of torch made, or else all.",
            rich_help_panel=TORCH,
        ),
    ] = None,
    spatial_batches: SpatialBatchesOption = None,
    annotated: AnnotatedOption = None,
    json: JsonOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> int:
    """Convert a model into a PEF, and report what runs where.

    Dynamic dimensions of which no option states a size become 1, and a note says which. A PyTorch model is put into evaluation mode, and its sizes are those of its example inputs; the sample is what eager torch computes from them. Whatever a factory does, it does with the rights
    of whoever runs this command; a .pt2 file runs nothing.

    Examples:
      samba-port convert model.onnx
      samba-port convert model.onnx -o out/m.pef --target sn30 --dim batch=8
      samba-port convert model.onnx --dim batch=1,8,32
      samba-port convert model.onnx --json report.json --fail-on-fallback
      samba-port convert model.onnx --annotated where.onnx --check-passes
      samba-port convert my_project.models:resnet -o resnet.pef
      samba-port convert exported.pt2
      samba-port convert my_project.training:lenet --train

    A limit that is exceeded gives exit status 1; the PEF is written all the same.
    """
    display = Display(json, quiet, verbose)
    limits = accepted_limits(fail_on_fallback, max_fallbacks, max_transfer_bytes)
    batches = _spatial_batches(model, spatial_batches)
    dims, shapes = parse_sizes(dim), _shapes(input_shape, sample_input)
    sizes: dict[str, Any] = {"dims": dims, "input_shapes": shapes, "keep_dynamic": keep_dynamic}
    sizes |= {"float16": float16, "legalise": legalise, "no_legalise": no_legalise or ()}
    if loss_index and not train:
        raise UsageError("--loss-index is for --train: a program that only runs has no losses")
    destination = output or _destination(model)
    device = _device(target, level, placement, host)
    refuse_annotated(model, annotated)
    outputs = {"--output": destination, "the log": f"{destination}.log", "--json": json}
    refuse_overwriting(model, outputs={**outputs, "--annotated": annotated})

    from samba_onnx.report import Report

    with Activity(quiet) as activity, writing_the_guilty_part(destination):
        if is_torch_model(model):
            _refuse_shapes(bool(dims or shapes or keep_dynamic or float16))
            _refuse_libraries(custom_ops)
            opened = convert_torch(
                model,
                destination,
                activity.step,
                **device,
                legalisation=_legalisation(legalise, no_legalise),
                sample=sample is not False,
                check=check,
                train=train,
                loss_indices=loss_index,
                spatial_batches=batches,
                check_passes=check_passes,
            )
        else:
            _refuse_torch_options(check, train)
            from samba_onnx.workflows.compiler import convert as compile_model

            opened = compile_model(
                model,
                destination,
                **device,
                **sizes,
                sample=sample,
                sample_seconds=sample_seconds,
                seed=seed,
                custom_ops=custom_ops or (),
                check_passes=check_passes,
                progress=activity.step,
            )
        with opened as pef:
            report = Report.from_manifest(pef.manifest)
        if annotated is not None:
            write_annotated(model, annotated, activity, **device, **sizes)
    return _give(report, display, limits, "convert", written=destination)


def analyze(
    model: PortableArgument,
    target: TargetOption = "sn40l",
    level: LevelOption = "o3",
    placement: PlacementOption = "optimal",
    host: HostOption = "default",
    legalise: LegaliseOption = "auto",
    no_legalise: NoLegaliseOption = None,
    dim: DimOption = None,
    input_shape: InputShapeOption = None,
    sample_input: SampleInputOption = None,
    keep_dynamic: KeepDynamicOption = False,
    float16: Float16Option = None,
    spatial_batches: SpatialBatchesOption = None,
    fail_on_fallback: FailOption = False,
    max_fallbacks: FallbacksOption = None,
    max_transfer_bytes: TransferOption = None,
    what_if: WhatIfOption = None,
    annotated: AnnotatedOption = None,
    json: JsonOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> int:
    """Report what would run where; no weight is read or written.

    Examples:
      samba-port analyze model.onnx --target sn10 --dim batch=8 --dim seq=128
      samba-port analyze model.onnx --json - --max-transfer-bytes 2MB
      samba-port analyze model.onnx --what-if support=TopK --what-if link.latency=2us
      samba-port analyze my_project.models:resnet
    """
    limits = accepted_limits(fail_on_fallback, max_fallbacks, max_transfer_bytes)
    batches = _spatial_batches(model, spatial_batches)
    dims, shapes = parse_sizes(dim), _shapes(input_shape, sample_input)
    sizes: dict[str, Any] = {"dims": dims, "input_shapes": shapes, "keep_dynamic": keep_dynamic}
    sizes |= {"float16": float16, "legalise": legalise, "no_legalise": no_legalise or ()}
    device = _device(target, level, placement, host)
    refuse_annotated(model, annotated)
    refuse_overwriting(model, outputs={"--json": json, "--annotated": annotated})
    supposed = supposed_target(target, what_if)
    display = Display(json, quiet, verbose)

    from samba_onnx.report import Report

    with Activity(quiet) as activity:

        def plan(target: str | Target) -> Manifest:
            return _planned(model, device | {"target": target}, sizes, batches, activity)

        targets = (target,) if supposed is None else (target, supposed)
        reports = [Report.from_manifest(plan(each)) for each in targets]
        if annotated is not None:
            write_annotated(model, annotated, activity, **device, **sizes)
    if supposed is not None:
        return show_supposed(reports, what_if or (), display)
    return _give(reports[0], display, limits, "analyze")


def _planned(
    model: str,
    device: dict[str, Any],
    sizes: dict[str, Any],
    batches: int,
    activity: Activity,
) -> Manifest:
    """Plan a model of either kind."""
    if not is_torch_model(model):
        from samba_onnx.workflows.compiler import analyze as analyze_model

        return analyze_model(model, **device, **sizes, progress=activity.step)
    _refuse_shapes(any(sizes[name] for name in ("dims", "input_shapes", "keep_dynamic", "float16")))
    rules = _legalisation(sizes["legalise"], sizes["no_legalise"])
    return analyze_torch(
        model, activity.step, **device, legalisation=rules, spatial_batches=batches
    )


def _device(target: str, level: str, placement: str, host: str) -> dict[str, Any]:
    """Return what a model is converted for, as all functions that convert take it."""
    profile = host_profile(host)
    return {"target": target, "level": level, "placement": placement, "host": profile}


def _legalisation(legalise: str, no_legalise: list[str] | None) -> LegalisationOptions:
    """Return what the options say about rules."""
    from samba_onnx.workflows.choices import legalisation_options

    return legalisation_options(legalise, no_legalise or ())


def _destination(model: str) -> str:
    """Return where a PEF goes without being told: beside a file of a model, into the working folder else."""
    if is_factory(model):
        return f"{model.rpartition(':')[2].rpartition('.')[2]}.pef"
    if is_configuration(model):
        return f"{configuration_file(model).resolve().parent.name or 'model'}.pef"
    return str(Path(model).with_suffix(".pef"))


def _shapes(
    texts: list[str] | None, files: list[str] | None
) -> dict[str, tuple[int | str | None, ...]]:
    """Return the shapes of inputs that options and sample inputs state."""
    shapes = parse_input_shapes(texts)
    if files:
        from samba_onnx.cli.arrays import read_shapes

        for name, shape in read_shapes(files).items():
            stated = shapes.get(name, shape)
            if len(stated) != len(shape) or any(
                isinstance(size, int) and size != length
                for size, length in zip(stated, shape, strict=True)
            ):
                raise UsageError(
                    f"--sample-input: {name!r} has shape {list(shape)} there, and "
                    f"{','.join('?' if size is None else str(size) for size in stated)} in "
                    "--input-shape"
                )
            shapes[name] = shape
    return shapes


def _refuse_shapes(stated: bool) -> None:
    if stated:
        raise UsageError(
            "--dim, --input-shape, --sample-input, --keep-dynamic and --float16 are for ONNX models: "
            "sizes and types of a PyTorch model are those of its example inputs and weights"
        )


def _refuse_libraries(libraries: list[str] | None) -> None:
    if libraries:
        raise UsageError(
            "--custom-ops is for ONNX models: an export of torch's has no such operators"
        )


def _refuse_torch_options(check: bool, train: bool) -> None:
    if train:
        raise UsageError(
            "--train takes package.module:factory; an ONNX model is trained from Python, with "
            "samba.from_onnx"
        )
    if not check:
        raise UsageError(
            "--no-check is for PyTorch models; leave out the run of an ONNX model with --no-sample"
        )


def _spatial_batches(model: str, batches: int | None) -> int:
    """Return the mini-batches of a run, 0 in section mapping; refuse them for an ONNX model."""
    if batches is not None and not is_torch_model(model):
        raise UsageError(
            "--num-spatial-batches is for PyTorch models; an ONNX model is mapped spatially from "
            "Python, as the module that samba.from_onnx makes of it"
        )
    return batches or 0


def _give(
    report: Report,
    display: Display,
    limits: AcceptedLimits,
    command: str,
    written: str | None = None,
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
