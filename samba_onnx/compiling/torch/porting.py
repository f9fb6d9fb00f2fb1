"""From what a user names on the command line, a factory or a ``.pt2`` file, to a PEF with weights.

The module's parameters and the outputs that eager torch computes go into the PEF, so that it runs
and tests itself without the module.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import torch
from numpy.typing import NDArray
from torch import nn
from torch.export import ExportedProgram

from samba_onnx.comparing.eager.inference import compare_with_eager
from samba_onnx.comparing.eager.own_inputs import fitting_runs
from samba_onnx.comparing.outcome import NotComparableError
from samba_onnx.comparing.reference_sample import keep_sample
from samba_onnx.comparing.sample import Sample
from samba_onnx.compiling.compiler import Compiled, ProgramSource, compile
from samba_onnx.compiling.compiler_settings import chosen_target
from samba_onnx.compiling.half_types import precision_for
from samba_onnx.compiling.model_sources import is_configuration
from samba_onnx.compiling.option import Front
from samba_onnx.compiling.options import CompileOptions
from samba_onnx.compiling.planning import Progress, silent
from samba_onnx.compiling.signatures import takes_keywords
from samba_onnx.compiling.torch.factories import RETURNS, call_factory
from samba_onnx.compiling.torch.hugging_face import from_configuration, stated_positions
from samba_onnx.compiling.torch.resized_inputs import resized, torch_dimension
from samba_onnx.compiling.torch.torch_models import TorchModel, export_model
from samba_onnx.compiling.torch.torch_programs import (
    Training,
    attached_losses,
    keeps_activations,
    named_inputs,
    recorded_program,
    wanted_input_gradients,
)
from samba_onnx.compiling.torch.translation_files import load_translations
from samba_onnx.errors import UsageError
from samba_onnx.export.capture.archives import SUFFIX, load_exported_program, refused_by_torch
from samba_onnx.export.capture.captured_modules import arguments
from samba_onnx.export.capture.precision import computing_in
from samba_onnx.export.programs.inference import Exported
from samba_onnx.export.programs.stochastic_rounding import round_stochastically
from samba_onnx.export.programs.training_steps import optimizer_list
from samba_onnx.importing.checkpoints import export_trained
from samba_onnx.pef import Pef
from samba_onnx.pef.manifest import Manifest
from samba_onnx.program.program import Program
from samba_onnx.safety.collecting import collections_deferred
from samba_onnx.safety.files import printable
from samba_onnx.safety.frames import frames_together
from samba_onnx.tensor.arrays import compiled_array, to_array
from samba_onnx.tensor.lazy_parameters import LAZY

if TYPE_CHECKING:
    from samba_onnx.compiling.keywords import TorchKeywords

__all__ = [
    "TorchModel",
    "TorchSource",
    "analyze_torch",
    "export_trained",
    "load_torch_model",
    "load_translations",
    "port",
    "resized",
    "stated_positions",
    "torch_dimension",
    "torch_program",
]


def load_torch_model(source: str, *, train: bool = False, weights: bool = True) -> TorchModel:
    """Return the module that a text names.

    Args:
        source: ``package.module:factory``, a function without parameters that returns a module and
            its example inputs; the path of a ``.pt2`` file; or that of a Hugging Face configuration.
        train: The function returns optimizers, too: one, or a list.
        weights: Whether the module of a configuration needs weights; without, it takes no memory for them.

    Returns:
        The module: in evaluation mode, or as it was returned with its optimizers.

    Raises:
        UsageError: There is no such module or function, or it returns something else.
        ModelError: The function failed, or the file cannot be read.
    """
    if source.endswith(SUFFIX):
        if train:
            raise UsageError(
                f"{printable(source)} cannot be trained: give --train a function that returns "
                "module, inputs, optimizer"
            )
        return _from_archive(source)
    # A configuration has no optimizers: what is to be trained needs a function.
    if is_configuration(source) and not train:
        return from_configuration(source, weights=weights)
    module, inputs, *optimizers = call_factory(source, 3 if train else 2)
    if not isinstance(module, nn.Module):
        raise UsageError(
            f"{source} returned {type(module).__name__} in place of a torch.nn.Module: it must "
            f"{RETURNS[train]}"
        )
    name = source.rpartition(":")[2]
    if train:
        listed = tuple(optimizer_list(optimizers[0]))
        return TorchModel(name, module, *arguments(inputs), optimizers=listed)
    return TorchModel(name, module.eval(), *arguments(inputs))


@dataclass(frozen=True)
class TorchSource:
    """A torch module with its inputs; with optimizers, the program that trains it."""

    model: TorchModel

    def compiled(self, options: CompileOptions, progress: Progress) -> Compiled:
        """Return the module's program, planned; nothing is compared with eager torch before it is written."""
        program = torch_program(self.model, options, progress)
        return compile(ProgramSource([program], self.model.name), options, progress=progress)

    def checked(self, options: CompileOptions, progress: Progress) -> ProgramSource:
        """Return the module's program with all that a PEF keeps of it, compared with eager torch.

        Args:
            options: What the user decides.
            progress: Called with the name of each step before it begins.

        Raises:
            ModelError: The module cannot be exported or differentiated.
            ExportMismatchError: What was exported computes something else.
            EngineRefusalError: What was exported cannot be run.
            UsageError: Inputs do not fit, or an output does not exist.
        """
        model, checks = self.model, options.checks.check
        # Whoever traces it sends the weights, so that there is nothing to
        # keep, and no run to sample.
        if _trains(model, options):
            program = _training_program(model, options, checks, progress)
            return ProgramSource([_finished(program, options)], model.name)
        with _in_precision(options):
            progress("export")
            exported = export_model(model)
            program = exported.program
            if checks:
                progress("compare with torch")
                comparison = compare_with_eager(model.module, model.args, exported, model.keywords)
                program = _noted(program, comparison.notes)
            reference = Sample()
            # A sample would be of one mini-batch, and a run in spatial mapping has several.
            if options.sampling.sample is not False and not options.training.spatial_batches:
                progress("run in torch")
                reference = _sample(model, exported)
        contents, notes = _contents(model, exported)
        program = _finished(_noted(program, notes), options)
        return ProgramSource([program], model.name, _residents(exported, contents), reference)


@takes_keywords(Front.TORCH)
def port(
    model: TorchModel,
    output: str | os.PathLike[str],
    *,
    options: CompileOptions | None = None,
    metadata: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    **keywords: Unpack[TorchKeywords],
) -> Pef:
    """Convert a torch model into a PEF.

    In evaluation mode it carries the module's weights, unless some have no values. With optimizers it is compiled as
    ``samba.session.compile`` does, without weights: ``trace_graph`` sends those of the module.

    Args:
        model: The module, in the mode in which it is to run, with its optimizers where it is trained.
        output: The PEF to write.
        options: A record of options; keywords override it.
        metadata: Key-value pairs to keep.
        progress: Called with the name of each step before it begins.
        **keywords: Options by name.

    Returns:
        The PEF that was written, open for reading.

    Raises:
        ModelError: The module cannot be exported or differentiated.
        ExportMismatchError: What was exported computes something else; the message names the first
            operator that does.
        EngineRefusalError: What was exported cannot be run; the message names the operator.
        UsageError: Inputs do not fit, an option is for ONNX models, an optimizer cannot be compiled, or an output does
            not exist.
        OutOfDeviceMemoryError: The model does not fit into the target's memory.
        OutputError: The PEF cannot be written.
    """
    chosen = (options or CompileOptions()).replace(**keywords)
    chosen.refuse_other(Front.TORCH, trains=bool(model.optimizers))
    report = progress or silent
    source = TorchSource(model).checked(chosen, report)
    return compile(source, chosen, progress=report).write(output, metadata=metadata)


@takes_keywords(Front.TORCH, writes=False)
def analyze_torch(
    model: TorchModel,
    *,
    options: CompileOptions | None = None,
    progress: Progress | None = None,
    **keywords: Unpack[TorchKeywords],
) -> Manifest:
    """Say how a torch model would convert, without writing or comparing anything.

    Args:
        model: The module, in its mode; with optimizers, the program that trains is analyzed.
        options: A record of options; keywords override it.
        progress: Called with the name of each step before it begins.
        **keywords: Options by name.

    Raises:
        ModelError: The module cannot be exported, or a loss not differentiated.
        UsageError: Inputs do not fit, the level is unknown, or it cannot be mapped spatially.
        OutOfDeviceMemoryError: The model does not fit into the target's memory.
    """
    chosen = (options or CompileOptions()).replace(**keywords)
    chosen.refuse_other(Front.TORCH, writes=False, trains=bool(model.optimizers))
    return compile(TorchSource(model), chosen, progress=progress).manifest


def torch_program(
    model: TorchModel, options: CompileOptions | None = None, progress: Progress | None = None
) -> Program:
    """Return the program of a torch model, which is compared with nothing.

    Args:
        model: The module, in its mode, with or without values; with optimizers, its program trains.
        options: What the user decides; None for all defaults.
        progress: Called with the name of each step before it begins.

    Raises:
        ModelError: The module cannot be exported, or a loss not differentiated.
        UsageError: Inputs do not fit.
    """
    report, chosen = progress or silent, options or CompileOptions()
    if _trains(model, chosen):
        return _finished(_training_program(model, chosen, False, report), chosen)
    with _in_precision(chosen):
        report("export")
        return _finished(export_model(model).program, chosen)


def _trains(model: TorchModel, options: CompileOptions) -> bool:
    """Return whether a program trains: gradients of inputs need no optimizer."""
    return options.training.train or bool(model.optimizers)


def _training_program(
    model: TorchModel, options: CompileOptions, check: bool, report: Progress
) -> Program:
    report("export")
    losses = attached_losses(model.module, options.training.loss_indices)
    inputs = named_inputs(model.module, dict(model.keywords) or model.args)
    training = Training(
        losses,
        keeps_activations=keeps_activations(options.sections.level),
        input_gradients=wanted_input_gradients(model.module, inputs),
    )
    # A module that was made lazily is exported without its values.
    with _in_precision(options), LAZY.paused():
        return recorded_program(model.module, inputs, model.optimizers, training, check=check)


def _in_precision(options: CompileOptions) -> AbstractContextManager[None]:
    """Let what is exported within the context compute in the types that the user chose."""
    return computing_in(precision_for(chosen_target(options), options.numbers.precision))


def _finished(program: Program, options: CompileOptions) -> Program:
    """Return a program as it is compiled, after everything that is compared with torch, which rounds to nearest."""
    rounded = round_stochastically(program, options.numbers.stochastic_rounding)
    return dataclasses.replace(rounded, spatial_batches=options.training.spatial_batches)


def _noted(program: Program, notes: Sequence[str]) -> Program:
    return dataclasses.replace(program, notes=(*program.notes, *notes))


@frames_together
@collections_deferred()
def _from_archive(path: str) -> TorchModel:
    program = load_exported_program(path)
    if program.example_inputs is None:
        raise UsageError(
            f"{printable(path)}: has no example inputs; save it with those that it was exported with"
        )
    args, keywords = program.example_inputs
    with refused_by_torch(printable(path), "make a module of it"):
        module = program.module(check_guards=False)
        if any(isinstance(size, torch.SymInt) for size in _sizes(program)):
            # Sizes become those of the example inputs.
            program = torch.export.export(module, args, dict(keywords), strict=False)
    return TorchModel(Path(path).name, module, tuple(args), keywords, program)


def _sizes(program: ExportedProgram) -> list[Any]:
    values = [node.meta.get("val") for node in program.graph.find_nodes(op="placeholder")]
    return [size for value in values if isinstance(value, torch.Tensor) for size in value.shape]


def _contents(
    model: TorchModel, exported: Exported
) -> tuple[dict[str, torch.Tensor], tuple[str, ...]]:
    """Return the parameters and buffers that the program reads, by symbol; none and why, if one is on meta."""
    members: dict[str, torch.Tensor] = {}
    # Tied weights under each of their names, as the program may know them by any of these.
    members.update(model.module.named_parameters(remove_duplicate=False))
    members.update(model.module.named_buffers(remove_duplicate=False))
    # None rather than some: whoever runs the PEF loads all of them.
    empty = next((path for path in exported.members.values() if members[path].is_meta), None)
    if empty is not None:
        return {}, (
            f"The PEF carries no weights: {empty!r} has no values. Whoever runs it loads all.",
        )
    return {name: members[path] for name, path in exported.members.items()}, ()


def _residents(exported: Exported, contents: Mapping[str, torch.Tensor]) -> dict[str, NDArray[Any]]:
    """Return their values, in the types that the program has them in."""
    (part,) = exported.program.parts
    types = {value.name: value.dtype for value in part.model.graph.inputs}
    arrays = {name: to_array(tensor) for name, tensor in contents.items()}
    return {
        name: compiled_array(array, dtype.numpy()) if (dtype := types.get(name)) else array
        for name, array in arrays.items()
    }


def _sample(model: TorchModel, exported: Exported) -> Sample:
    """Run eager torch, on the example inputs as far as they fit, and keep what it answers."""
    try:
        fitting = fitting_runs(model.module, model.args, model.keywords, exported, trains=False)
    except NotComparableError as obstacle:
        return Sample(notes=(f"The PEF carries no reference sample: {obstacle}.",))
    flat, results = fitting.runs.leaves, fitting.runs.native
    inputs = {name: to_array(flat[place]) for name, place in exported.inputs.items()}
    outputs = {name: results[name] for name in exported.outputs if name is not None}
    return keep_sample([inputs], [outputs], graph=exported.program.name)
