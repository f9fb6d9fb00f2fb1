"""From a torch module and its optimizers to a program, compared with eager torch, and its record.

Sessions and ``samba-port convert`` come here: what they write for one module is the same.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from samba_onnx.comparing.eager.inference import compare_with_eager
from samba_onnx.comparing.eager.optimizers import compare_updates
from samba_onnx.comparing.eager.training import compare_training
from samba_onnx.compiling.torch.built_in import built_in
from samba_onnx.compiling.torch.session_records import (
    GraphRecord,
    onnx_record,
    write_records,
)
from samba_onnx.errors import UsageError
from samba_onnx.export.capture.capture_refusals import refuse_scripted
from samba_onnx.export.capture.captured_modules import Captured, Inputs, arguments
from samba_onnx.export.capture.captured_modules import input_names as flat_names
from samba_onnx.export.programs.inference import export_inference
from samba_onnx.export.programs.losses_rule import LossChoice
from samba_onnx.export.programs.renaming import with_output_names
from samba_onnx.export.programs.training import export_training
from samba_onnx.export.programs.training_steps import optimizer_records, with_optimizers
from samba_onnx.importing import OnnxModule
from samba_onnx.optim import OptimizerRecord, to_json
from samba_onnx.program.fingerprint import fingerprint
from samba_onnx.program.program import DEFAULT_GRAPH, Program
from samba_onnx.tensor.inputs import name_inputs

LOGGER: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class Training:
    """How a program trains."""

    loss_indices: Any = None
    """Outputs that training starts from: positions, or paths into nested outputs. None chooses
    those that a loss function made, or else all."""
    gradient_accumulation: bool = False
    """Whether backward passes add to gradients, which ZEROGRAD sections set to zero."""
    keeps_activations: bool = False
    """Whether forward passes keep what backward passes read, rather than what that is computed from."""
    input_gradients: tuple[str, ...] = ()
    """Names of the inputs that get gradients, as ``wanted_input_gradients`` finds them."""


def wanted_input_gradients(model: nn.Module, inputs: Inputs) -> tuple[str, ...]:
    """Return the names of the inputs that a program is to have gradients of.

    They are those that require gradients, by ``requires_grad=True`` or ``requires_grad_()``, when the
    program is compiled; ``sn_grad`` has what the backward leaves (SambaTensor's reference: it
    "requires that the tensor was compiled with requires_grad=True").

    Args:
        model: What they are inputs of.
        inputs: Arguments of ``forward``, tensors with their names.
    """
    flat = flat_names(model, *arguments(inputs))
    return tuple(name for name, leaf in flat if isinstance(leaf, Tensor) and leaf.requires_grad)


def keeps_activations(level: str) -> bool:
    """Return whether programs of a level keep activations.

    Where sections are as large as memory allows, arithmetic is computed again in the section that reads it. At other
    levels it would be a section of its own, which moves more bytes than it saves.

    Args:
        level: One of ``o0``, ``o1`` and ``o3``.
    """
    return level != "o3"


def named_inputs(model: Any, inputs: Any) -> Any:
    """Give every tensor among a model's example inputs a name; see ``inputs.name_inputs``.

    Args:
        model: What is compiled or traced. Inputs of a module made of an ONNX model have the names
            of that model, and may be given by them.
        inputs: As users give them.

    Raises:
        UsageError: Inputs are of another kind, or two have one name.
        ModelError: The model was made by torch.jit.
    """
    if isinstance(model, nn.Module):
        refuse_scripted(model)
    if not isinstance(model, OnnxModule):
        return name_inputs(model, inputs)
    # A tensor alone would be taken apart into its rows below.
    if isinstance(inputs, Tensor):
        inputs = (inputs,)
    keywords = dict(zip(model.input_names, model.input_keywords, strict=True))
    names = {keyword: name for name, keyword in keywords.items()}
    # Tensors have the names of the ONNX model; forward takes keywords that stand for these.
    if isinstance(inputs, Mapping):
        named = name_inputs(model, {names.get(key, key): value for key, value in inputs.items()})
        return {keywords.get(key, key): value for key, value in named.items()}
    # name_inputs refuses what does not fit, and says why.
    if not isinstance(inputs, (list, tuple)) or len(inputs) > len(keywords):
        return name_inputs(model, inputs)
    return tuple(name_inputs(model, dict(zip(keywords, inputs, strict=False))).values())


def attached_losses(model: Any, loss_indices: Any) -> Any:
    """Return which outputs are losses: those that were given, else those that were attached.

    Args:
        model: What is compiled.
        loss_indices: As a user gave them; None for no choice.
    """
    if loss_indices is None and isinstance(model, OnnxModule) and model.losses:
        return list(model.loss_indices)
    return loss_indices


def recorded_program(
    model: nn.Module,
    inputs: Inputs,
    optimizers: Sequence[Optimizer] = (),
    training: Training | None = None,
    *,
    check: bool = False,
) -> Program:
    """Return the program of a module with the record for the session that will run it.

    Args:
        model: The module, in the mode in which it is to run.
        inputs: Arguments of ``forward``, tensors with their names.
        optimizers: Optimizers that step at the end of every run that trains.
        training: How the program trains; None for a program that only runs forward.
        check: Compare outputs, gradients and steps of optimizers with those of eager torch.

    Returns:
        A program whose metadata has its record, so that whoever compiles it writes the same PEF.

    Raises:
        GradientError: A loss cannot be differentiated.
        ExportMismatchError: An output, a gradient, or a step of an optimizer differs from torch's.
        EngineRefusalError: An operator of what was exported cannot be run.
        ModelError: The module does what a program cannot do.
        UsageError: Inputs do not fit, or an optimizer cannot be compiled or has parameters of
            another model.
    """
    of_module = GraphRecord("", onnx=onnx_record(model), built_in=built_in(model, inputs))
    if training is None:
        program = forward_program(model, inputs, check=check)
        return _with_record(program, of_module)
    records = optimizer_records(model, optimizers)
    _tell_of_mode(model, optimizers)
    program, losses = trained_program(model, inputs, records, training, check=check)
    record = dataclasses.replace(
        of_module,
        training=True,
        loss_indices=list(losses),
        gradient_accumulation=training.gradient_accumulation,
        keeps_activations=training.keeps_activations,
        input_gradients=list(training.input_gradients),
        optimizers=[to_json(record) for record in records],
    )
    return _with_record(program, record)


def _tell_of_mode(model: nn.Module, optimizers: Sequence[Optimizer]) -> None:
    """Say that a model in evaluation mode is compiled to be trained, which is seldom meant."""
    if not model.training and optimizers:
        LOGGER.warning(
            "%s is in evaluation mode, and is compiled with %s to be trained so: nothing is dropped, "
            "and statistics of batches stay. Call train() before compiling, and before tracing; "
            "leave it out to train with dropouts and statistics fixed.",
            type(model).__name__,
            ", ".join(type(optimizer).__name__ for optimizer in optimizers),
        )


def _with_record(program: Program, record: GraphRecord) -> Program:
    """Return a program with its record, and its fingerprint in that."""
    record = dataclasses.replace(record, fingerprint=fingerprint(program).text())
    metadata = {**program.metadata, **write_records({program.name: record})}
    return dataclasses.replace(program, metadata=metadata)


def forward_program(model: nn.Module, inputs: Inputs, *, check: bool = False) -> Program:
    """Return the program that runs a module forward.

    Args:
        model: The module, in the mode in which it is to run.
        inputs: Arguments of ``forward``, tensors with their names.
        check: Compare outputs with those of eager torch.

    Raises:
        ExportMismatchError: An output differs from torch's.
        EngineRefusalError: An operator of what was exported cannot be run.
        ModelError: The module does what a program cannot do.
        UsageError: Inputs do not fit.
    """
    exported = export_inference(model, inputs, name=DEFAULT_GRAPH)
    notes = logged_notes(model, exported.captured)
    notes += compare_with_eager(model, inputs, exported).notes if check else ()
    program = dataclasses.replace(exported.program, notes=notes)
    return with_output_names(program, _output_names(model))


def trained_program(
    model: nn.Module,
    inputs: Inputs,
    optimizers: Sequence[OptimizerRecord],
    training: Training,
    *,
    check: bool = False,
) -> tuple[Program, tuple[int, ...]]:
    """Return the program that trains a module, and the positions of its losses.

    Losses that are guessed are logged, and noted in the program.

    Args:
        model: The module, in the mode in which it is to be trained.
        inputs: Arguments of ``forward``, tensors with their names.
        optimizers: Optimizers of its parameters; without any, the program has no OPT part.
        training: Which outputs are losses, whether gradients accumulate, and what is kept for them.
        check: Compare outputs and gradients with those of eager torch, and the steps of the
            optimizers with those of torch.optim.

    Raises:
        GradientError: A loss cannot be differentiated.
        ExportMismatchError: An output, a gradient, or a step of an optimizer differs from torch's.
        EngineRefusalError: An operator of what was exported cannot be run.
        ModelError: The module does what a program cannot do.
        UsageError: Inputs do not fit, or an optimizer has parameters of another model.
    """
    if torch.is_inference_mode_enabled():
        raise UsageError(
            f"{type(model).__name__} is to be trained, within torch.inference_mode(), where torch "
            "computes no gradients: compile and trace outside of it; torch.no_grad() is no obstacle"
        )
    exported = export_training(model, inputs, name=DEFAULT_GRAPH, **dataclasses.asdict(training))
    assert exported.losses is not None
    notes = logged_notes(model, exported.captured)
    notes += _loss_notes(model, exported.losses, exported.outputs)
    notes += compare_training(model, inputs, exported).notes if check else ()
    program = dataclasses.replace(exported.program, notes=notes)
    program = with_output_names(program, _output_names(model))
    whole = with_optimizers(program, optimizers)
    if check:
        # The parts of optimizers are behind the others.
        updates = compare_updates(optimizers, whole.parts[len(program.parts) :])
        whole = dataclasses.replace(whole, notes=(*whole.notes, *updates.notes))
    return whole, exported.losses.positions


def logged_notes(model: nn.Module, graph: Captured) -> tuple[str, ...]:
    """Log what a module returns and its program does not, and return it for the program.

    Args:
        model: What was captured.
        graph: As it was captured.
    """
    for note in graph.notes:
        LOGGER.warning("%s", note)
    return graph.notes


def _loss_notes(
    model: nn.Module, losses: LossChoice, names: Sequence[str | None]
) -> tuple[str, ...]:
    """Log which outputs were taken for losses, and return it for the program; nothing if named."""
    sentence = losses.sentence(_output_names(model) or names)
    if not sentence:
        return ()
    # A guess that may be wrong is a warning; one that is plain is only told.
    level = logging.WARNING if losses.is_doubtful else logging.INFO
    LOGGER.log(level, "%s: %s", type(model).__name__, sentence)
    return (sentence,)


def _output_names(model: nn.Module) -> Sequence[str] | None:
    """Return the names that an ONNX model has for its outputs; None for torch's own modules."""
    return model.output_names if isinstance(model, OnnxModule) else None
