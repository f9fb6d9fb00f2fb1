"""``samba-port run``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from samba_onnx.cli.display import Display, refuse_overwriting, write_file
from samba_onnx.cli.failures import EXIT_YES
from samba_onnx.cli.options import (
    OUTPUT,
    SHAPES,
    JsonOption,
    PefArgument,
    QuietOption,
    ThreadsOption,
    VerboseOption,
    parse_dims,
)
from samba_onnx.cli.progress import Activity
from samba_onnx.errors import UsageError

if TYPE_CHECKING:
    from samba_onnx.report.run import RunReport
    from samba_onnx.runtime.device import Device
    from samba_onnx.runtime.inputs import InputSpec
    from samba_onnx.runtime.pef import Pef
    from samba_onnx.runtime.pef.manifest import Graph

PREPACK_FROM = 10
"""From so many iterations on, weights are copied into the layout that kernels like best: it costs
about as much as a few runs, and each run gains a fifth or more."""


def run(
    pef: PefArgument,
    input_file: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            "-i",
            metavar="NAME=FILE",
            help="Array for an input, from .npy, .npz or .json; a lone .npz gives every array in "
            "it by name; repeatable.",
        ),
    ] = None,
    random: Annotated[
        int | None,
        typer.Option(
            "--random",
            metavar="SEED",
            min=0,
            help="Random values for inputs without a file; the same seed gives the same values.",
        ),
    ] = None,
    dim: Annotated[
        list[str] | None,
        typer.Option(
            "--dim",
            metavar="NAME=SIZE",
            help="Size of a dynamic dimension of random inputs, 2 by default; repeatable.",
            rich_help_panel=SHAPES,
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the outputs: .npz, or .npy for a single one.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            "--ledger",
            metavar="FILE",
            help="Write every transfer between host and RDU as JSON.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    iterations: Annotated[
        int, typer.Option("--iterations", metavar="N", min=1, help="Run N times and measure.")
    ] = 1,
    threads: ThreadsOption = None,
    time_sections: Annotated[
        bool,
        typer.Option(
            "--time-sections",
            help="Run every section on its own and measure it; slower in all.",
        ),
    ] = False,
    json: JsonOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> int:
    """Run a PEF on the emulator, with every transfer accounted for.

    Examples:
      samba-port run model.pef --random 0
      samba-port run model.pef --input x=x.npy --output y.npz --ledger ledger.json
      samba-port run model.pef --input inputs.npz --iterations 100 --threads 2
    """
    inputs = input_file or []
    sources = (pef, *(text.rpartition("=")[2] for text in inputs))
    refuse_overwriting(*sources, outputs={"--output": output, "--ledger": ledger, "--json": json})

    from samba_onnx.cli.arrays import check_output_path, write_outputs
    from samba_onnx.report.documents import to_json
    from samba_onnx.report.run_text import run_text
    from samba_onnx.runtime.device import Device
    from samba_onnx.runtime.pef import load_pef

    begin = time.perf_counter()
    with Activity(quiet) as activity, load_pef(pef) as opened:
        graph = _only_graph(opened)
        if output is not None:
            check_output_path(output, graph.outputs)
        fed = _inputs(opened, graph, inputs, random, parse_dims(dim))
        activity.step("prepare the emulator")
        prepack = iterations >= PREPACK_FROM
        with Device(
            opened, threads=threads, prepack=prepack, time_sections=time_sections
        ) as device:
            load_seconds = time.perf_counter() - begin
            activity.step("run")
            outputs, seconds = _iterate(device, fed, iterations, activity)
        report = _report(opened, graph, device, outputs, load_seconds, seconds)
    if output is not None:
        write_outputs(output, outputs)
    if ledger is not None:
        write_file(ledger, to_json(device.ledger.to_json()).encode("ascii"))
    display = Display(json, quiet, verbose)
    display.show(report.headline, lambda rows: run_text(report, rows), report)
    return EXIT_YES


def _only_graph(pef: Pef) -> Graph:
    graphs = pef.manifest.graphs
    if len(graphs) != 1:
        names = ", ".join(graph.name for graph in graphs) or "none"
        raise UsageError(f"{pef.path} has {len(graphs)} graphs ({names}); run takes a PEF with one")
    return graphs[0]


def _inputs(
    pef: Pef,
    graph: Graph,
    texts: Sequence[str],
    seed: int | None,
    dims: Mapping[str, int],
) -> dict[str, Any]:
    """Return a value for every input: from files, then random ones if a seed is given."""
    from samba_onnx.cli.arrays import read_inputs
    from samba_onnx.runtime.inputs import InputSpec

    specs = {name: InputSpec(pef.symbol(name)) for name in graph.inputs}
    given = read_inputs(texts, specs)
    missing = {name: spec for name, spec in specs.items() if name not in given}
    if seed is None:
        persistent = {argin.name for argin in pef.manifest.argins}
        needed = [f"{name} {spec}" for name, spec in missing.items() if name not in persistent]
        if needed:
            raise UsageError(
                f"no value for {'input' if len(needed) == 1 else 'inputs'} {'; '.join(needed)}: "
                "give --input NAME=FILE, or --random SEED"
            )
        return given
    return given | _random(missing, given, specs, seed, dims)


def _random(
    missing: Mapping[str, InputSpec],
    given: Mapping[str, Any],
    specs: Mapping[str, InputSpec],
    seed: int,
    dims: Mapping[str, int],
) -> dict[str, Any]:
    """Make random inputs whose dynamic dimensions agree with the given arrays."""
    from samba_onnx.safety.sample_inputs import random_inputs

    known = dict(dims)
    for name, value in given.items():
        for size, actual in zip(specs[name].shape or (), getattr(value, "shape", ()), strict=False):
            if isinstance(size, str):
                known.setdefault(size, actual)
    shapes: dict[str, tuple[int | str, tuple[int, ...]]] = {}
    for name, spec in missing.items():
        if spec.shape is None:
            raise UsageError(f"input {name} {spec} has no known rank: give it with --input")
        sizes = (size if isinstance(size, int) else known.get(size or "", 2) for size in spec.shape)
        shapes[name] = (spec.type, tuple(sizes))
    return dict(random_inputs(shapes, seed))


def _iterate(
    device: Device, inputs: Mapping[str, Any], iterations: int, activity: Activity
) -> tuple[dict[str, Any], list[float]]:
    """Run, and measure every run."""
    seconds = []
    outputs: dict[str, Any] = {}
    for index in range(iterations):
        begin = time.perf_counter()
        outputs = device.run(inputs)
        seconds.append(time.perf_counter() - begin)
        activity.count(index + 1, iterations)
    return outputs, seconds


def _report(
    pef: Pef,
    graph: Graph,
    device: Device,
    outputs: Mapping[str, Any],
    load_seconds: float,
    seconds: Sequence[float],
) -> RunReport:
    """Put the answer together."""
    from samba_onnx.report.run import (
        CallTimeReport,
        RunReport,
        output_reports,
        run_headline,
        total_transfers,
    )

    per_run = total_transfers(device.ledger.run(-1))
    mean, fastest = sum(seconds) / len(seconds), min(seconds)
    name = Path(pef.path).name
    return RunReport(
        headline=run_headline(name, pef.manifest.target.name, len(seconds), mean, per_run),
        pef=name,
        graph=graph.name,
        iterations=len(seconds),
        outputs=tuple(
            report for key, value in outputs.items() for report in output_reports(key, value)
        ),
        transfers_per_run=per_run,
        transfers_at_load=total_transfers(
            copy for copy in device.ledger.transfers if copy.call is None
        ),
        load_seconds=load_seconds,
        mean_seconds=mean,
        fastest_seconds=fastest,
        calls=tuple(
            CallTimeReport(
                call=timed.call,
                stage=timed.stage,
                name=timed.name,
                home="rdu" if timed.on_rdu else "cpu",
                executions=timed.executions,
                measured_mean_seconds=timed.measured_seconds / timed.executions,
                measured_fastest_seconds=timed.fastest_seconds,
                modelled_seconds=timed.modelled_seconds,
            )
            for timed in device.profile.calls(graph.name)
        ),
    )
