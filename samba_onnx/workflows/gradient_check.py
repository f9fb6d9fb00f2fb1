"""Comparison of an exported training step with torch's autograd."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils import _pytree as pytree

from samba_onnx.errors import ExportMismatchError
from samba_onnx.export.capture.branches import missing_values
from samba_onnx.export.capture.modules import Inputs, arguments
from samba_onnx.export.programs.inference import Exported
from samba_onnx.facts.names import GRADIENT, LOSSES, UPDATED
from samba_onnx.functional.host_operators import HOST_OPERATORS
from samba_onnx.program.kinds import SectionType
from samba_onnx.program.program import Part, Program
from samba_onnx.tensor import SambaTensor
from samba_onnx.workflows.eager_check import compare_part, feeds_of, run_model, to_array

TOLERANCE: Final = 2e-3
"""Largest error of a gradient, as a fraction of its largest number: gradients are sums of many
more terms than outputs, of both signs."""
ALLOWED: Final = 10.0
"""How many times torch's own error against float64 an error may be."""
NEGLIGIBLE: Final = 1e-3
"""Part of the largest gradient of all below which a parameter's gradient may be noise: behind a
normalisation, that of a bias is zero but for rounding."""


def compare_training(module: nn.Module, inputs: Inputs, exported: Exported) -> str:
    """Run an exported forward and backward in onnxruntime, and compare them with torch.

    Args:
        module: With the weights to compare with; its parameters keep their gradients.
        inputs: What it was exported with.
        exported: As ``export_training`` returns it.

    Returns:
        Why nothing was compared; empty if all was.

    Raises:
        ExportMismatchError: An output or a gradient differs; the message names it.
    """
    args, keywords = arguments(inputs)
    program = exported.program
    if program.argins:
        return "dropout masks are drawn on the device"
    missing = missing_values(module, (args, keywords))
    if missing:
        return missing
    comparison = compare_part(module, inputs, exported, _part(program, SectionType.FWD))
    if comparison.skipped:
        return comparison.skipped
    made = _step(module, pytree.tree_leaves((args, keywords)), exported)
    if isinstance(made, str):
        return made
    wanted = _gradients(module, args, keywords, exported)
    found = {name: _gradient_of(made, name) for name in wanted}
    wrong = {name: error for name, error in _errors(found, wanted).items() if error > TOLERANCE}
    if not wrong:
        return ""
    # Gradients behind normalisations lose many digits in torch, too: let float64 judge.
    exact = _exact_gradients(module, args, keywords, exported)
    ours, torchs = _errors(found, exact), _errors(wanted, exact)
    wrong = {n: e for n, e in wrong.items() if not ours.get(n, e) <= ALLOWED * torchs.get(n, 0.0)}
    for name, error in wrong.items():
        raise ExportMismatchError(
            f"the gradient of {name!r} in the exported graph differs from torch's by {error:.2g} of "
            "its largest number; please report this, or skip the comparison"
        )
    return ""


def _gradient_of(made: Mapping[str, NDArray[Any]], name: str) -> NDArray[np.float64]:
    gradient = f"{name}{GRADIENT}"
    return made[gradient if gradient in made else f"{gradient}{UPDATED}"].astype(np.float64)


def _errors(
    found: Mapping[str, NDArray[np.float64]], wanted: Mapping[str, NDArray[np.float64]]
) -> dict[str, float]:
    """Return the largest error of each gradient, as a fraction of its largest number."""
    largest = max((float(np.abs(array).max(initial=0.0)) for array in wanted.values()), default=0.0)
    errors = {}
    for name, array in wanted.items():
        scale = max(float(np.abs(array).max(initial=0.0)), NEGLIGIBLE * largest)
        error = float(np.abs(found[name] - array).max(initial=0.0))
        errors[name] = error / scale if scale else error
    return errors


def _part(program: Program, kind: SectionType) -> Part:
    return next(part for part in program.parts if part.type is kind)


def _step(module: nn.Module, flat: list[Any], exported: Exported) -> dict[str, NDArray[Any]] | str:
    """Run forward and backward with gradients of one for the losses."""
    program = exported.program
    feeds = feeds_of(module, flat, exported)
    forward = run_model(_part(program, SectionType.FWD).model, feeds)
    if isinstance(forward, str) or all(p.type is not SectionType.BCKWD for p in program.parts):
        return forward
    backward = _part(program, SectionType.BCKWD).model
    feeds = {**feeds, **forward}
    for value in backward.graph.inputs:
        name = value.name or ""
        if name in feeds:
            continue
        shape = () if value.shape is None else tuple(value.shape.numpy())
        dtype = np.float32 if value.dtype is None else value.dtype.numpy()
        seed = name.removesuffix(GRADIENT) in json.loads(program.metadata.get(LOSSES, "[]"))
        feeds[name] = np.full(shape, 1 if seed else 0, dtype)
    return run_model(backward, feeds)


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
    members = {
        path: change(tensor.detach()).detach().requires_grad_(tensor.requires_grad)
        for path, tensor in module.named_parameters()
    }
    buffers = {path: change(buffer.clone()) for path, buffer in module.named_buffers()}
    first = {id(parameters[path]): path for path in reversed(members)}
    paths = {n: first[id(parameters[p])] for n, p in exported.members.items() if p in parameters}
    wanted = {name: members[path] for name, path in paths.items() if members[path].requires_grad}
    losses = set(json.loads(exported.program.metadata.get(LOSSES, "[]")))
    given, named = pytree.tree_map(change, (args, dict(keywords)))
    with torch.enable_grad(), torch.random.fork_rng(devices=[]), HOST_OPERATORS.paused():
        returned = torch.func.functional_call(module, {**members, **buffers}, given, named)
        outputs = pytree.tree_leaves(returned)
        chosen = [o for name, o in zip(exported.outputs, outputs, strict=True) if name in losses]
        seeds = [torch.ones_like(loss) for loss in chosen]
        found = torch.autograd.grad(chosen, list(wanted.values()), seeds, allow_unused=True)
    return {
        name: to_array(gradient).astype(np.float64)
        for name, gradient in zip(wanted, found, strict=True)
        if gradient is not None
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


def _doubled(leaf: Any) -> Any:
    plain = _plain(leaf)
    floating = isinstance(plain, torch.Tensor) and plain.is_floating_point()
    return plain.double() if floating else plain
