"""``samba-port convert``."""

from __future__ import annotations

from typing import Annotated

import typer

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
    default_destination,
    refuse_annotated,
    refuse_other_options,
    refuse_pef,
    target_text,
)
from samba_onnx.compiling.model_sources import is_torch_model
from samba_onnx.compiling.options import CompileOptions
from samba_onnx.compiling.torch_loading import convert_torch
from samba_onnx.errors import UsageError
from samba_onnx.report.github import refuse_elsewhere
from samba_onnx.tools.convert.checked_passes import writing_the_guilty_part

AbsentFitOption = Annotated[list[str] | None, typer.Option("--fit", hidden=True)]
"""What convert lacks, so that it can say where it is."""


@takes_options()
def convert(
    model: PortableArgument,
    options: CompileOptions,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="PEF to write; MODEL with suffix .pef by default.",
        ),
    ] = None,
    fail_on_fallback: FailOption = False,
    max_fallbacks: FallbacksOption = None,
    max_transfer_bytes: TransferOption = None,
    min_rdu_nodes: NodesShareOption = None,
    min_rdu_flops: FlopsShareOption = None,
    baseline: BaselineOption = None,
    allow_different: AllowDifferentOption = False,
    fit: AbsentFitOption = None,
    annotated: AnnotatedOption = None,
    json: JsonOption = None,
    markdown: MarkdownOption = None,
    html: HtmlOption = None,
    github: GithubOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> int:
    """Convert a model into a PEF, and report what runs where.

    Dynamic dimensions of which no option states a size get one that is assumed, and the first line says which: a length for a sequence, 1 for any other. A PyTorch model is put into evaluation mode, and its sizes are those of its example inputs; the sample is what eager torch computes from them. Whatever a factory does, it does with the rights
    of whoever runs this command; a .pt2 file runs nothing. The largest batch or sequence that fits into memory is found by samba-port analyze --fit.

    Examples:
      samba-port convert model.onnx
      samba-port convert model.onnx -o out/m.pef --target sn30 --dim batch=8
      samba-port convert model.onnx --dim batch=1,8,32
      samba-port convert model.onnx --html report.html --json report.json --fail-on-fallback
      samba-port convert model.onnx --min-rdu-flops 99 --baseline released.json
      samba-port convert model.onnx --annotated where.onnx --check-passes
      samba-port convert model.onnx --level o1 --optimization-rules rules.yaml
      samba-port convert my_project.models:resnet -o resnet.pef
      samba-port convert exported.pt2
      samba-port convert my_project.training:lenet --train
      samba-port convert model.onnx --n-chips 4 --tensor-parallel weight

    A limit that is exceeded gives exit status 1; the PEF is written all the same.
    """
    display = Display(json, quiet, verbose, markdown, html)
    if fit:
        raise UsageError(
            f"convert makes a PEF of the sizes that the model has or --dim states: samba-port analyze MODEL "
            f"--fit {fit[0]} finds the largest that fits"
        )
    refuse_pef(model, "convert")
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
    limits.refuse_other_target(target_text(options), options.sections.level)
    refuse_other_options(model, options)
    destination = output or default_destination(model)
    refuse_annotated(model, annotated)
    refuse_overwriting(
        model,
        baseline,
        options.sections.optimization_rules,
        outputs={
            "--output": destination,
            "the log": f"{destination}.log",
            "--json": json,
            "--markdown": markdown,
            "--html": html,
            "--annotated": annotated,
        },
    )

    from samba_onnx.report import Report

    with Activity(quiet) as activity, writing_the_guilty_part(destination):
        if is_torch_model(model):
            opened = convert_torch(model, destination, options, activity.step)
        else:
            from samba_onnx.compiling.compiler import convert as compile_model

            opened = compile_model(model, destination, options=options, progress=activity.step)
        # Of the file that was written, so that inspect says the same of it later.
        with opened as pef:
            report = Report.from_manifest(pef.manifest, program=display.shows_program)
        if annotated is not None:
            from samba_onnx.compiling.annotating import annotate

            activity.step("annotate")
            annotate(model, annotated, options, activity.step)
    return give_report(report, display, limits, "convert", written=destination, github=github)
