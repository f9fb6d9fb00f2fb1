"""``samba-port convert``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from samba_onnx.cli.annotated_models import refuse_annotated, write_annotated
from samba_onnx.cli.checked_passes import CheckPassesOption, writing_the_guilty_part
from samba_onnx.cli.constants import ConstantOption, parse_constants
from samba_onnx.cli.display import Display, refuse_overwriting
from samba_onnx.cli.fitting import AbsentFitOption, refuse_fit_of_a_pef
from samba_onnx.cli.fusion_options import (
    DefaultRulesOption,
    RulesOption,
    fusion_choices,
    torch_fusion,
)
from samba_onnx.cli.limits import (
    BaselineOption,
    FailOption,
    FallbacksOption,
    FlopsShareOption,
    NodesShareOption,
    TransferOption,
    accepted_limits,
    give_report,
)
from samba_onnx.cli.model_choices import (
    chosen_target,
    default_destination,
    device_choices,
    legalisation_choices,
    refuse_constants,
    refuse_libraries,
    refuse_losses,
    refuse_no_check,
    refuse_stated_shapes,
    refuse_torch_options,
    refuse_translations,
    spatial_mini_batches,
    stated_shapes,
)
from samba_onnx.cli.options import (
    TORCH,
    AnnotatedOption,
    CustomOpsOption,
    DimOption,
    Float16Option,
    HostOption,
    InputShapeOption,
    JsonOption,
    KeepDynamicOption,
    KernelLoopingOption,
    LegaliseOption,
    LevelOption,
    LossOption,
    NoLegaliseOption,
    PlacementOption,
    PortableArgument,
    QuietOption,
    SampleInputOption,
    SeedOption,
    SpatialBatchesOption,
    TargetOption,
    TrainOption,
    TranslationsOption,
    VerboseOption,
    parse_sizes,
)
from samba_onnx.cli.parallel_options import ChipsOption, TensorParallelOption, parallel_options
from samba_onnx.cli.precision_options import (
    PrecisionOption,
    PresetOption,
    RoundingOption,
    chosen_precision,
    chosen_roundings,
)
from samba_onnx.cli.progress import Activity
from samba_onnx.cli.torch_models import convert_torch
from samba_onnx.cli.wrong_files import refuse_pef
from samba_onnx.facts.defaults import (
    DEFAULT_HOST,
    DEFAULT_LEGALISATION,
    DEFAULT_LEVEL,
    DEFAULT_PLACEMENT,
    DEFAULT_TARGET,
)
from samba_onnx.workflows.model_sources import is_torch_model


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
    target: TargetOption = DEFAULT_TARGET,
    kernel_looping: KernelLoopingOption = False,
    level: LevelOption = DEFAULT_LEVEL,
    placement: PlacementOption = DEFAULT_PLACEMENT,
    host: HostOption = DEFAULT_HOST,
    legalise: LegaliseOption = DEFAULT_LEGALISATION,
    no_legalise: NoLegaliseOption = None,
    optimization_rules: RulesOption = None,
    use_o1_default_rules: DefaultRulesOption = False,
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
    constant: ConstantOption = None,
    float16: Float16Option = None,
    precision: PrecisionOption = None,
    graphamp_preset: PresetOption = None,
    stochastic_rounding: RoundingOption = None,
    fail_on_fallback: FailOption = False,
    max_fallbacks: FallbacksOption = None,
    max_transfer_bytes: TransferOption = None,
    min_rdu_nodes: NodesShareOption = None,
    min_rdu_flops: FlopsShareOption = None,
    baseline: BaselineOption = None,
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
    train: TrainOption = False,
    translations: TranslationsOption = None,
    loss_index: LossOption = None,
    spatial_batches: SpatialBatchesOption = None,
    n_chips: ChipsOption = 1,
    tensor_parallel: TensorParallelOption = None,
    fit: AbsentFitOption = None,
    annotated: AnnotatedOption = None,
    json: JsonOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> int:
    """Convert a model into a PEF, and report what runs where.

    Dynamic dimensions of which no option states a size become 1, and a note says which. A PyTorch model is put into evaluation mode, and its sizes are those of its example inputs; the sample is what eager torch computes from them. Whatever a factory does, it does with the rights
    of whoever runs this command; a .pt2 file runs nothing. The largest batch or sequence that fits into memory is found by samba-port analyze --fit.

    Examples:
      samba-port convert model.onnx
      samba-port convert model.onnx -o out/m.pef --target sn30 --dim batch=8
      samba-port convert model.onnx --dim batch=1,8,32
      samba-port convert model.onnx --json report.json --fail-on-fallback
      samba-port convert model.onnx --min-rdu-flops 99 --baseline released.json
      samba-port convert model.onnx --annotated where.onnx --check-passes
      samba-port convert model.onnx --level o1 --optimization-rules rules.yaml
      samba-port convert my_project.models:resnet -o resnet.pef
      samba-port convert exported.pt2
      samba-port convert my_project.training:lenet --train
      samba-port convert model.onnx --n-chips 4 --tensor-parallel weight

    A limit that is exceeded gives exit status 1; the PEF is written all the same.
    """
    display = Display(json, quiet, verbose)
    refuse_fit_of_a_pef(fit)
    refuse_pef(model, "convert")
    limits = accepted_limits(
        fail_on_fallback, max_fallbacks, max_transfer_bytes, min_rdu_nodes, min_rdu_flops, baseline
    )
    target = chosen_target(target, kernel_looping)
    limits.refuse_other_target(target, level)
    batches = spatial_mini_batches(model, spatial_batches)
    dims, shapes = parse_sizes(dim), stated_shapes(input_shape, sample_input)
    sizes: dict[str, Any] = {"dims": dims, "input_shapes": shapes, "keep_dynamic": keep_dynamic}
    sizes["constants"] = parse_constants(constant)
    sizes["precision"] = chosen_precision(precision, graphamp_preset)
    roundings = chosen_roundings(stochastic_rounding, train)
    sizes |= {"float16": float16, "legalise": legalise, "no_legalise": no_legalise or ()}
    sizes |= fusion_choices(level, optimization_rules, use_o1_default_rules)
    refuse_losses(loss_index, train)
    parallel = parallel_options(n_chips, tensor_parallel)
    refuse_translations(model, translations)
    destination = output or default_destination(model)
    device = device_choices(target, level, placement, host)
    refuse_annotated(model, annotated)
    outputs = {"--output": destination, "the log": f"{destination}.log", "--json": json}
    refuse_overwriting(
        model,
        *filter(None, [baseline, optimization_rules]),
        outputs={**outputs, "--annotated": annotated},
    )

    from samba_onnx.report import Report

    with Activity(quiet) as activity, writing_the_guilty_part(destination):
        if is_torch_model(model):
            refuse_stated_shapes(bool(dims or shapes or keep_dynamic or float16))
            refuse_constants(constant)
            refuse_libraries(custom_ops)
            opened = convert_torch(
                model,
                destination,
                activity.step,
                **device,
                legalisation=legalisation_choices(legalise, no_legalise),
                fusion=torch_fusion(sizes),
                sample=sample is not False,
                check=check,
                train=train,
                translations=translations,
                loss_indices=loss_index,
                spatial_batches=batches,
                check_passes=check_passes,
                parallel=parallel,
                precision=sizes["precision"],
                stochastic_rounding=roundings,
            )
        else:
            refuse_torch_options(train)
            refuse_no_check(check)
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
                parallel=parallel,
                progress=activity.step,
            )
        with opened as pef:
            report = Report.from_manifest(pef.manifest)
        if annotated is not None:
            write_annotated(model, annotated, activity, **device, **sizes)
    return give_report(report, display, limits, "convert", written=destination)
