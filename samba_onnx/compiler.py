"""From a model to a PEF: load, rewrite, place, group, plan, write.

:func:`analyze` stops before anything is written; :func:`convert` goes on to the PEF. Weights are
never read to analyse, and copied once, from file to file, to convert.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from samba_onnx.errors import UsageError
from samba_onnx.loading import LoadedModel, load_model
from samba_onnx.packaging import package
from samba_onnx.passes.islands import demote_islands
from samba_onnx.passes.partitioning import partition
from samba_onnx.passes.pipeline import PipelineOptions, PipelineResult, run_pipeline
from samba_onnx.passes.placement import place
from samba_onnx.passes.planning import GraphPlan, plan
from samba_onnx.passes.sectioning import cut
from samba_onnx.passes.targets import Target, load_target
from samba_onnx.reference import SECONDS, make_sample
from samba_onnx.runtime.pef import Pef, load_pef
from samba_onnx.runtime.pef.manifest import Manifest, Producer
from samba_onnx.version import __version__

if TYPE_CHECKING:
    import onnx

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
    package(destination, rewritten, compiled.plan, compiled.manifest, reference, report)
    return load_pef(destination)


def _compile(
    source: str | os.PathLike[str] | onnx.ModelProto,
    target: str | os.PathLike[str] | Target,
    level: str,
    options: PipelineOptions,
    progress: Progress,
    metadata: Mapping[str, str] | None = None,
) -> CompiledGraph:
    if level not in LEVELS:
        raise UsageError(f"level is {level!r}: expected one of {', '.join(LEVELS)}")
    profile = load_target(target)
    progress("load")
    loaded = load_model(source)
    result = run_pipeline(loaded.model, profile, options, progress=progress)
    progress("place")
    placement = demote_islands(result.model, place(result.model, profile), profile, level)
    groups = cut(partition(result.model, placement), profile, level)
    progress("plan")
    planned = plan(
        result.model,
        groups,
        profile,
        graph_name="forward",
        weight_names=result.weight_names,
        placement=placement,
    )
    manifest = Manifest(
        producer=Producer("samba-onnx", __version__),
        target=profile.summary,
        source=loaded.summary,
        level=level,
        graphs=(planned.graph,),
        sections=planned.sections,
        fallbacks=planned.fallbacks,
        symbols=planned.symbols,
        regions=planned.regions,
        passes=result.passes,
        dynamic_dimensions=result.dynamic_dimensions,
        experimental=planned.experimental,
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
