"""From what a user gives to a program that can be compiled, and its tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
import torch
from torch import nn
from torch.optim import Optimizer

from samba_onnx.errors import UsageError
from samba_onnx.export.naming import root_name
from samba_onnx.export.programs.inference import symbols
from samba_onnx.export.programs.optimizers import optimizer_parts
from samba_onnx.export.programs.training import differentiated, with_parts
from samba_onnx.export.programs.training import export_training as export_halves
from samba_onnx.export.translation.builder import element, sizes
from samba_onnx.optim import OptimizerRecord, optimizer_record
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.program.program import Program
from samba_onnx.sessions.arrays import torch_dtype
from samba_onnx.sessions.fingerprint import fingerprint
from samba_onnx.sessions.inputs import tensors_of
from samba_onnx.sessions.output_names import with_own_names
from samba_onnx.sessions.traced import TracedGraph, host_buffers, host_parameters
from samba_onnx.tensor import SambaTensor
from samba_onnx.workflows.gradient_check import compare_training, prepare_parts

FORWARD = "forward"
"""Name of the graph of a PEF that has only one."""


def optimizer_list(optimizers: Optimizer | Sequence[Optimizer] | None) -> list[Optimizer]:
    """Return optimizers as a list.

    Args:
        optimizers: None, one, or several.

    Raises:
        UsageError: One is no optimizer.
    """
    given = [] if optimizers is None else optimizers
    listed = [given] if isinstance(given, Optimizer) else list(given)
    for optimizer in listed:
        if not isinstance(optimizer, Optimizer):
            raise UsageError(
                f"an optimizer is {type(optimizer).__name__}; give one of samba.optim, or a list"
            )
    return listed


@dataclass(frozen=True)
class Halves:
    """What a program has besides its forward half."""

    training: bool = False
    loss_indices: Any = None
    gradient_accumulation: bool = False


def export_training(
    model: nn.Module,
    inputs: Any,
    optimizers: Sequence[OptimizerRecord],
    halves: Halves,
    name: str = FORWARD,
    *,
    check: bool = False,
) -> Program:
    """Return the program that trains a module.

    Args:
        model: The module.
        inputs: Named tensors, as ``name_inputs`` returns them.
        optimizers: Of its parameters; without any, there is no OPT part.
        halves: Which losses, and whether gradients accumulate.
        name: Of the program.
        check: Compare outputs and gradients with torch's.

    Raises:
        GradientError: A loss cannot be differentiated.
        ExportMismatchError: An output or a gradient differs from torch's.
        EngineRefusalError: The engine refuses an operator of any part.
        ModelError: The module does what a program cannot do.
        UsageError: Inputs do not fit, or an optimizer has parameters of another model.
    """
    exported = export_halves(
        model,
        inputs,
        loss_indices=halves.loss_indices,
        name=name,
        gradient_accumulation=halves.gradient_accumulation,
    )
    program = exported.program
    if check:
        comparison = compare_training(model, inputs, exported)
        program = dataclasses.replace(program, notes=comparison.notes)
    program = with_own_names(program, model)
    if not optimizers:
        return program
    specs = {key: (element(v), sizes(v)) for key, v in differentiated(program).items()}
    added = optimizer_parts(optimizers, specs)
    if check:
        prepare_parts(added.update)
    return with_parts(
        program,
        added.update,
        residents=added.residents,
        regions=added.regions,
        argins=added.argins,
    )


def optimizer_records(
    model: nn.Module, optimizers: Sequence[Optimizer]
) -> tuple[OptimizerRecord, ...]:
    """Describe optimizers.

    Args:
        model: Whose parameters they have.
        optimizers: In the order of compilation.

    Raises:
        UsageError: One cannot be compiled, or has a parameter that is not the model's.
    """
    names = parameter_names(model)
    own = {id(parameter) for parameter in model.parameters()}
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            if any(id(parameter) not in own for parameter in group["params"]):
                raise UsageError(
                    f"{type(optimizer).__name__} has parameters that {type(model).__name__} does "
                    "not have: make it of the parameters of this model, after from_torch_model_"
                )
    return tuple(optimizer_record(one, index, names) for index, one in enumerate(optimizers))


def parameter_names(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return the parameters of a module by the names that they have on the device."""
    known, _ = symbols(model, root_name(model))
    parameters = dict(model.named_parameters(remove_duplicate=False))
    return {known[path]: parameter for path, parameter in parameters.items()}


def traced_graph(
    program: Program, model: nn.Module, inputs: Any, prefix: str | None = None
) -> TracedGraph:
    """Return a program's tensors.

    Args:
        program: Of the module with these inputs.
        model: The module.
        inputs: Named tensors.
        prefix: Of the names of its parameters.
    """
    outputs = {v.name or "": v for part in program.parts for v in part.model.graph.outputs}
    hosts = {**host_parameters(model, prefix), **host_buffers(model, prefix)}
    residents = {name: hosts[name] for name in program.residents if name in hosts}
    kept = (SymbolKind.WEIGHT, SymbolKind.BUFFER)
    given = {v.name for part in program.parts for v in part.model.graph.inputs}
    for name, kind in program.residents.items():
        if kind in kept and name in given and name not in residents:
            raise UsageError(
                f"parameter {name!r} of the traced program is not in the model, which has "
                f"{', '.join(list(hosts)[:8])}, ...: convert the model once, with "
                "samba.from_torch_model_(model)"
            )
    return TracedGraph(
        name=program.name,
        model=model,
        inputs=tuple(dict.fromkeys(tensors_of(inputs))),
        outputs=tuple(_empty_output(name, outputs[name]) for name in program.outputs),
        fingerprint=fingerprint(program),
        residents=residents,
        program=program,
    )


def with_free_outputs(program: Program, taken: Collection[str], prefix: str = "") -> Program:
    """Give a program's outputs names that no other program has.

    Args:
        program: Changed in place where names clash.
        taken: Names that are in use.
        prefix: Goes in front of all of them.

    Returns:
        The program with its new names.
    """
    renamed: dict[str, str] = {}
    for name in program.outputs:
        free, number = f"{prefix}__{name}" if prefix else name, 1
        while free in taken or free in renamed.values():
            free, number = (
                f"{prefix}__{name}_{number}" if prefix else f"{name}_{number}",
                number + 1,
            )
        renamed[name] = free
    if all(old == new for old, new in renamed.items()):
        return program
    for part in program.parts:
        for value in (*part.model.graph.inputs, *part.model.graph.outputs):
            value.name = renamed.get(value.name or "", value.name)
    return dataclasses.replace(
        program,
        outputs=tuple(renamed[name] for name in program.outputs),
        residents={renamed.get(name, name): kind for name, kind in program.residents.items()},
        regions={renamed.get(name, name): place for name, place in program.regions.items()},
    )


def _empty_output(name: str, value: ir.Value) -> SambaTensor:
    shape = () if value.shape is None else value.shape.numpy()
    dtype = torch.float32 if value.dtype is None else torch_dtype(value.dtype.numpy())
    return SambaTensor(shape=shape, dtype=dtype, name=name)
