"""From a model to a PEF: load, rewrite, place, group, plan, write.

:func:`compile` is the one way in, for each kind of source; :func:`analyze` and :func:`convert` are it for ONNX models,
:func:`analyze_programs` and :func:`compile_programs` for what front ends made. Weights are never read to analyse, and
copied once, from file to file, to convert.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, Unpack

from samba_onnx.comparing.sample import OtherShapeError, Sample, is_tried
from samba_onnx.compiling.compiler_settings import compiler_settings, pipeline_options
from samba_onnx.compiling.onnx_planning import plan_onnx
from samba_onnx.compiling.option import Front
from samba_onnx.compiling.options import CompileOptions
from samba_onnx.compiling.packaging import Trial, package, pef_destination, weight_source
from samba_onnx.compiling.planning import PlannedPrograms, Progress, plan_programs, silent
from samba_onnx.compiling.signatures import takes_keywords
from samba_onnx.errors import UsageError
from samba_onnx.facts.names import in_a_list
from samba_onnx.pef import Pef, load_pef
from samba_onnx.pef.fixed_inputs import fixed_arrays
from samba_onnx.pef.manifest import Manifest, SourceModel
from samba_onnx.pef.sources import Source as Content
from samba_onnx.program.program import Program
from samba_onnx.runtime.engine.settings import library_paths
from samba_onnx.version import installed_version

if TYPE_CHECKING:
    import onnx

    from samba_onnx.compiling.keywords import OnnxKeywords, ProgramKeywords

__all__ = [
    "Compiled",
    "OnnxSource",
    "ProgramSource",
    "Source",
    "analyze",
    "analyze_programs",
    "compile",
    "compile_programs",
    "convert",
]


@dataclass(frozen=True)
class Finished:
    """What a PEF is written of."""

    planned: PlannedPrograms
    reference: Sample = field(default_factory=Sample)
    """Inputs and the original model's outputs, for self-tests."""
    residents: Mapping[str, Content] = field(default_factory=lambda: MappingProxyType({}))
    """Weights and others that stay on the device, by name, beside those of the model."""
    trial: Trial | None = None
    """How an engine is asked if it can prepare what was compiled; None for not at all."""


@dataclass(frozen=True)
class Compiled:
    """A model after every step but what only a written PEF needs."""

    planned: PlannedPrograms
    progress: Progress
    finish: Callable[[], Finished]
    """Does what only a written PEF needs, as the run that makes its sample."""

    @property
    def manifest(self) -> Manifest:
        """The manifest that the PEF would have, without members."""
        return self.planned.manifest

    def write(
        self,
        output: str | os.PathLike[str],
        *,
        metadata: Mapping[str, str] | None = None,
        notes: str | Sequence[str] = (),
    ) -> Pef:
        """Write the PEF, with its log beside it.

        Args:
            output: Where to.
            metadata: Pairs to keep in the PEF, beside those of the model.
            notes: A sentence, or several, to keep in the PEF, and to show in its report.

        Returns:
            The PEF, open for reading.

        Raises:
            ExecutionError: The original model crashes, or no engine can prepare what was compiled.
            OutputError: The PEF cannot be written.
        """
        done = self.finish()
        manifest = done.planned.manifest
        given = {name: weight_source(each) for name, each in done.planned.contents.items()}
        package(
            Path(output),
            done.planned.graphs,
            replace(
                manifest,
                notes=(*manifest.notes, *in_a_list(notes)),
                metadata={**manifest.metadata, **(metadata or {})},
            ),
            done.reference,
            self.progress,
            residents={**given, **done.residents},
            trial=done.trial,
        )
        return load_pef(output)


class Source(Protocol):
    """What can be compiled: an ONNX model, a torch module with its inputs and optimizers, or programs."""

    def compiled(self, options: CompileOptions, progress: Progress) -> Compiled:
        """Return the source after every step but the writing.

        Args:
            options: What the user decides.
            progress: Called with the name of each step before it begins.
        """


def compile(
    source: Source, options: CompileOptions | None = None, *, progress: Progress | None = None
) -> Compiled:
    """Compile a source.

    Args:
        source: An ``OnnxSource``, a ``ProgramSource``, or a ``TorchSource`` of ``samba_onnx.compiling.torch.porting``.
        options: What the user decides; None for all defaults.
        progress: Called with the name of each step before it begins.

    Raises:
        SambaError: As :func:`convert` raises it.
    """
    return source.compiled(options or CompileOptions(), progress or silent)


@dataclass(frozen=True)
class OnnxSource:
    """An ONNX model: a path, or the model in memory."""

    model: str | os.PathLike[str] | onnx.ModelProto

    def compiled(self, options: CompileOptions, progress: Progress) -> Compiled:
        """Return the model, planned for one size or for several."""
        libraries = library_paths(options.sampling.custom_ops)
        settings = compiler_settings(options, progress)
        sizes = pipeline_options(options, settings.target)
        constants = options.sizes.constants
        loaded, planned = plan_onnx(self.model, settings, sizes, constants)

        def sampled(planned: PlannedPrograms) -> Sample:
            from samba_onnx.comparing.reference_sample import make_sample

            progress("sample")
            sampling = options.sampling
            return make_sample(
                self.model,
                loaded,
                # The first graph's inputs and outputs have the names of the model.
                planned.graphs[0].model,
                sampling.seed,
                wanted=sampling.sample,
                seconds=sampling.sample_seconds,
                graph=planned.manifest.graphs[0].name,
                custom_ops=libraries,
                constants=fixed_arrays(planned.manifest.fixed_inputs),
                replaced=any(
                    step.name in ("ReplaceFloat16", "ReducePrecision") and step.modified
                    for step in planned.manifest.passes
                ),
            )

        def finish() -> Finished:
            whole = planned
            notes: tuple[str, ...] = ()
            try:
                reference = sampled(whole)
            except OtherShapeError as error:
                # A shape that depends on data, and that the model states wrongly, as onnxruntime warns of, too.
                _, whole = plan_onnx(self.model, settings, sizes, constants, stated_outputs=False)
                notes = (f"the shapes of outputs are not those that the model declares: {error}",)
                reference = sampled(whole)
            manifest = whole.manifest
            # Digests read all of the weights, which an analysis leaves alone:
            # only a PEF is worth that.
            source = replace(manifest.source, files=loaded.digests())
            manifest = replace(manifest, source=source, notes=(*manifest.notes, *notes))
            tried = options.sampling.trial and is_tried(whole.graphs[0].model, libraries)
            trial = Trial(libraries) if tried else None
            return Finished(replace(whole, manifest=manifest), reference, trial=trial)

        return Compiled(planned, progress, finish)


@dataclass(frozen=True)
class ProgramSource:
    """Programs, the graphs of one PEF; their models are consumed."""

    programs: Sequence[Program]
    name: str = ""
    """What reports call the source; that of the first program when empty."""
    residents: Mapping[str, Content] = field(default_factory=lambda: MappingProxyType({}))
    """Weights and other residents to keep, by name: arrays, or functions that yield bytes."""
    reference: Sample = field(default_factory=Sample)
    """Inputs and the original model's outputs, for self-tests."""

    def compiled(self, options: CompileOptions, progress: Progress) -> Compiled:
        """Return the programs, planned together."""
        if not self.programs:
            raise UsageError("no program was given to compile")
        settings = compiler_settings(options, progress)
        parts = [part for program in self.programs for part in program.parts]
        # Before the programs are planned, which consumes their models.
        source = SourceModel(
            self.name or self.programs[0].name,
            f"torch {installed_version('torch')}".strip(),
            opset=0,
            nodes=sum(len(part.model.graph) for part in parts),
        )
        planned = plan_programs(self.programs, source, settings)
        done = Finished(planned, self.reference, self.residents)
        return Compiled(planned, progress, lambda: done)


@takes_keywords(Front.ONNX, writes=False)
def analyze(
    model: str | os.PathLike[str] | onnx.ModelProto,
    *,
    options: CompileOptions | None = None,
    progress: Progress | None = None,
    **keywords: Unpack[OnnxKeywords],
) -> Manifest:
    """Say how a model would convert; its weights are not read.

    Args:
        model: A path to an ONNX model, or the model in memory.
        options: A record of options; keywords override it.
        progress: Called with the name of each step before it begins.
        **keywords: Options by name.

    Returns:
        The manifest that the PEF would have, without members.

    Raises:
        SambaError: As :func:`convert` raises it.
    """
    chosen = (options or CompileOptions()).replace(**keywords)
    chosen.refuse_other(Front.ONNX, writes=False)
    return compile(OnnxSource(model), chosen, progress=progress).manifest


@takes_keywords(Front.ONNX)
def convert(
    model: str | os.PathLike[str] | onnx.ModelProto,
    output: str | os.PathLike[str] | None = None,
    *,
    options: CompileOptions | None = None,
    metadata: Mapping[str, str] | None = None,
    notes: str | Sequence[str] = (),
    progress: Progress | None = None,
    **keywords: Unpack[OnnxKeywords],
) -> Pef:
    """Convert a model into a PEF.

    Args:
        model: A path to an ONNX model, or the model in memory.
        output: The PEF to write; beside the model, with the suffix ``.pef``, where None. A log
            with the suffix ``.pef.log`` is written next to it.
        options: A record of options; keywords override it.
        metadata: Key-value pairs to keep in the PEF.
        notes: A sentence, or several, to keep in the PEF, and to show in its report.
        progress: Called with the name of each step before it begins.
        **keywords: Options by name.

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
    # Before anything is compiled: without a place for the PEF, the time would be spent in vain.
    destination = pef_destination(model, output)
    chosen = (options or CompileOptions()).replace(**keywords)
    chosen.refuse_other(Front.ONNX)
    compiled = compile(OnnxSource(model), chosen, progress=progress)
    return compiled.write(destination, metadata=metadata, notes=notes)


@takes_keywords(None)
def compile_programs(
    source: ProgramSource | Sequence[Program],
    output: str | os.PathLike[str],
    *,
    options: CompileOptions | None = None,
    metadata: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    **keywords: Unpack[ProgramKeywords],
) -> Pef:
    """Compile programs, the graphs of one PEF.

    Args:
        source: Programs, each with a name of its own, alone or with what the PEF keeps beside them.
        output: The PEF to write; its log goes beside it.
        options: A record of options; keywords override it.
        metadata: Pairs to keep in the PEF, beside those of the programs.
        progress: Called with the name of each step before it begins.
        **keywords: Options by name.

    Returns:
        The PEF that was written, open for reading.

    Raises:
        TargetError: The target or the host is unknown or malformed.
        UsageError: The level or the placement is unknown, or programs contradict each other.
        OutOfDeviceMemoryError: The programs do not fit into the target's memory.
        OutputError: The PEF cannot be written.
    """
    chosen = (options or CompileOptions()).replace(**keywords)
    return compile(_programs(source), chosen, progress=progress).write(output, metadata=metadata)


@takes_keywords(None, writes=False)
def analyze_programs(
    source: ProgramSource | Sequence[Program],
    *,
    options: CompileOptions | None = None,
    progress: Progress | None = None,
    **keywords: Unpack[ProgramKeywords],
) -> Manifest:
    """Say how programs would compile, without writing anything.

    Args:
        source: Programs, as for :func:`compile_programs`; they are consumed.
        options: A record of options; keywords override it.
        progress: Called with the name of each step before it begins.
        **keywords: Options by name.

    Returns:
        The manifest that the PEF would have, without members.

    Raises:
        TargetError: The target or the host is unknown or malformed.
        UsageError: The level or the placement is unknown, or programs contradict each other.
        OutOfDeviceMemoryError: The programs do not fit into the target's memory.
    """
    chosen = (options or CompileOptions()).replace(**keywords)
    return compile(_programs(source), chosen, progress=progress).manifest


def _programs(source: ProgramSource | Sequence[Program]) -> ProgramSource:
    return source if isinstance(source, ProgramSource) else ProgramSource(source)
