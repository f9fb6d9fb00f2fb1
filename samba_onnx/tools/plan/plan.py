"""``samba-port plan``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from samba_onnx.cli.display import Display, refuse_overwriting
from samba_onnx.cli.failures import EXIT_YES
from samba_onnx.cli.options import JsonOption, PefArgument, QuietOption, VerboseOption
from samba_onnx.cli.progress import Activity
from samba_onnx.compiling.model_choices import refuse_model
from samba_onnx.errors import UsageError

if TYPE_CHECKING:
    from samba_onnx.tools.plan.plan_report import ScalingReport

_MOST: Final = 1_000_000
"""More replicas than there are RDUs."""

ReplicasOption = Annotated[
    str,
    typer.Option("--replicas", metavar="N[,N]...", help="Numbers of replicas, each with an RDU."),
]
ReduceOnRduOption = Annotated[
    bool,
    typer.Option(
        "--reduce-on-rdu/--reduce-on-host", help="Who combines gradients: RDUs, or their hosts."
    ),
]
GraphOption = Annotated[
    str | None,
    typer.Option("--graph", metavar="NAME", help="The graph that trains, where a PEF has several."),
]


def plan(
    pef: PefArgument,
    replicas: ReplicasOption = "1,2,4,8,64,1024",
    reduce_on_rdu: ReduceOnRduOption = True,
    graph: GraphOption = None,
    json: JsonOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> int:
    """Model how a training step scales over several RDUs.

    Each replica keeps the batch that the PEF was compiled for. For every mode of samba.session.run's
    data_parallel_mode it says what a step takes, what the reduction of gradients takes, how long sections
    wait for it, and the efficiency. Nothing runs; the figures that it rests on are listed.

    Examples:
      samba-port plan gpt2_training.pef
      samba-port plan gpt2_training.pef --replicas 1,16,256 --reduce-on-host
      samba-port plan gpt2_training.pef --json - | jq '.steps[] | [.replicas, .mode, .efficiency]'
    """
    refuse_model(pef, "plan")
    refuse_overwriting(pef, outputs={"--json": json})
    counts = _counts(replicas)

    from samba_onnx.pef import load_pef
    from samba_onnx.tools.plan.plan_report import scaling_text
    from samba_onnx.tools.plan.scaled_steps import scaling_report

    with Activity(quiet) as activity, load_pef(pef) as opened:
        activity.step("model the step")
        name = Path(pef).name
        report: ScalingReport = scaling_report(
            opened.manifest, name, counts, on_rdu=reduce_on_rdu, graph=graph
        )
    Display(json, quiet, verbose).show(
        report.headline, lambda rows: scaling_text(report, rows), report
    )
    return EXIT_YES


def _counts(text: str) -> tuple[int, ...]:
    """Return the numbers of an option, ascending, each once.

    Raises:
        UsageError: It is no list of them.
    """
    parts = [part.strip() for part in text.split(",")]
    are_numbers = all(part.isascii() and part.isdigit() for part in parts)
    # What is no number becomes 0, which is refused below in the same words.
    numbers = sorted({int(part) for part in parts}) if are_numbers else [0]
    if numbers[0] < 1 or numbers[-1] > _MOST:
        raise UsageError(
            f"--replicas is {text!r}; give numbers of replicas from 1 to {_MOST:,}, with commas between "
            "them, as 1,2,4,8"
        )
    return tuple(numbers)
