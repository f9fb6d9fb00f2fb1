"""Comparison of an exported training step with torch's autograd."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from samba_onnx.errors import ExportMismatchError
from samba_onnx.export.capture.modules import Inputs, arguments
from samba_onnx.export.capture.outputs import plain_outputs
from samba_onnx.export.capture.restoring import members_replaced
from samba_onnx.export.capture.samba_calls import samba_calls
from samba_onnx.export.programs.inference import Exported
from samba_onnx.facts.names import GRADIENT, LOSSES, UPDATED, ZEROED
from samba_onnx.facts.tolerances import (
    GRADIENT_OF_LARGEST,
    NEGLIGIBLE_GRADIENT,
    TIMES_TORCHS_ERROR,
)
from samba_onnx.functional.host_operators import HOST_OPERATORS
from samba_onnx.program.kinds import SectionType
from samba_onnx.program.program import Part, Program
from samba_onnx.tensor import SambaTensor
from samba_onnx.tensor.gradient_hooks import share_hooks
from samba_onnx.workflows.checking.dropouts import CONDITION, rates_at_zero
from samba_onnx.workflows.checking.inference import compare_part
from samba_onnx.workflows.checking.numbers import to_array, zeros
from samba_onnx.workflows.checking.outcome import (
    Comparison,
    NotComparableError,
    done,
    not_comparable,
)
from samba_onnx.workflows.checking.refusals import refuse_unless_prepared
from samba_onnx.workflows.checking.running import feeds_of, run_part


@samba_calls()
def compare_training(module: nn.Module, inputs: Inputs, exported: Exported) -> Comparison:
    """Run an exported forward and backward on the engine, and compare them with torch.

    Active dropouts are compared with their rates at 0, for the masks of torch and of the device
    differ.

    Args:
        module: With the weights to compare with; its parameters keep their gradients.
        inputs: What it was exported with.
        exported: As ``export_training`` returns it.

    Returns:
        The errors of outputs and gradients; or why the module cannot be compared, after an engine
        prepared all parts of what was exported all the same.

    Raises:
        ExportMismatchError: An output or a gradient differs; the message names it.
        EngineRefusalError: The engine refuses an operator; the error names the type of the section.
    """
    program = exported.program
    try:
        errors = _errors_of_step(module, inputs, exported)
    except NotComparableError as obstacle:
        for part in program.parts:
            refuse_unless_prepared(part)
        return not_comparable(str(obstacle))
    for part in program.parts:
        if part.type not in (SectionType.FWD, SectionType.BCKWD):  # which were run
            refuse_unless_prepared(part)
        if part.type is SectionType.ZEROGRAD:
            _refuse_unless_zero(part)
    return done(errors, CONDITION if program.argins else "")


def _refuse_unless_zero(part: Part) -> None:
    """Run the part that sets gradients to zero, and look at what it leaves."""
    for name, values in run_part(part, {}).items():
        if values.any():
            raise ExportMismatchError(
                f"the exported graph sets {name.removesuffix(ZEROED)!r} to other numbers than zero;"
                " please report this, or skip the comparison"
            )


def _errors_of_step(module: nn.Module, inputs: Inputs, exported: Exported) -> dict[str, float]:
    """Compare outputs and gradients; return the largest error of each."""
    args, keywords = arguments(inputs)
    forward = compare_part(module, inputs, exported, _part(exported.program, SectionType.FWD))
    feeds = feeds_of(module, pytree.tree_leaves((args, keywords)), exported)
    values = _backward(exported.program, {**feeds, **forward.values})
    torchs = _gradients(module, args, keywords, exported)
    ours = {name: _gradient_of(values, name) for name in torchs}
    errors = _errors(ours, torchs)
    wrong = {name: error for name, error in errors.items() if not error <= GRADIENT_OF_LARGEST}
    if wrong:
        # Gradients behind normalisations lose many digits in torch, too: let float64 judge.
        exact = _exact_gradients(module, args, keywords, exported)
        our_errors, torchs_errors = _errors(ours, exact), _errors(torchs, exact)
        for name, error in wrong.items():
            allowed = TIMES_TORCHS_ERROR * torchs_errors.get(name, 0.0)
            if not our_errors.get(name, error) <= allowed:
                raise ExportMismatchError(
                    f"the gradient of {name!r} in the exported graph differs from torch's by "
                    f"{error:.2g} of its largest number; please report this, or skip the comparison"
                )
    return {**forward.errors, **{f"{name}{GRADIENT}": error for name, error in errors.items()}}


def _gradient_of(values: Mapping[str, NDArray[Any]], parameter: str) -> NDArray[np.float64]:
    gradient = f"{parameter}{GRADIENT}"
    name = gradient if gradient in values else f"{gradient}{UPDATED}"
    return values[name].astype(np.float64)


def _errors(
    gradients: Mapping[str, NDArray[np.float64]], expected: Mapping[str, NDArray[np.float64]]
) -> dict[str, float]:
    """Return the largest error of each gradient, as a fraction of its largest number.

    Numbers that are not finite must be the same ones at the same places.
    """
    scales = {name: _largest(array) for name, array in expected.items()}
    negligible = NEGLIGIBLE_GRADIENT * max(scales.values(), default=0.0)
    errors = {}
    for name, array in expected.items():
        finite, actual = np.isfinite(array), gradients[name]
        if not np.array_equal(actual[~finite], array[~finite], equal_nan=True):
            errors[name] = math.inf
            continue
        scale = max(scales[name], negligible)
        error = float(np.abs(actual[finite] - array[finite]).max(initial=0.0))
        errors[name] = error / scale if scale else error
    return errors


def _largest(array: NDArray[np.float64]) -> float:
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0))


def _part(program: Program, kind: SectionType) -> Part:
    return next(part for part in program.parts if part.type is kind)


def _backward(program: Program, feeds: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Run the backward part, if there is one, with gradients of one for the losses.

    Args:
        program: The program of one step.
        feeds: What the forward part read and what it computed.
    """
    if all(part.type is not SectionType.BCKWD for part in program.parts):
        return {}
    backward = _part(program, SectionType.BCKWD)
    losses = json.loads(program.metadata.get(LOSSES, "[]"))
    gradients = {}
    for value in backward.model.graph.inputs:
        name = value.name or ""
        if name not in feeds:
            seed = name.removesuffix(GRADIENT) in losses
            gradients[name] = np.ones_like(zeros(value)) if seed else zeros(value)
    return run_part(backward, {**feeds, **gradients})


def _gradients(
    module: nn.Module,
    args: tuple[Any, ...],
    keywords: Mapping[str, Any],
    exported: Exported,
    *,
    double: bool = False,
) -> dict[str, NDArray[np.float64]]:
    """Return autograd's gradients by the names of the parameters."""
    change = _doubled if double else _plain
    parameters = dict(module.named_parameters(remove_duplicate=False))
    written = {id(parameters[p]) for p in exported.captured.updates if p in parameters}
    twins: dict[int, nn.Parameter] = {}

    def counterpart(tensor: Tensor) -> Tensor:
        if not isinstance(tensor, nn.Parameter):
            copied: Tensor = change(tensor.clone())
            return copied
        values = change(tensor.detach())
        values = values.clone() if id(tensor) in written else values
        twins[id(tensor)] = nn.Parameter(values.detach(), tensor.requires_grad)
        share_hooks(tensor, twins[id(tensor)])
        return twins[id(tensor)]

    losses = set(json.loads(exported.program.metadata.get(LOSSES, "[]")))
    operands, named = pytree.tree_map(lambda x: _copied(change(x)), (args, dict(keywords)))
    rates = rates_at_zero() if exported.program.argins else contextlib.nullcontext()
    with (
        members_replaced(module, counterpart),
        torch.enable_grad(),
        HOST_OPERATORS.paused(),
        rates,
    ):
        outputs = pytree.tree_leaves(plain_outputs(module, module(*operands, **named)))
        chosen = [o for name, o in zip(exported.outputs, outputs, strict=True) if name in losses]
        seeds = [torch.ones_like(loss) for loss in chosen]
        own = {n: twins[id(parameters[p])] for n, p in exported.members.items() if p in parameters}
        leaves = {name: parameter for name, parameter in own.items() if parameter.requires_grad}
        # Not autograd.grad, which leaves out hooks that run after accumulation.
        torch.autograd.backward(chosen, seeds, inputs=list(leaves.values()))
    return {
        name: to_array(leaf.grad).astype(np.float64)
        for name, leaf in leaves.items()
        if leaf.grad is not None
    }


def _exact_gradients(
    module: nn.Module, args: tuple[Any, ...], keywords: Mapping[str, Any], exported: Exported
) -> dict[str, NDArray[np.float64]]:
    """Return the gradients in float64; none for a module that insists on another type."""
    try:
        return _gradients(module, args, keywords, exported, double=True)
    except RuntimeError:
        return {}


def _plain(leaf: Any) -> Any:
    return leaf.torch_tensor() if isinstance(leaf, SambaTensor) else leaf


def _copied(leaf: Any) -> Any:
    """Return a tensor that a module may write to."""
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf


def _doubled(leaf: Any) -> Any:
    plain = _plain(leaf)
    floating = isinstance(plain, torch.Tensor) and plain.is_floating_point()
    return plain.double() if floating else plain
