"""``samba-port analyze``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from samba_onnx.cli.annotated_models import refuse_annotated, write_annotated
from samba_onnx.cli.constants import ConstantOption, parse_constants
from samba_onnx.cli.display import Display, refuse_overwriting
from samba_onnx.cli.fitting import (
    FitMultipleOption,
    FitOption,
    Sizing,
    fit_report,
    onnx_sizing,
    refuse_fit,
    shown,
    start,
)
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
    device_choices,
    legalisation_choices,
    refuse_constants,
    refuse_losses,
    refuse_stated_shapes,
    refuse_torch_options,
    refuse_translations,
    spatial_mini_batches,
    stated_shapes,
)
from samba_onnx.cli.options import (
    AnnotatedOption,
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
from samba_onnx.cli.supposing import WhatIfOption, show_supposed, supposed_target
from samba_onnx.cli.torch_models import analyze_torch, torch_sizing
from samba_onnx.cli.wrong_files import refuse_pef
from samba_onnx.errors import UsageError
from samba_onnx.facts.defaults import (
    DEFAULT_HOST,
    DEFAULT_LEGALISATION,
    DEFAULT_LEVEL,
    DEFAULT_PLACEMENT,
    DEFAULT_TARGET,
)
from samba_onnx.workflows.model_sources import is_torch_model

if TYPE_CHECKING:
    from samba_onnx.passes.targets import Target
    from samba_onnx.pef.manifest import Manifest


def analyze(
    model: PortableArgument,
    target: TargetOption = DEFAULT_TARGET,
    kernel_looping: KernelLoopingOption = False,
    level: LevelOption = DEFAULT_LEVEL,
    placement: PlacementOption = DEFAULT_PLACEMENT,
    host: HostOption = DEFAULT_HOST,
    legalise: LegaliseOption = DEFAULT_LEGALISATION,
    no_legalise: NoLegaliseOption = None,
    optimization_rules: RulesOption = None,
    use_o1_default_rules: DefaultRulesOption = False,
    dim: DimOption = None,
    input_shape: InputShapeOption = None,
    sample_input: SampleInputOption = None,
    keep_dynamic: KeepDynamicOption = False,
    constant: ConstantOption = None,
    float16: Float16Option = None,
    precision: PrecisionOption = None,
    graphamp_preset: PresetOption = None,
    stochastic_rounding: RoundingOption = None,
    train: TrainOption = False,
    translations: TranslationsOption = None,
    loss_index: LossOption = None,
    spatial_batches: SpatialBatchesOption = None,
    n_chips: ChipsOption = 1,
    tensor_parallel: TensorParallelOption = None,
    fail_on_fallback: FailOption = False,
    max_fallbacks: FallbacksOption = None,
    max_transfer_bytes: TransferOption = None,
    min_rdu_nodes: NodesShareOption = None,
    min_rdu_flops: FlopsShareOption = None,
    baseline: BaselineOption = None,
    fit: FitOption = None,
    fit_multiple: FitMultipleOption = 1,
    what_if: WhatIfOption = None,
    annotated: AnnotatedOption = None,
    json: JsonOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> int:
    """Report what would run where; no weight is read.

    Examples:
      samba-port analyze model.onnx --target sn10 --dim batch=8 --dim seq=128
      samba-port analyze model.onnx --json - --max-transfer-bytes 2MB
      samba-port analyze model.onnx --what-if support=TopK --what-if link.latency=2us
      samba-port analyze model.onnx --min-rdu-nodes 95 --baseline released.json
      samba-port analyze my_project.models:resnet
      samba-port analyze Llama-3-70B/config.json --n-chips 8
      samba-port analyze my_project.training:lenet --train --fit batch
      samba-port analyze Llama-3-70B/config.json --n-chips 8 --fit seq --fit-multiple 128
    """
    refuse_pef(model, "analyze")
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
    sizes |= {"float16": float16, "legalise": legalise, "no_legalise": no_legalise or ()}
    sizes |= fusion_choices(level, optimization_rules, use_o1_default_rules)
    device = device_choices(target, level, placement, host)
    refuse_annotated(model, annotated)
    refuse_overwriting(
        model,
        *filter(None, [baseline, optimization_rules]),
        outputs={"--json": json, "--annotated": annotated},
    )
    refuse_losses(loss_index, train)
    refuse_translations(model, translations)
    parallel = parallel_options(n_chips, tensor_parallel)
    refuse_fit(fit, sizes, supposes=bool(what_if), multiple=fit_multiple)
    if not is_torch_model(model):
        refuse_torch_options(train)
    supposed = supposed_target(target, what_if)
    if supposed is not None and limits.stated:
        raise UsageError(
            "--what-if compares two plans and has no limits: state them without it, or see samba-port diff"
        )
    display = Display(json, quiet, verbose)

    from samba_onnx.report import Report

    training: dict[str, Any] = {
        "spatial_batches": batches,
        "train": train,
        "loss_indices": loss_index,
    }
    training |= {"translations": translations}
    training |= {"stochastic_rounding": chosen_roundings(stochastic_rounding, train)}
    with Activity(quiet) as activity:

        def plan(target: str | Target) -> Manifest:
            chosen = device | {"target": target, "parallel": parallel}
            return _planned(model, chosen, sizes, training, activity)

        if fit:
            begin, chosen = start(plan, target), {**device, "parallel": parallel}
            asked = _sizings(model, fit, begin.manifest, chosen, sizes, training, activity)
            searches = [fit_report(one, begin, fit_multiple, parallel, activity) for one in asked]
            reports = [shown(begin, searches)]
        else:
            targets = (target,) if supposed is None else (target, supposed)
            reports = [Report.from_manifest(plan(each)) for each in targets]
        if annotated is not None:
            write_annotated(model, annotated, activity, **device, **sizes)
    if supposed is not None:
        return show_supposed(reports, what_if or (), display)
    return give_report(reports[0], display, limits, "analyze")


def _planned(
    model: str,
    device: dict[str, Any],
    sizes: dict[str, Any],
    program: dict[str, Any],
    activity: Activity,
) -> Manifest:
    """Plan a model of either kind; what is said of the program is for those of torch."""
    if not is_torch_model(model):
        from samba_onnx.workflows.compiler import analyze as analyze_model

        return analyze_model(model, **device, **sizes, progress=activity.step)
    refuse_stated_shapes(
        any(sizes[name] for name in ("dims", "input_shapes", "keep_dynamic", "float16"))
    )
    refuse_constants(sizes["constants"])
    return analyze_torch(model, activity.step, **device, **_torch_program(sizes, program))


def _torch_program(sizes: dict[str, Any], program: dict[str, Any]) -> dict[str, Any]:
    """Return what is said of the program of a torch model, with rules of legalisation and fusion."""
    rules = legalisation_choices(sizes["legalise"], sizes["no_legalise"])
    chosen = {"legalisation": rules, "fusion": torch_fusion(sizes), "precision": sizes["precision"]}
    return program | chosen


def _sizings(
    model: str,
    texts: Sequence[str],
    manifest: Manifest,
    device: dict[str, Any],
    sizes: dict[str, Any],
    program: dict[str, Any],
    activity: Activity,
) -> list[Sizing]:
    """Return how the model is planned at sizes of each dimension that is asked for; all are told before any is."""
    if is_torch_model(model):
        whole = _torch_program(sizes, program)
        sizing = torch_sizing(model, activity.step, **device, **whole)
        return [sizing(text) for text in texts]
    # The search says which size is planned; the steps of each planning would hide that.
    still = Activity(quiet=True)

    def plan(options: dict[str, Any]) -> Manifest:
        return _planned(model, device, options, program, still)

    return [onnx_sizing(text, manifest, sizes, plan) for text in texts]
