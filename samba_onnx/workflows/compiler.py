"""From a model to a PEF: load, rewrite, place, group, plan, write.

:func:`analyze` stops before anything is written; :func:`convert` goes on to the PEF. Weights are
never read to analyse, and copied once, from file to file, to convert.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from samba_onnx.errors import UsageError
from samba_onnx.loading import LoadedModel, load_model
from samba_onnx.passes.pipeline import PipelineOptions, PipelineResult, run_pipeline
from samba_onnx.passes.planning.islands import demote_islands
from samba_onnx.passes.planning.joining import PlacedPart, join
from samba_onnx.passes.planning.partitioning import partition
from samba_onnx.passes.planning.placement import place
from samba_onnx.passes.planning.plan import GraphPlan, plan
from samba_onnx.passes.planning.sectioning import cut
from samba_onnx.passes.planning.sharing import refuse_split_regions
from samba_onnx.passes.targets import Target, load_target
from samba_onnx.pef import Pef, load_pef
from samba_onnx.pef.manifest import Argin, Manifest, PassSummary, Producer, SourceModel, Symbol
from samba_onnx.pef.sources import Source
from samba_onnx.program.kinds import SectionType
from samba_onnx.program.program import DEFAULT_GRAPH, Program
from samba_onnx.version import __version__
from samba_onnx.workflows.packaging import PlannedGraph, package
from samba_onnx.workflows.reference_sample import SECONDS, Sample, make_sample

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

LEVELS = ("o0", "o3")
"""Optimization levels: ``o0`` makes every operator its own section, ``o3`` makes sections as large
as on-chip memory allows (compiler reference, ``--o0`` and ``--o3``)."""

DEFAULT_TARGET = "sn40l"
"""The newest RDU whose figures are published."""

Progress: TypeAlias = Callable[[str], None]
InputShapes: TypeAlias = Mapping[str, tuple[int | str | None, ...]]


@dataclass(frozen=True)
class CompiledGraph:
    """A model after every step but the writing."""

    loaded: LoadedModel
    result: PipelineResult
    plan: GraphPlan
    manifest: Manifest
    """Complete but for what only the written file knows: members and the places of weights."""


def analyze(
    model: str | os.PathLike[str] | onnx.ModelProto,
    *,
    target: str | os.PathLike[str] | Target = DEFAULT_TARGET,
    level: str = "o3",
    dims: Mapping[str, int] | None = None,
    input_shapes: InputShapes | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Say how a model would convert, without writing anything or reading its weights.

    Args:
        model: A path to an ONNX model, or the model in memory.
        target: A target's name, a path to a target profile, or a loaded target.
        level: ``o0`` (one section per operator) or ``o3`` (sections as large as on-chip memory
            allows).
        dims: Sizes of dynamic dimensions by name, as ``{"batch": 8}``.
        input_shapes: Shapes of inputs by name, as ``{"x": (1, 3, 224, 224)}``.
        progress: Called with the name of each step before it begins.

    Returns:
        The manifest that the PEF would have, without members.

    Raises:
        ModelError: The model cannot be used.
        TargetError: The target is unknown or malformed.
        UsageError: An option contradicts the model.
        OutOfDeviceMemoryError: The model does not fit into the target's memory.
    """
    options = PipelineOptions(dims=dims or {}, input_shapes=input_shapes or {})
    return _compile(model, target, level, options, progress or _silent).manifest


def convert(
    model: str | os.PathLike[str] | onnx.ModelProto,
    output: str | os.PathLike[str] | None = None,
    *,
    target: str | os.PathLike[str] | Target = DEFAULT_TARGET,
    level: str = "o3",
    dims: Mapping[str, int] | None = None,
    input_shapes: InputShapes | None = None,
    sample: bool | None = None,
    sample_seconds: float = SECONDS,
    seed: int = 0,
    metadata: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Pef:
    """Convert a model into a PEF.

    Args:
        model: A path to an ONNX model, or the model in memory.
        output: The PEF to write; beside the model, with the suffix ``.pef``, where None. A log
            with the suffix ``.pef.log`` is written next to it.
        target: A target's name, a path to a target profile, or a loaded target.
        level: ``o0`` (one section per operator) or ``o3`` (sections as large as on-chip memory
            allows).
        dims: Sizes of dynamic dimensions by name, as ``{"batch": 8}``.
        input_shapes: Shapes of inputs by name, as ``{"x": (1, 3, 224, 224)}``.
        sample: Whether to run the original model once on seeded random inputs, in a child process
            with limits, and to keep inputs and outputs in the PEF for self-tests. None does so
            unless the weights take more than 1 GiB.
        sample_seconds: Wall-clock time after which that run is given up.
        seed: Seed of the sample's inputs.
        metadata: Key-value pairs to keep in the PEF.
        progress: Called with the name of each step before it begins.

    Returns:
        The PEF that was written, open for reading.

    Raises:
        ModelError: The model cannot be used.
        TargetError: The target is unknown or malformed.
        UsageError: An option contradicts the model, or no output is given for a model in memory.
        OutOfDeviceMemoryError: The model does not fit into the target's memory.
        ExecutionError: onnxruntime crashes on the original model.
        OutputError: The PEF cannot be written.
    """
    destination = _destination(model, output)
    report = progress or _silent
    options = PipelineOptions(dims=dims or {}, input_shapes=input_shapes or {})
    compiled = _compile(model, target, level, options, report, metadata)
    report("sample")
    rewritten = compiled.result.model
    reference = make_sample(
        model, compiled.loaded, rewritten, seed, wanted=sample, seconds=sample_seconds
    )
    graphs = [PlannedGraph(rewritten, compiled.plan)]
    package(destination, graphs, compiled.manifest, reference, report)
    return load_pef(destination)


def compile_programs(
    programs: Sequence[Program],
    output: str | os.PathLike[str],
    *,
    target: str | os.PathLike[str] | Target = DEFAULT_TARGET,
    level: str = "o3",
    name: str = "",
    metadata: Mapping[str, str] | None = None,
    residents: Mapping[str, Source] | None = None,
    sample: Sample | None = None,
    progress: Progress | None = None,
) -> Pef:
    """Compile programs, the graphs of one PEF.

    Args:
        programs: One per graph, each with a name of its own. Values of one region are one place in
            device memory, in whichever program they are. The models of their parts are consumed.
        output: The PEF to write; its log goes beside it.
        target: A target's name, a path to a target profile, or a loaded target.
        level: ``o0`` (one section per operator) or ``o3`` (sections as large as on-chip memory
            allows).
        name: What reports call the source; that of the first program when empty.
        metadata: Key-value pairs to keep in the PEF, beside those of the programs.
        residents: Weights and other residents to keep in the PEF, by name: arrays, or functions that
            yield their bytes. Whoever runs the PEF loads the others.
        sample: Inputs and the original model's outputs, for self-tests.
        progress: Called with the name of each step before it begins.

    Returns:
        The PEF that was written, open for reading.

    Raises:
        TargetError: The target is unknown or malformed.
        UsageError: The level is unknown, or programs contradict each other.
        OutOfDeviceMemoryError: The programs do not fit into the target's memory.
        OutputError: The PEF cannot be written.
    """
    manifest, graphs = _plan_programs(programs, target, level, name, progress or _silent)
    merged = {key: text for program in programs for key, text in program.metadata.items()}
    manifest = replace(manifest, metadata={**merged, **(metadata or {})})
    reference = sample or Sample()
    package(Path(output), graphs, manifest, reference, progress or _silent, residents=residents)
    return load_pef(Path(output))


def analyze_programs(
    programs: Sequence[Program],
    *,
    target: str | os.PathLike[str] | Target = DEFAULT_TARGET,
    level: str = "o3",
    name: str = "",
    progress: Progress | None = None,
) -> Manifest:
    """Say how programs would compile, without writing anything.

    Args:
        programs: The programs, as for :func:`compile_programs`; they are consumed.
        target: A target's name, a path to a target profile, or a loaded target.
        level: ``o0`` or ``o3``.
        name: What reports call the source; that of the first program when empty.
        progress: Called with the name of each step before it begins.

    Returns:
        The manifest that the PEF would have, without members.

    Raises:
        TargetError: The target is unknown or malformed.
        UsageError: The level is unknown, or programs contradict each other.
        OutOfDeviceMemoryError: The programs do not fit into the target's memory.
    """
    return _plan_programs(programs, target, level, name, progress or _silent)[0]


def _plan_programs(
    programs: Sequence[Program],
    target: str | os.PathLike[str] | Target,
    level: str,
    name: str,
    progress: Progress,
) -> tuple[Manifest, tuple[PlannedGraph, ...]]:
    if not programs:
        raise UsageError("no program was given to compile")
    _check_level(level)
    profile = load_target(target)
    nodes = sum(len(part.model.graph) for program in programs for part in program.parts)
    changed = frozenset(region for program in programs for region in program.changed())
    passes: list[PassSummary] = []
    graphs: list[PlannedGraph] = []
    for program in programs:
        parts = []
        for part in program.parts:
            progress(f"rewrite {part.type.value}")
            result = run_pipeline(part.model, profile)
            passes += result.passes
            parts.append(_placed(part.type, result.model, profile, level))
        progress("plan")
        taken = {s.name for graph in graphs for s in graph.plan.symbols}
        joined = join(program, parts, taken, changed)
        earlier = [graph.plan for graph in graphs]
        planned = plan(
            joined.model,
            joined.groups,
            profile,
            graph_name=program.name,
            weight_names=(),
            placement=joined.placement,
            roles=joined.roles,
            first_stage=sum(len(graph.plan.stages) for graph in graphs),
            earlier=earlier,
        )
        graphs.append(PlannedGraph(joined.model, planned))
    refuse_split_regions(programs, [graph.plan for graph in graphs])
    source = SourceModel(name or programs[0].name, f"torch {_torch_version()}".strip(), 0, nodes)
    manifest = _manifest(profile, source, level, [graph.plan for graph in graphs])
    notes = (*manifest.notes, *(note for program in programs for note in program.notes))
    argins = _argins(programs, graphs)
    return replace(manifest, passes=tuple(passes), argins=argins, notes=notes), tuple(graphs)


def _placed(kind: SectionType, model: ir.Model, target: Target, level: str) -> PlacedPart:
    placement = demote_islands(model, place(model, target), target, level)
    groups = cut(partition(model, placement), target, level)
    return PlacedPart(kind, model, groups, placement)


def _argins(programs: Sequence[Program], graphs: Sequence[PlannedGraph]) -> tuple[Argin, ...]:
    specs = {argin.name: argin for program in programs for argin in program.argins}
    stages = [s for graph in graphs for s in (*graph.plan.sections, *graph.plan.fallbacks)]
    given = {name for graph in graphs for name in graph.plan.graph.inputs}
    return tuple(
        Argin(
            name, spec.type, spec.default, tuple(sorted(s.id for s in stages if name in s.inputs))
        )
        for name, spec in specs.items()
        if name in given
    )


def _manifest(
    target: Target, source: SourceModel, level: str, plans: Sequence[GraphPlan]
) -> Manifest:
    """Return the records of graphs; a symbol that several have is the first one's."""
    symbols: dict[str, Symbol] = {}
    for planned in plans:
        for symbol in planned.symbols:
            first = symbols.setdefault(symbol.name, symbol)
            if (first.type, first.shape) != (symbol.type, symbol.shape):
                raise UsageError(
                    f"two graphs have a tensor {symbol.name!r}, of {first.type} "
                    f"{list(first.shape or ())} and of {symbol.type} {list(symbol.shape or ())}; "
                    "give one of them another name"
                )
    experimental: Counter[str] = Counter()
    for planned in plans:
        experimental.update(planned.experimental)
    return Manifest(
        producer=Producer("samba-onnx", __version__),
        target=target.summary,
        source=source,
        level=level,
        graphs=tuple(planned.graph for planned in plans),
        sections=tuple(section for planned in plans for section in planned.sections),
        fallbacks=tuple(fallback for planned in plans for fallback in planned.fallbacks),
        symbols=tuple(symbols.values()),
        regions=tuple(region for planned in plans for region in planned.regions),
        experimental=dict(sorted(experimental.items())),
        notes=tuple(note for planned in plans for note in planned.notes),
    )


def _torch_version() -> str:
    try:
        return version("torch")
    except PackageNotFoundError:
        return ""


def _check_level(level: str) -> None:
    if level not in LEVELS:
        raise UsageError(f"level is {level!r}: expected one of {', '.join(LEVELS)}")


def _compile(
    source: str | os.PathLike[str] | onnx.ModelProto,
    target: str | os.PathLike[str] | Target,
    level: str,
    options: PipelineOptions,
    progress: Progress,
    metadata: Mapping[str, str] | None = None,
) -> CompiledGraph:
    _check_level(level)
    profile = load_target(target)
    progress("load")
    loaded = load_model(source)
    result = run_pipeline(loaded.model, profile, options, progress=progress)
    progress("place")
    placed = _placed(SectionType.FWD, result.model, profile, level)
    progress("plan")
    planned = plan(
        result.model,
        placed.groups,
        profile,
        graph_name=DEFAULT_GRAPH,
        weight_names=result.weight_names,
        placement=placed.placement,
    )
    manifest = replace(
        _manifest(profile, loaded.summary, level, [planned]),
        passes=result.passes,
        dynamic_dimensions=result.dynamic_dimensions,
        notes=result.notes + planned.notes,
        metadata=dict(metadata or {}),
    )
    return CompiledGraph(loaded, result, planned, manifest)


def _destination(
    model: str | os.PathLike[str] | onnx.ModelProto, output: str | os.PathLike[str] | None
) -> Path:
    if output is not None:
        return Path(output)
    if not isinstance(model, str | os.PathLike):
        raise UsageError(
            "no output path was given: a model in memory has no name to derive it from"
        )
    return Path(model).with_suffix(".pef")


def _silent(_: str) -> None:
    pass
