"""From what a user names on the command line, a factory or a ``.pt2`` file, to a PEF with weights.

The module's parameters and the outputs that eager torch computes go into the PEF, so that it runs
and tests itself without the module.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn
from torch.export import ExportedProgram

from samba_onnx.comparing.eager.inference import compare_with_eager
from samba_onnx.comparing.eager.own_inputs import fitting_runs
from samba_onnx.comparing.outcome import NotComparableError
from samba_onnx.comparing.reference_sample import Sample, keep_sample
from samba_onnx.errors import UsageError
from samba_onnx.export.capture.archives import SUFFIX, load_exported_program, refused_by_torch
from samba_onnx.export.capture.modules import arguments
from samba_onnx.export.capture.precision import computing_in
from samba_onnx.export.programs.inference import Exported
from samba_onnx.export.programs.stochastic_rounding import round_stochastically
from samba_onnx.export.programs.training_steps import optimizer_list
from samba_onnx.facts.defaults import DEFAULT_HOST, DEFAULT_LEVEL, DEFAULT_PLACEMENT, DEFAULT_TARGET
from samba_onnx.facts.roundings import roundings_of
from samba_onnx.importing.checkpoints import export_trained
from samba_onnx.passes.planning.fusion.choosing import FusionOptions
from samba_onnx.passes.planning.legalising import LegalisationOptions
from samba_onnx.passes.sharding.programs import ParallelOptions
from samba_onnx.passes.targets import load_target
from samba_onnx.pef import Pef
from samba_onnx.pef.manifest import Manifest
from samba_onnx.program.program import Program
from samba_onnx.safety.collecting import collections_deferred
from samba_onnx.safety.files import printable
from samba_onnx.safety.frames import frames_together
from samba_onnx.tensor.arrays import compiled_array, to_array
from samba_onnx.tensor.lazy_parameters import LAZY
from samba_onnx.workflows.compiler import analyze_programs, compile_programs
from samba_onnx.workflows.configurations import from_configuration, stated_positions
from samba_onnx.workflows.factories import RETURNS, call_factory
from samba_onnx.workflows.half_types import precision_for
from samba_onnx.workflows.model_sources import is_configuration
from samba_onnx.workflows.planning import Progress
from samba_onnx.workflows.torch_fitting import resized, torch_dimension
from samba_onnx.workflows.torch_models import TorchModel, export_model
from samba_onnx.workflows.torch_programs import (
    Training,
    attached_losses,
    keeps_activations,
    named_inputs,
    recorded_program,
    wanted_input_gradients,
)
from samba_onnx.workflows.translation_files import load_translations

__all__ = [
    "TorchModel",
    "analyze_torch",
    "export_trained",
    "load_torch_model",
    "load_translations",
    "port",
    "port_training",
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


def port(
    model: TorchModel,
    output: str | os.PathLike[str],
    *,
    target: str = DEFAULT_TARGET,
    level: str = DEFAULT_LEVEL,
    placement: str = DEFAULT_PLACEMENT,
    host: str = DEFAULT_HOST,
    legalisation: LegalisationOptions | None = None,
    fusion: FusionOptions | None = None,
    sample: bool = True,
    check: bool = True,
    spatial_batches: int = 0,
    check_passes: bool = False,
    metadata: Mapping[str, str] | None = None,
    parallel: ParallelOptions | None = None,
    precision: str | None = None,
    progress: Progress | None = None,
) -> Pef:
    """Convert a torch model into a PEF that carries its weights, unless the module has some without values.

    Args:
        model: The module, in the mode in which it is to run.
        output: The PEF to write.
        target: The device: a name or the path of a profile.
        level: ``o0``, ``o1`` or ``o3``.
        placement: ``optimal`` or ``strict``, as for ``convert``.
        host: The CPU: ``default`` or the path of a profile.
        legalisation: Which rules write what the target lacks; None for those that save time.
        fusion: Which rules of fusion count at ``o1``; None for those of the target.
        sample: Keep the example inputs with eager torch's outputs, for self-tests.
        check: Compute the outputs by what was exported and by eager torch, and refuse to write the
            PEF if they differ.
        spatial_batches: Mini-batches of a run in spatial mapping, without a sample, which would be of
            one; 0 for section mapping.
        check_passes: Run the program after every pass of the compiler that changes it, and refuse to go
            on when it computes something else.
        metadata: Key-value pairs to keep.
        parallel: For how many RDUs it is cut, and how; None for one.
        precision: In which types operators compute that state float32, as ``convert`` takes it.
        progress: Called with the name of each step before it begins.

    Returns:
        The PEF that was written, open for reading.

    Raises:
        ModelError: The module cannot be exported.
        ExportMismatchError: What was exported computes something else; the message names the first
            operator that does.
        EngineRefusalError: What was exported cannot be run; the message names the operator.
        UsageError: Inputs do not fit, or the level is unknown.
        OutOfDeviceMemoryError: The model does not fit into the target's memory.
        OutputError: The PEF cannot be written.
    """
    report = progress or (lambda _: None)
    report("export")
    with computing_in(precision_for(load_target(target), precision)):
        exported = export_model(model)
        program = exported.program
        if check:
            report("compare with torch")
            comparison = compare_with_eager(model.module, model.args, exported, model.keywords)
            program = dataclasses.replace(program, notes=(*program.notes, *comparison.notes))
        reference = Sample()
        if sample and not spatial_batches:
            report("run in torch")
            reference = _sample(model, exported)
    contents, notes = _contents(model, exported)
    program = dataclasses.replace(program, notes=(*program.notes, *notes))
    residents = _residents(exported, contents)
    return compile_programs(
        [dataclasses.replace(program, spatial_batches=spatial_batches)],
        output,
        target=target,
        level=level,
        placement=placement,
        host=host,
        legalisation=legalisation,
        fusion=fusion,
        name=model.name,
        metadata=metadata,
        residents=residents,
        sample=reference,
        check_passes=check_passes,
        parallel=parallel,
        progress=report,
    )


def port_training(
    model: TorchModel,
    output: str | os.PathLike[str],
    *,
    check: bool = True,
    spatial_batches: int = 0,
    loss_indices: Sequence[int] | None = None,
    precision: str | None = None,
    stochastic_rounding: str | Iterable[str] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Pef:
    """Compile a torch model with its optimizers, as ``samba.session.compile`` does.

    Args:
        model: The module in training mode, with its optimizers.
        output: The PEF to write, without weights: ``trace_graph`` sends those of the module.
        check: Compare what was exported with eager torch, and refuse if it differs.
        spatial_batches: Mini-batches of a run in spatial mapping; 0 for section mapping.
        loss_indices: Outputs that training starts from; None for those that a loss made, or else all.
        precision: In which types operators compute that state float32, as ``convert`` takes it.
        stochastic_rounding: What a program that trains rounds to bfloat16 at random, as ``roundings_of``
            takes it.
        progress: Called with the name of each step before it begins.
        **options: Target, level, number of RDUs and all else that
            ``samba_onnx.workflows.compiler.compile_programs`` takes.

    Returns:
        The PEF that was written, open for reading.

    Raises:
        ModelError: The module cannot be exported or differentiated.
        ExportMismatchError: What was exported computes something else.
        EngineRefusalError: What was exported cannot be run.
        UsageError: Inputs do not fit, an optimizer cannot be compiled, or an output does not exist.
        OutOfDeviceMemoryError: The model does not fit into the target's memory.
        OutputError: The PEF cannot be written.
    """
    report = progress or (lambda _: None)
    with computing_in(precision_for(load_target(options.get("target", DEFAULT_TARGET)), precision)):
        program = _training_program(model, loss_indices, check, report, _level(options))
    program = round_stochastically(program, roundings_of(stochastic_rounding))
    program = dataclasses.replace(program, spatial_batches=spatial_batches)
    return compile_programs([program], output, name=model.name, progress=report, **options)


def _training_program(
    model: TorchModel,
    loss_indices: Sequence[int] | None,
    check: bool,
    report: Progress,
    level: str,
) -> Program:
    report("export")
    losses = attached_losses(model.module, loss_indices)
    inputs = named_inputs(model.module, dict(model.keywords) or model.args)
    training = Training(
        losses,
        keeps_activations=keeps_activations(level),
        input_gradients=wanted_input_gradients(model.module, inputs),
    )
    with LAZY.paused():  # a module that was made lazily is exported without its values
        return recorded_program(model.module, inputs, model.optimizers, training, check=check)


def analyze_torch(
    model: TorchModel,
    *,
    spatial_batches: int = 0,
    loss_indices: Sequence[int] | None = None,
    precision: str | None = None,
    stochastic_rounding: str | Iterable[str] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Manifest:
    """Say how a torch model would convert, without writing or comparing anything.

    Args:
        model: The module, in its mode; with optimizers, the program that trains is analyzed.
        spatial_batches: Mini-batches of a run in spatial mapping; 0 for section mapping.
        loss_indices: With optimizers, the outputs that training starts from; None as for ``port_training``.
        precision: In which types operators compute that state float32, as ``convert`` takes it.
        stochastic_rounding: What a program that trains rounds to bfloat16 at random, as ``roundings_of``
            takes it.
        progress: Called with the name of each step before it begins.
        **options: Target, level, number of RDUs and all else that
            ``samba_onnx.workflows.compiler.analyze_programs`` takes.

    Raises:
        ModelError: The module cannot be exported, or a loss not differentiated.
        UsageError: Inputs do not fit, the level is unknown, or it cannot be mapped spatially.
        OutOfDeviceMemoryError: The model does not fit into the target's memory.
    """
    with computing_in(precision_for(load_target(options.get("target", DEFAULT_TARGET)), precision)):
        program = torch_program(
            model, loss_indices=loss_indices, level=_level(options), progress=progress
        )
    program = round_stochastically(program, roundings_of(stochastic_rounding))
    mapped = dataclasses.replace(program, spatial_batches=spatial_batches)
    return analyze_programs([mapped], name=model.name, progress=progress, **options)


def _level(options: Mapping[str, Any]) -> str:
    return str(options.get("level", DEFAULT_LEVEL))


def torch_program(
    model: TorchModel,
    *,
    loss_indices: Sequence[int] | None = None,
    level: str = DEFAULT_LEVEL,
    progress: Progress | None = None,
) -> Program:
    """Return the program of a torch model, which is compared with nothing.

    Args:
        model: The module, in its mode, with or without values; with optimizers, its program trains.
        loss_indices: With optimizers, the outputs that training starts from; None as for ``port_training``.
        level: The level that it is to be planned for.
        progress: Called with the name of each step before it begins.

    Raises:
        ModelError: The module cannot be exported, or a loss not differentiated.
        UsageError: Inputs do not fit.
    """
    report = progress or (lambda _: None)
    if model.optimizers:
        return _training_program(model, loss_indices, False, report, level)
    report("export")
    return export_model(model).program


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
    members.update(model.module.named_parameters(remove_duplicate=False))
    members.update(model.module.named_buffers(remove_duplicate=False))
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
