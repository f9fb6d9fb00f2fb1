"""``samba-port analyze``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from samba_onnx.cli.compile_options import takes_options
from samba_onnx.cli.display import Display, refuse_overwriting
from samba_onnx.cli.limits import (
    AllowDifferentOption,
    BaselineOption,
    FailOption,
    FallbacksOption,
    FlopsShareOption,
    NodesShareOption,
    TransferOption,
    accepted_limits,
    give_report,
)
from samba_onnx.cli.options import (
    AnnotatedOption,
    GithubOption,
    HtmlOption,
    JsonOption,
    MarkdownOption,
    PortableArgument,
    QuietOption,
    VerboseOption,
)
from samba_onnx.cli.progress import Activity
from samba_onnx.compiling.model_choices import (
    refuse_annotated,
    refuse_other_options,
    refuse_pef,
    target_text,
)
from samba_onnx.compiling.model_sources import is_torch_model
from samba_onnx.compiling.options import CompileOptions
from samba_onnx.compiling.torch_loading import analyze_torch, torch_sizing
from samba_onnx.errors import UsageError
from samba_onnx.report.github import refuse_elsewhere
from samba_onnx.tools.analyze.fitting import (
    FitMultipleOption,
    FitOption,
    fit_report,
    onnx_sizing,
    refuse_fit,
    shown,
    start,
)
from samba_onnx.tools.analyze.supposing import WhatIfOption, show_supposed, supposed_target
from samba_onnx.tools.analyze.viewing import (
    ModelExplorerOption,
    SarifOption,
    TraceOption,
    times_file,
    write_for_viewers,
)

if TYPE_CHECKING:
    from samba_onnx.compiling.size_dimensions import Sizing
    from samba_onnx.passes.targets import Target
    from samba_onnx.pef.manifest import Manifest


@takes_options(writes=False)
def analyze(
    model: PortableArgument,
    options: CompileOptions,
    fail_on_fallback: FailOption = False,
    max_fallbacks: FallbacksOption = None,
    max_transfer_bytes: TransferOption = None,
    min_rdu_nodes: NodesShareOption = None,
    min_rdu_flops: FlopsShareOption = None,
    baseline: BaselineOption = None,
    allow_different: AllowDifferentOption = False,
    fit: FitOption = None,
    fit_multiple: FitMultipleOption = 1,
    what_if: WhatIfOption = None,
    annotated: AnnotatedOption = None,
    model_explorer: ModelExplorerOption = None,
    trace: TraceOption = None,
    sarif: SarifOption = None,
    json: JsonOption = None,
    markdown: MarkdownOption = None,
    html: HtmlOption = None,
    github: GithubOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> int:
    """Report what would run where; no weight is read.

    Examples:
      samba-port analyze model.onnx --target sn10 --dim batch=8 --dim seq=128
      samba-port analyze model.onnx --json - --max-transfer-bytes 2MB
      samba-port analyze model.onnx --html report.html --model-explorer graph.json --trace run.pftrace
      samba-port analyze model.onnx --what-if support=TopK --what-if link.latency=2us
      samba-port analyze model.onnx --min-rdu-nodes 95 --baseline released.json
      samba-port analyze my_project.models:resnet
      samba-port analyze Llama-3-70B/config.json --n-chips 8
      samba-port analyze my_project.training:lenet --train --fit batch
      samba-port analyze Llama-3-70B/config.json --n-chips 8 --fit seq --fit-multiple 128
    """
    refuse_pef(model, "analyze")
    refuse_elsewhere(github)
    limits = accepted_limits(
        fail_on_fallback,
        max_fallbacks,
        max_transfer_bytes,
        min_rdu_nodes,
        min_rdu_flops,
        baseline=baseline,
        allow_different=allow_different,
    )
    target = target_text(options)
    # All refusals stand before anything heavy is imported: a wrong flag is answered at once.
    limits.refuse_other_target(target, options.sections.level)
    refuse_annotated(model, annotated)
    refuse_overwriting(
        model,
        baseline,
        options.sections.optimization_rules,
        outputs={
            "--json": json,
            "--markdown": markdown,
            "--html": html,
            "--annotated": annotated,
            "--model-explorer": model_explorer,
            "the times of its nodes": times_file(model_explorer),
            "--trace": trace,
            "--sarif": sarif,
        },
    )
    refuse_other_options(model, options, writes=False)
    refuse_fit(fit, options.sizes, supposes=bool(what_if), multiple=fit_multiple)
    # A supposition changes the target, and limits would not say which of the two plans they are for.
    supposed = supposed_target(target, what_if)
    if supposed is not None and limits.stated:
        raise UsageError(
            "--what-if compares two plans and has no limits: state them without it, or see samba-port diff"
        )
    display = Display(json, quiet, verbose, markdown, html)
    if supposed is not None and (model_explorer or trace or sarif):
        raise UsageError(
            "--what-if compares two plans: --model-explorer, --trace and --sarif are of one"
        )

    from samba_onnx.report import Report

    with Activity(quiet) as activity:

        def plan(target: str | Target) -> Manifest:
            # Its name says already whether it loops.
            chosen = options.replace(target=target, kernel_looping=False)
            return _planned(model, chosen, activity)

        if fit:
            begin = start(plan, target)
            asked = _sizings(model, fit, begin.manifest, options, activity)
            searches = [
                fit_report(one, begin, fit_multiple, options.chips, activity) for one in asked
            ]
            reports = [shown(begin, searches)]
        else:
            targets = (target,) if supposed is None else (target, supposed)
            # The document of what differs between two plans has no nodes; its page has.
            listed = display.shows_program or bool(model_explorer or trace)
            shows = html is not None if supposed is not None else listed
            reports = [Report.from_manifest(plan(each), program=shows) for each in targets]
        if annotated is not None:
            from samba_onnx.compiling.annotating import annotate

            activity.step("annotate")
            annotate(model, annotated, options, activity.step)
    if supposed is not None:
        return show_supposed(reports, what_if or (), display)
    write_for_viewers(reports[0], model_explorer, trace, sarif)
    return give_report(reports[0], display, limits, "analyze", github=github)


def _planned(model: str, options: CompileOptions, activity: Activity) -> Manifest:
    """Plan a model of either kind."""
    if is_torch_model(model):
        return analyze_torch(model, options, activity.step)
    from samba_onnx.compiling.compiler import analyze as analyze_model

    return analyze_model(model, options=options, progress=activity.step)


def _sizings(
    model: str,
    texts: Sequence[str],
    manifest: Manifest,
    options: CompileOptions,
    activity: Activity,
) -> list[Sizing]:
    """Return how the model is planned at sizes of each dimension that is asked for; all are told before any is."""
    if is_torch_model(model):
        sizing = torch_sizing(model, options, activity.step)
        return [sizing(text) for text in texts]
    # The search says which size is planned; the steps of each planning would hide that.
    still = Activity(quiet=True)

    def plan(options: CompileOptions) -> Manifest:
        return _planned(model, options, still)

    return [onnx_sizing(text, manifest, options, plan) for text in texts]
