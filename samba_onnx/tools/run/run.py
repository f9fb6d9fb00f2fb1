"""``samba-port run``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from samba_onnx.cli.display import Display, refuse_overwriting, write_file
from samba_onnx.cli.failures import EXIT_YES
from samba_onnx.cli.options import (
    OUTPUT,
    SECTIONS,
    SHAPES,
    CustomOpsOption,
    EngineOption,
    HtmlOption,
    JsonOption,
    PefArgument,
    QuietOption,
    ThreadsOption,
    VerboseOption,
)
from samba_onnx.cli.progress import Activity
from samba_onnx.compiling.model_choices import refuse_model
from samba_onnx.compiling.texts import read_dims
from samba_onnx.errors import UsageError
from samba_onnx.facts.defaults import DEFAULT_ENGINE
from samba_onnx.tools.run.run_trace import TraceOption, write_trace
from samba_onnx.tools.run.section_limits import SectionLimits, parse_sections

if TYPE_CHECKING:
    from samba_onnx.pef import Pef
    from samba_onnx.pef.manifest import Fallback, Graph, Manifest, Section
    from samba_onnx.runtime.device import Device
    from samba_onnx.runtime.inputs import InputSpec

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
            help="Size of a dynamic dimension of random inputs, 2 by default; or the size whose graph is "
            "to run, where there are several; repeatable.",
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
    weights: Annotated[
        str | None,
        typer.Option(
            "--weights",
            metavar="FILE",
            help="state_dict of the module, for a PEF of samba.session.compile: .safetensors, or a "
            "file of torch.save.",
        ),
    ] = None,
    section_types: Annotated[
        list[str] | None,
        typer.Option(
            "--section-types",
            metavar="TYPES",
            help="Execute only sections of these types, as FWD,BCKWD in any case; repeatable.",
            rich_help_panel=SECTIONS,
        ),
    ] = None,
    section_ids: Annotated[
        list[str] | None,
        typer.Option(
            "--section-ids",
            metavar="IDS",
            help="Execute only sections and fallbacks with these ids, as 0,1; repeatable.",
            rich_help_panel=SECTIONS,
        ),
    ] = None,
    iterations: Annotated[
        int,
        typer.Option(
            "--iterations", "--repeat", metavar="N", min=1, help="Run N times and measure."
        ),
    ] = 1,
    threads: ThreadsOption = None,
    engine: EngineOption = DEFAULT_ENGINE,
    custom_ops: CustomOpsOption = None,
    time_sections: Annotated[
        bool,
        typer.Option(
            "--time-sections",
            help="Run every section on its own; show its time measured on this CPU and modelled on "
            "the RDU, apart. Slower in all.",
        ),
    ] = False,
    trace: TraceOption = None,
    json: JsonOption = None,
    html: HtmlOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> int:
    """Run a PEF on the emulator, and count every transfer.

    Examples:
      samba-port run model.pef --random 0
      samba-port run model.pef --input x=x.npy --output y.npz --ledger ledger.json
      samba-port run model.pef --input inputs.npz --iterations 100 --threads 2
      samba-port run model.pef --random 0 --engine reference --html run.html
      samba-port run model.pef --random 0 --time-sections --trace run.pftrace
      samba-port run training.pef --random 0 --weights model.safetensors --section-types fwd,bckwd
    """
    inputs = input_file or []
    sources = (pef, *(text.rpartition("=")[2] for text in inputs), *([weights] if weights else ()))
    limits = parse_sections(section_types, section_ids)
    refuse_model(pef, "run")
    refuse_overwriting(
        *sources,
        outputs={
            "--output": output,
            "--ledger": ledger,
            "--trace": trace,
            "--json": json,
            "--html": html,
        },
    )
    display = Display(json, quiet, verbose, html=html)

    from samba_onnx.comparing.residents import read_residents, set_gradients
    from samba_onnx.pef import load_pef
    from samba_onnx.report.documents import to_json
    from samba_onnx.runtime.array_files import check_output_path, write_outputs
    from samba_onnx.runtime.parallel_device import open_device
    from samba_onnx.tools.run.run_page import run_page
    from samba_onnx.tools.run.run_report import run_report
    from samba_onnx.tools.run.run_text import run_text

    begin = time.perf_counter()
    with Activity(quiet) as activity, load_pef(pef) as opened:
        sizes = read_dims(dim)
        graph = _graph(opened, inputs, sizes)
        chosen = executed_stages(opened.manifest, graph, limits)
        if output is not None:
            written = {name for stage in chosen for name in stage.outputs}
            check_output_path(
                output, [graph.model_name(name) for name in graph.outputs if name in written]
            )
        values = read_residents(opened, weights)
        fed = _inputs(opened, graph, _read_by(graph, chosen), inputs, random, sizes)
        activity.step("prepare the emulator")
        prepack = iterations >= PREPACK_FROM
        with open_device(
            opened,
            engine=engine,
            threads=threads,
            prepack=prepack,
            time_sections=time_sections,
            custom_ops=custom_ops or (),
        ) as device:
            device.load(values)
            set_gradients(device, opened.manifest, chosen)
            load_seconds = time.perf_counter() - begin
            activity.step("run")
            outputs, seconds = _iterate(device, graph, fed, iterations, limits, activity)
        report = run_report(
            opened, graph, chosen, device, outputs, seconds=seconds, load_seconds=load_seconds
        )
        # While the PEF is open: the page shows its nodes.
        page = "" if html is None else run_page(report, opened.manifest)
        if trace is not None:
            write_trace(report, opened.manifest, trace)
    if output is not None:
        write_outputs(output, outputs)
    if ledger is not None:
        write_file(ledger, to_json(device.ledger.to_json()).encode("ascii"))
    display.show(report.headline, lambda rows: run_text(report, rows), report, lambda: page)
    return EXIT_YES


def _graph(pef: Pef, texts: Sequence[str], dims: Mapping[str, int]) -> Graph:
    """Return the only graph, or of those for several sizes the one that inputs and sizes fit."""
    from samba_onnx.runtime.array_files import read_inputs
    from samba_onnx.runtime.sized_graphs import SizedGraphs

    graphs = pef.manifest.graphs
    sized = SizedGraphs(pef.manifest)
    if sized:
        inputs = read_inputs(texts, sized.specs(), pef.manifest.fixed_inputs)
        return sized.fitting(inputs, dims)
    if len(graphs) != 1:
        names = ", ".join(graph.name for graph in graphs) or "none"
        raise UsageError(f"{pef.path} has {len(graphs)} graphs ({names}); run takes a PEF with one")
    for bound in pef.manifest.bound_dimensions:
        if dims.get(bound.name, bound.size) != bound.size:
            raise UsageError(
                f"--dim {bound.name}={dims[bound.name]}: it is {bound.size} in {pef.path}; convert the "
                f"model with --dim {bound.name}={bound.size},{dims[bound.name]} for both sizes"
            )
    return graphs[0]


def executed_stages(
    manifest: Manifest, graph: Graph, limits: SectionLimits
) -> list[Section | Fallback]:
    """Return what a run executes, in the order of the schedule.

    Args:
        manifest: The PEF's manifest.
        graph: What is run.
        limits: What the user wants of it.

    Raises:
        ScheduleError: A section or type does not exist.
    """
    from samba_onnx.runtime.selection import select_sweeps

    stages = manifest.stages()
    sweeps = select_sweeps(stages, graph, limits.ids, limits.types)
    return [stages[call.stage] for calls in sweeps for call in calls]


def _read_by(graph: Graph, stages: Sequence[Section | Fallback]) -> list[str]:
    """Inputs that stages read, or that the graph returns as they are."""
    read = {name for stage in stages for name in stage.inputs} | set(graph.outputs)
    written = {name for stage in stages for name in stage.outputs}
    partial = len(stages) < len(graph.calls)
    return [name for name in graph.inputs if name in read - written or not partial]


def _inputs(
    pef: Pef,
    graph: Graph,
    names: Sequence[str],
    texts: Sequence[str],
    seed: int | None,
    dims: Mapping[str, int],
) -> dict[str, Any]:
    """Return a value for every input: from files, then random ones if a seed is given."""
    from samba_onnx.comparing.sample_inputs import pef_ranges, random_inputs
    from samba_onnx.runtime.array_files import read_inputs
    from samba_onnx.runtime.inputs import InputSpec

    wholes = {graph.model_name(name): pef.symbol(name).whole() for name in names}
    specs = {name: InputSpec(replace(symbol, name=name)) for name, symbol in wholes.items()}
    arrays = read_inputs(texts, specs, pef.manifest.fixed_inputs)
    # An argin has its value from before, or its default.
    persistent = {argin.name for argin in pef.manifest.argins}
    missing = {
        name: spec for name, spec in specs.items() if name not in arrays and name not in persistent
    }
    if seed is None:
        needed = [f"{name} {spec}" for name, spec in missing.items()]
        if needed:
            raise UsageError(
                f"no value for {'input' if len(needed) == 1 else 'inputs'} {'; '.join(needed)}: "
                "give --input NAME=FILE, or --random SEED"
            )
        return arrays
    shapes = _shapes(missing, arrays, specs, dims)
    return arrays | dict(random_inputs(shapes, seed, pef_ranges(pef, graph)))


def _shapes(
    missing: Mapping[str, InputSpec],
    arrays: Mapping[str, Any],
    specs: Mapping[str, InputSpec],
    dims: Mapping[str, int],
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return type and shape of random inputs, whose dynamic dimensions agree with the given arrays."""
    from samba_onnx.comparing.sample_inputs import DYNAMIC_SIZE

    known = dict(dims)
    for name, value in arrays.items():
        for size, actual in zip(specs[name].shape or (), getattr(value, "shape", ()), strict=False):
            # Dimensions of one name have one size.
            if isinstance(size, str):
                known.setdefault(size, actual)
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {}
    for name, spec in missing.items():
        if spec.shape is None:
            raise UsageError(f"input {name} {spec} has no known rank: give it with --input")
        shapes[name] = (
            spec.type,
            tuple(
                size if isinstance(size, int) else known.get(size or "", DYNAMIC_SIZE)
                for size in spec.shape
            ),
        )
    return shapes


def _iterate(
    device: Device,
    graph: Graph,
    inputs: Mapping[str, Any],
    iterations: int,
    limits: SectionLimits,
    activity: Activity,
) -> tuple[dict[str, Any], list[float]]:
    """Run, and measure every run."""
    seconds = []
    outputs: dict[str, Any] = {}
    for index in range(iterations):
        begin = time.perf_counter()
        outputs = device.run(
            inputs, graph=graph.name, section_ids=limits.ids, section_types=limits.types
        )
        seconds.append(time.perf_counter() - begin)
        activity.count(index + 1, iterations)
    return outputs, seconds
