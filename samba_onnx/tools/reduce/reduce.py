"""``samba-port reduce``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from samba_onnx.cli.display import Display, refuse_overwriting
from samba_onnx.cli.failures import EXIT_NO, EXIT_YES
from samba_onnx.cli.options import JsonOption, QuietOption, SeedOption, ThreadsOption, VerboseOption
from samba_onnx.cli.progress import Activity
from samba_onnx.cli.stored_inputs import InputFileOption

if TYPE_CHECKING:
    from samba_onnx.tools.reduce.pef_reduction import PefReduction
    from samba_onnx.tools.reduce.reduce_report import ReductionReport

OwnTargetOption = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="TARGET",
        help="Device that parts are converted for, where the PEF's own is a TOML file.",
    ),
]
StemOption = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="STEM",
        help="Write STEM.onnx and STEM.npz; by default PEF with the suffix .failing in place of .pef.",
    ),
]


def reduce(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="The ONNX model that the PEF was made of.")
    ],
    pef: Annotated[str, typer.Argument(metavar="PEF", help="A PEF that computes something else.")],
    output: StemOption = None,
    input_file: InputFileOption = None,
    seed: SeedOption = 0,
    target: OwnTargetOption = None,
    threads: ThreadsOption = None,
    json: JsonOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> int:
    """Write the smallest part that a PEF gets wrong.

    The part is an ONNX model of its own, with inputs with which it shows the fault: what a report of the
    fault needs, and all that it needs. No single node can be left out of it.

    Examples:
      samba-port reduce model.onnx model.pef
      samba-port reduce model.onnx model.pef -o bug --input x=x.npy
      samba-port reduce model.onnx model.pef --json -

    Exit status 1 means that there is such a part; 0 that all values agree.
    """
    stem = output or str(Path(pef).with_suffix(".failing"))
    written = {"--output": f"{stem}.onnx", "the inputs": f"{stem}.npz"}
    refuse_overwriting(model, pef, outputs={**written, "--json": json})

    from samba_onnx.pef import load_pef
    from samba_onnx.runtime.input_files import all_inputs
    from samba_onnx.tools.reduce.pef_reduction import reduce_pef
    from samba_onnx.tools.reduce.reduce_report import reduction_text

    with Activity(quiet) as activity, load_pef(pef) as opened:
        reduced = reduce_pef(
            model,
            opened,
            inputs=all_inputs(opened, input_file),
            seed=seed,
            target=target,
            threads=threads,
            progress=activity.step,
        )
    report = _report(reduced, Path(pef).name, stem)
    Display(json, quiet, verbose).show(report.headline, lambda rows: reduction_text(report), report)
    return EXIT_YES if report.passed else EXIT_NO


def _report(reduced: PefReduction, pef: str, stem: str) -> ReductionReport:
    """Write the files, and put the answer together."""
    from samba_onnx.facts.domains import qualified
    from samba_onnx.report.units import count_text, printable
    from samba_onnx.tools.reduce.reduce_report import ReductionReport

    start, found, first = f"{printable(pef)}: ", reduced.reduction, reduced.comparison.first
    if found is None or first is None:
        count = count_text(len(reduced.comparison.values), "value")
        headline = f"{start}{count} compared, all within the tolerance: there is nothing to reduce"
        return ReductionReport(
            headline=headline,
            passed=True,
            first="",
            location="",
            converts_wrongly=False,
            nodes=0,
            model_nodes=0,
            operators={},
            max_relative_error=None,
            model="",
            inputs="",
            trials=0,
        )
    files = found.write(stem)
    operators = Counter(qualified(node.domain, node.op_type) for node in found.model.graph.node)
    # JSON has no infinite numbers.
    finite = [
        output.max_relative_error
        for output in found.outputs
        if output.max_relative_error < float("inf")
    ]
    return ReductionReport(
        headline=(
            f"{start}{found.nodes:,} of {count_text(found.of, 'node')} show the fault, which begins at "
            f"{printable(first.name)} of {first.operator}"
        ),
        passed=False,
        first=first.name,
        location=first.location,
        converts_wrongly=reduced.converts_wrongly,
        nodes=found.nodes,
        model_nodes=found.of,
        operators=dict(operators.most_common()),
        max_relative_error=max(finite, default=None),
        model=files[0],
        inputs=files[1],
        trials=found.trials,
    )
