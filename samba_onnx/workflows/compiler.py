"""From a model to a PEF: load, rewrite, place, group, plan, write.

:func:`analyze` stops before anything is written; :func:`convert` goes on to the PEF. Weights are
never read to analyse, and copied once, from file to file, to convert.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from samba_onnx.comparing.reference_sample import (
    SECONDS,
    OtherShapeError,
    Sample,
    is_tried,
    make_sample,
)
from samba_onnx.errors import UsageError
from samba_onnx.facts.defaults import (
    DEFAULT_HOST,
    DEFAULT_LEGALISATION,
    DEFAULT_LEVEL,
    DEFAULT_PLACEMENT,
    DEFAULT_TARGET,
)
from samba_onnx.facts.names import in_a_list
from samba_onnx.passes.planning.fusion.choosing import FusionOptions
from samba_onnx.passes.planning.legalising import LegalisationOptions
from samba_onnx.passes.sharding.programs import ParallelOptions
from samba_onnx.passes.targets import Target
from samba_onnx.pef import Pef, load_pef
from samba_onnx.pef.fixed_inputs import fixed_arrays
from samba_onnx.pef.host_summary import HostSummary
from samba_onnx.pef.manifest import Manifest, SourceModel
from samba_onnx.pef.sources import Source
from samba_onnx.program.program import Program
from samba_onnx.runtime.engine.settings import library_paths
from samba_onnx.workflows.choices import (
    InputShapes,
    chosen_options,
    chosen_settings,
    legalisation_options,
)
from samba_onnx.workflows.onnx_planning import plan_onnx
from samba_onnx.workflows.packaging import Trial, package, pef_destination, weight_source
from samba_onnx.workflows.planning import (
    CompilerSettings,
    PlannedPrograms,
    Progress,
    plan_programs,
    silent,
)
from samba_onnx.workflows.sizes import Sizes

if TYPE_CHECKING:
    import onnx


def analyze(
    model: str | os.PathLike[str] | onnx.ModelProto,
    *,
    target: str | os.PathLike[str] | Target = DEFAULT_TARGET,
    level: str = DEFAULT_LEVEL,
    placement: str = DEFAULT_PLACEMENT,
    host: str | os.PathLike[str] | HostSummary = DEFAULT_HOST,
    legalise: str = DEFAULT_LEGALISATION,
    no_legalise: str | Sequence[str] = (),
    optimization_rules: str | os.PathLike[str] | None = None,
    default_rules: bool | None = None,
    dims: Sizes | None = None,
    input_shapes: InputShapes | None = None,
    keep_dynamic: bool = False,
    float16: str | None = None,
    precision: str | None = None,
    constants: Mapping[str, Any] | None = None,
    parallel: ParallelOptions | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Say how a model would convert; its weights are not read.

    Args:
        model: A path to an ONNX model, or the model in memory.
        target: A target's name, a path to a target profile, or a loaded target.
        level: ``o0``, ``o1`` or ``o3``, as :func:`convert` explains.
        placement: ``optimal`` or ``strict``, as :func:`convert` explains.
        host: The CPU: a profile, its path, or ``default``.
        legalise: ``auto``, ``all`` or ``float64``, as :func:`convert` explains.
        no_legalise: A rule of legalisation that is not applied, or several.
        optimization_rules: A file of fusion rules for level ``o1``.
        default_rules: Whether those of the target count.
        dims: Sizes of dynamic dimensions; several make a graph for each.
        input_shapes: Shapes of inputs by name, as :func:`convert` takes them.
        keep_dynamic: Whether others stay dynamic; otherwise they become 1.
        float16: The type in which float16 is computed, as :func:`convert` takes it; like the following.
        precision: The types in which float32 is computed.
        constants: Inputs that are fixed as constants, with their values.
        parallel: For how many RDUs it is cut, and how; None for one RDU.
        progress: Called with the name of each step before it begins.

    Returns:
        The manifest that the PEF would have, without members.

    Raises:
        SambaError: As :func:`convert` raises it.
    """
    where = (target, level, progress, placement, host, legalisation_options(legalise, no_legalise))
    rules = FusionOptions(optimization_rules, default_rules)
    settings = chosen_settings(*where, False, rules, parallel)
    sizes = chosen_options(settings.target, dims, input_shapes, keep_dynamic, float16, precision)
    return plan_onnx(model, settings, sizes, constants)[1].manifest


def convert(
    model: str | os.PathLike[str] | onnx.ModelProto,
    output: str | os.PathLike[str] | None = None,
    *,
    target: str | os.PathLike[str] | Target = DEFAULT_TARGET,
    level: str = DEFAULT_LEVEL,
    placement: str = DEFAULT_PLACEMENT,
    host: str | os.PathLike[str] | HostSummary = DEFAULT_HOST,
    legalise: str = DEFAULT_LEGALISATION,
    no_legalise: str | Sequence[str] = (),
    optimization_rules: str | os.PathLike[str] | None = None,
    default_rules: bool | None = None,
    dims: Sizes | None = None,
    input_shapes: InputShapes | None = None,
    keep_dynamic: bool = False,
    float16: str | None = None,
    precision: str | None = None,
    constants: Mapping[str, Any] | None = None,
    sample: bool | None = None,
    sample_seconds: float = SECONDS,
    seed: int = 0,
    custom_ops: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    trial: bool = True,
    check_passes: bool = False,
    metadata: Mapping[str, str] | None = None,
    notes: str | Sequence[str] = (),
    parallel: ParallelOptions | None = None,
    progress: Progress | None = None,
) -> Pef:
    """Convert a model into a PEF.

    Args:
        model: A path to an ONNX model, or the model in memory.
        output: The PEF to write; beside the model, with the suffix ``.pef``, where None. A log
            with the suffix ``.pef.log`` is written next to it.
        target: A target's name, a path to a target profile, or a loaded target.
        level: ``o0`` (one section per operator), ``o1`` (sections by rules of fusion) or ``o3`` (sections as
            large as on-chip memory allows).
        placement: ``optimal``: a node that the target supports runs on the CPU, too, where a run then
            takes less modelled time, beside one that it does not support; ``strict``: all that it
            supports runs on the RDU, other than small islands of index arithmetic.
        host: The CPU that fallbacks' times are modelled for: ``default``, the path of a profile that
            ``samba-port calibrate`` wrote, or a loaded profile.
        legalise: ``auto`` to write nodes that the target refuses with other operators where that makes a
            run shorter, ``all`` to do so wherever it can be done; ``float64``, alone or as ``all,float64``,
            to compute float64 in float32, too, where no proof says that it makes no difference.
        no_legalise: A rule of that which is not applied, as ``resize``, or several; ``all`` for none.
        optimization_rules: A file of fusion rules for level ``o1``: YAML in the shape of SambaFlow's.
        default_rules: Whether the rules count that the target's profile names; None if no file is stated.
        dims: Sizes of dynamic dimensions by name, as ``{"batch": 8}``; several, as
            ``{"batch": (1, 8, 32)}``, make a graph for each, and ``Device.run`` takes the one that
            fits its inputs.
        input_shapes: Shapes of inputs by name, as ``{"x": (1, 3, 224, 224)}``; an empty name stands
            for the only input.
        keep_dynamic: Whether other dimensions of inputs stay dynamic, for the CPU. Otherwise they
            become 1, and a note says which.
        float16: The type in which float16 is computed: ``float32``, ``bfloat16``, or ``cpu`` to leave it
            to the host. None takes float32 where the target has it.
        precision: In which types operators compute that state float32: ``fp32``, ``mixed`` for bfloat16 in
            matrix products and convolutions, ``bf16`` for bfloat16 in all that the model does not
            convert to float32 itself, ``bf16-throughout`` for all. Inputs and outputs stay float32.
            None is ``fp32``.
        constants: Inputs of the model that are fixed as constants, with their values by name, as
            ``{"sr": 16000}``: an array of the input's type, or a number, truth value or nested list, which
            takes it. A run is not given them.
        sample: Whether to run the original model once on seeded random inputs, in a child process
            with limits, to keep inputs and outputs in the PEF for self-tests. None does so unless the
            weights take more than 1 GiB.
        sample_seconds: Wall-clock time after which that run is given up.
        seed: Seed of the sample's inputs.
        custom_ops: A shared library, or several, with operators of custom domains, in onnxruntime's form, for the
            sample and the trial; their code runs in the child processes only.
        trial: Whether to try, in another child process, if the emulator's engine can prepare what was compiled,
            and to write nothing where it cannot. False is for whoever loads it onto a device at once.
        check_passes: Whether to run the model after every pass of the compiler that changes it, on
            seeded inputs, and to refuse to go on when it computes something else.
        metadata: Key-value pairs to keep in the PEF.
        notes: A sentence, or several, to keep in the PEF, and to show in its report.
        parallel: For how many RDUs it is cut, and how; None for one RDU.
        progress: Called with the name of each step before it begins.

    Returns:
        The PEF that was written, open for reading.

    Raises:
        ModelError: The model cannot be used.
        TargetError: The target or the host is unknown or malformed.
        UsageError: An option contradicts the model, or no output is given for a model in memory,
            or a library is no file.
        OutOfDeviceMemoryError: The model does not fit into the target's memory.
        ExecutionError: onnxruntime crashes on the original model, or cannot prepare what was compiled.
        PassMismatchError: ``check_passes`` found a pass that changes what the model computes.
        OutputError: The PEF cannot be written.
    """
    destination, libraries = pef_destination(model, output), library_paths(custom_ops)
    rules = legalisation_options(legalise, no_legalise)
    fusion = FusionOptions(optimization_rules, default_rules)
    settings = chosen_settings(
        target, level, progress, placement, host, rules, check_passes, fusion, parallel
    )
    options = chosen_options(settings.target, dims, input_shapes, keep_dynamic, float16, precision)
    loaded, planned = plan_onnx(model, settings, options, constants)

    def sampled() -> Sample:  # the first graph's inputs and outputs have the names of the model
        settings.progress("sample")
        return make_sample(
            model,
            loaded,
            planned.graphs[0].model,
            seed,
            wanted=sample,
            seconds=sample_seconds,
            graph=planned.manifest.graphs[0].name,
            custom_ops=libraries,
            constants=fixed_arrays(planned.manifest.fixed_inputs),
            replaced=any(
                step.name in ("ReplaceFloat16", "ReducePrecision") and step.modified
                for step in planned.manifest.passes
            ),
        )

    try:
        reference = sampled()
    except OtherShapeError as error:
        # A shape that depends on data, and that the model states wrongly, as onnxruntime warns of, too.
        loaded, planned = plan_onnx(model, settings, options, constants, stated_outputs=False)
        notes = (
            f"the shapes of outputs are not those that the model declares: {error}",
            *in_a_list(notes),
        )
        reference = sampled()
    source = replace(planned.manifest.source, files=loaded.digests())
    every_note = (*planned.manifest.notes, *in_a_list(notes))
    noted = replace(planned, manifest=replace(planned.manifest, source=source, notes=every_note))
    how = Trial(libraries) if trial and is_tried(planned.graphs[0].model, libraries) else None
    return _write(noted, destination, metadata, reference, settings.progress, trial=how)


def compile_programs(
    programs: Sequence[Program],
    output: str | os.PathLike[str],
    *,
    target: str | os.PathLike[str] | Target = DEFAULT_TARGET,
    level: str = DEFAULT_LEVEL,
    placement: str = DEFAULT_PLACEMENT,
    host: str | os.PathLike[str] | HostSummary = DEFAULT_HOST,
    legalisation: LegalisationOptions | None = None,
    fusion: FusionOptions | None = None,
    name: str = "",
    metadata: Mapping[str, str] | None = None,
    residents: Mapping[str, Source] | None = None,
    sample: Sample | None = None,
    check_passes: bool = False,
    parallel: ParallelOptions | None = None,
    progress: Progress | None = None,
) -> Pef:
    """Compile programs, the graphs of one PEF.

    Args:
        programs: One per graph, each with a name of its own; their models are consumed.
        output: The PEF to write; its log goes beside it.
        target: A target's name, a path to a target profile, or a loaded target.
        level: ``o0``, ``o1`` or ``o3``, as ``convert`` takes it.
        placement: ``optimal`` or ``strict``, as ``convert`` takes it.
        host: The CPU that fallbacks' times are modelled for, as ``convert`` takes it.
        legalisation: Which rules write what the target lacks; None for those that make a run shorter.
        fusion: Which rules of fusion count at ``o1``; None for those of the target.
        name: What reports call the source; that of the first program when empty.
        metadata: Pairs to keep in the PEF, beside those of the programs.
        residents: Weights and other residents to keep, by name: arrays, or functions that yield bytes.
        sample: Inputs and the original model's outputs, for self-tests.
        check_passes: Whether to run each part after every pass that changes it.
        parallel: For how many RDUs it is cut, and how; None for one RDU.
        progress: Called with the name of each step before it begins.

    Returns:
        The PEF that was written, open for reading.

    Raises:
        TargetError: The target or the host is unknown or malformed.
        UsageError: The level or the placement is unknown, or programs contradict each other.
        OutOfDeviceMemoryError: The programs do not fit into the target's memory.
        OutputError: The PEF cannot be written.
    """
    where = (target, level, progress, placement, host, legalisation, check_passes)
    planned = _plan_torch(programs, name, chosen_settings(*where, fusion, parallel))
    kept = (metadata, sample or Sample())
    return _write(planned, Path(output), *kept, progress or silent, residents)


def analyze_programs(
    programs: Sequence[Program],
    *,
    target: str | os.PathLike[str] | Target = DEFAULT_TARGET,
    level: str = DEFAULT_LEVEL,
    placement: str = DEFAULT_PLACEMENT,
    host: str | os.PathLike[str] | HostSummary = DEFAULT_HOST,
    legalisation: LegalisationOptions | None = None,
    fusion: FusionOptions | None = None,
    name: str = "",
    parallel: ParallelOptions | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Say how programs would compile, without writing anything.

    Args:
        programs: The programs, as for :func:`compile_programs`; they are consumed.
        target: A target's name, a path to a target profile, or a loaded target.
        level: ``o0``, ``o1`` or ``o3``.
        placement: ``optimal`` or ``strict``.
        host: The CPU: ``default``, or a profile.
        legalisation: Which rules write what the target lacks with other operators; None for those that make
            a run shorter.
        fusion: Which rules of fusion count at ``o1``; None for those of the target.
        name: What reports call the source; that of the first program when empty.
        parallel: For how many RDUs it is cut, and how; None for one RDU.
        progress: Called with the name of each step before it begins.

    Returns:
        The manifest that the PEF would have, without members.

    Raises:
        TargetError: The target or the host is unknown or malformed.
        UsageError: The level or the placement is unknown, or programs contradict each other.
        OutOfDeviceMemoryError: The programs do not fit into the target's memory.
    """
    settings = chosen_settings(
        target, level, progress, placement, host, legalisation, fusion=fusion, parallel=parallel
    )
    return _plan_torch(programs, name, settings).manifest


def _plan_torch(
    programs: Sequence[Program], name: str, settings: CompilerSettings
) -> PlannedPrograms:
    if not programs:
        raise UsageError("no program was given to compile")
    nodes = sum(len(part.model.graph) for program in programs for part in program.parts)
    producer = f"torch {_torch_version()}".strip()
    source = SourceModel(name or programs[0].name, producer, opset=0, nodes=nodes)
    return plan_programs(programs, source, settings)


def _write(
    planned: PlannedPrograms,
    destination: Path,
    metadata: Mapping[str, str] | None,
    sample: Sample,
    progress: Progress,
    residents: Mapping[str, Source] | None = None,
    *,
    trial: Trial | None = None,
) -> Pef:
    merged = {**planned.manifest.metadata, **(metadata or {})}
    given = {name: weight_source(tensor) for name, tensor in planned.contents.items()}
    manifest = replace(planned.manifest, metadata=merged)
    package(
        destination,
        planned.graphs,
        manifest,
        sample,
        progress,
        residents={**given, **(residents or {})},
        trial=trial,
    )
    return load_pef(destination)


def _torch_version() -> str:
    try:
        return version("torch")
    except PackageNotFoundError:
        return ""
