"""From the optimizers of a module to the parts of its program that update the parameters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from samba_onnx.errors import UsageError
from samba_onnx.export.programs.inference import symbols
from samba_onnx.export.programs.optimizers import optimizer_parts
from samba_onnx.export.programs.training import differentiated, with_parts
from samba_onnx.export.programs.update_rules import LOW_PRECISION
from samba_onnx.export.translation.builder import element, sizes
from samba_onnx.facts.names import root_name, written_name
from samba_onnx.optim import OptimizerRecord, optimizer_record
from samba_onnx.program.program import Program
from samba_onnx.safety.collecting import collections_deferred
from samba_onnx.safety.frames import frames_together


def optimizer_list(optimizers: Optimizer | Sequence[Optimizer] | None) -> list[Optimizer]:
    """Return optimizers as a list.

    Args:
        optimizers: None, one, or several.

    Returns:
        A new list; empty for None.

    Raises:
        UsageError: One of them is no optimizer.
    """
    several = [] if optimizers is None else optimizers
    is_list = isinstance(several, Iterable) and not isinstance(several, type)
    listed: list[Any] = list(several) if is_list else [several]  # type: ignore[arg-type]
    for optimizer in listed:
        if not isinstance(optimizer, Optimizer):
            what = type(optimizer).__name__
            if isinstance(optimizer, type):
                what = f"the class {optimizer.__name__}"
            raise UsageError(
                f"an optimizer is {what}; give one, as samba.optim.SGD(model.parameters(), lr=0.1) "
                "makes it, or a list"
            )
    return listed


def optimizer_records(
    model: nn.Module, optimizers: Sequence[Optimizer]
) -> tuple[OptimizerRecord, ...]:
    """Describe optimizers as programs and PEFs know them.

    Args:
        model: The module whose parameters the optimizers have.
        optimizers: In the order of compilation.

    Returns:
        A record per optimizer, with the device's names of its parameters.

    Raises:
        UsageError: One cannot be compiled, or has a parameter that is not the model's.
    """
    names = parameter_names(model)
    # By identity, as tensors compare element by element.
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
    """Return the parameters of a module by the names that they have on the device.

    Args:
        model: Any module; tied parameters are there once.
    """
    known, _ = symbols(model, root_name(model))
    parameters = dict(model.named_parameters(remove_duplicate=False))
    return {known[path]: parameter for path, parameter in parameters.items()}


@frames_together
@collections_deferred()
def with_optimizers(program: Program, optimizers: Sequence[OptimizerRecord]) -> Program:
    """Return a program that goes on with the steps of optimizers.

    Args:
        program: A program that ``export_training`` made, forward and backward.
        optimizers: Optimizers of the module's parameters; without any, the program stays as it is.

    Raises:
        UsageError: Two optimizers have the same parameter, or one has none that gets a gradient, or
            one that is not floating point, or keeps a float32 copy of one that the forward writes.
    """
    if not optimizers:
        return program
    specs = {name: (element(v), sizes(v)) for name, v in differentiated(program).items()}
    for name, (dtype, _) in specs.items():
        copies = any(
            optimizer.fp32_params and name in optimizer.parameters for optimizer in optimizers
        )
        if copies and dtype in LOW_PRECISION and written_name(name) in program.residents:
            raise UsageError(
                f"parameter {name!r} is written by the forward pass, as max_norm of embeddings does, "
                "and has a float32 copy in the optimizer, which would undo that in every step: make "
                "the optimizer with fp32_params=False, or keep the parameter in float32"
            )
    added = optimizer_parts(optimizers, specs)
    return with_parts(
        program,
        added.update,
        residents=added.residents,
        regions=added.regions,
        argins=added.argins,
    )
