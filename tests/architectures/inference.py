"""From an architecture to a PEF, and in another process from the PEF to values."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import samba_onnx as samba
from samba_onnx.facts.domains import qualified
from samba_onnx.passes.targets.reasons import ReasonCode
from samba_onnx.pef.manifest import Manifest
from samba_onnx.pef.reader import load_pef
from tests.architectures.building import Example, build, example_inputs, tensors
from tests.architectures.record import Architecture

ROUNDING = 2e-5
"""Error, as a fraction of an output's largest number, that is rounding for certain: some dozen
operators of float32 that sum in another order."""

_OTHER = 7
"""Seed of inputs that the compiler has not seen."""


@dataclass(frozen=True)
class Compiled:
    """What the first process made."""

    parameters: int
    nodes: int
    on_rdu: int
    fallbacks: tuple[str, ...]
    """Operators that run on the CPU."""
    seconds: float


@dataclass(frozen=True)
class Outcome:
    """What the second process found."""

    outputs: int
    error: float
    """Largest difference from torch, as a fraction of the largest number of the output."""
    own_error: float
    """The same of torch in float32 from torch in float64; 0 where ``error`` is rounding for
    certain."""
    reaction: float
    """Largest change of an output with other inputs, as a fraction of its largest number."""
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether the error is rounding."""
        return self.error <= max(ROUNDING, 10 * self.own_error)


def pef_path(architecture: Architecture, folder: Path) -> Path:
    """Return where the PEF of an architecture is."""
    return folder / f"{architecture.name}.pef"


def compile_architecture(architecture: Architecture, folder: Path) -> Compiled:
    """Compile an architecture for inference.

    Args:
        architecture: The record.
        folder: Where the PEF goes.
    """
    started = time.perf_counter()
    example = build(architecture)
    samba.session.reset()
    samba.from_torch_model_(example.module)
    path = pef_path(architecture, folder)
    samba.session.compile(example.module, dict(example.inputs), output=path)
    seconds = time.perf_counter() - started
    parameters = sum(parameter.numel() for parameter in example.module.parameters())
    with load_pef(path) as pef:
        return described(pef.manifest, parameters, seconds)


def described(manifest: Manifest, parameters: int, seconds: float) -> Compiled:
    """Return what the table says of a PEF."""
    nodes = sum(stage.nodes for stage in manifest.stages().values())
    fallen = fallen_operators(manifest)
    return Compiled(parameters, nodes, nodes - len(fallen), tuple(sorted(set(fallen))), seconds)


def fallen_operators(manifest: Manifest) -> tuple[str, ...]:
    """Return the operators of nodes on the CPU, without those that are there to save time only."""
    nodes = (node for fallback in manifest.fallbacks for node in fallback.reasons)
    return tuple(qualified(n.domain, n.op_type) for n in nodes if n.code != ReasonCode.CHEAPER)


def run_architecture(architecture: Architecture, folder: Path) -> Outcome:
    """Trace and run a PEF, and compare it with torch, on the traced inputs and on others.

    Args:
        architecture: The record; nothing else is known of the process that compiled it.
        folder: Where the PEF is.
    """
    started = time.perf_counter()
    plain = build(architecture)
    other = example_inputs(architecture, plain.module, _OTHER)
    example = Example(copy.deepcopy(plain.module), plain.inputs)
    samba.session.reset()
    samba.from_torch_model_(example.module)
    path = pef_path(architecture, folder)
    outputs = samba.utils.trace_graph(example.module, dict(example.inputs), pef=path)
    errors = [_error(plain, given, _run(given, outputs)) for given in (plain.inputs, other)]
    error, own_error = max(errors)
    seconds = time.perf_counter() - started
    return Outcome(len(outputs), error, own_error, _reaction(plain, other), seconds)


def _run(inputs: Any, outputs: Any) -> list[Tensor]:
    given = {name: value for name, value in inputs.items() if isinstance(value, Tensor)}
    return [result.torch() for result in samba.session.run(given, outputs)]


def _error(example: Example, inputs: Any, made: list[Tensor]) -> tuple[float, float]:
    """Return the largest error, and that of torch itself if it matters."""
    wanted = tensors(example.run(inputs))
    assert len(made) == len(wanted)
    error = max(map(relative, made, wanted))
    if error <= ROUNDING:
        return error, 0.0
    exact = Example(copy.deepcopy(example.module).double(), {})
    wide = {
        name: value.double() if isinstance(value, Tensor) and value.is_floating_point() else value
        for name, value in inputs.items()
    }
    truth = tensors(exact.run(wide))
    return max(map(relative, made, truth)), max(map(relative, wanted, truth))


def relative(made: Tensor, wanted: Tensor) -> float:
    """Return the largest difference as a fraction of the largest number.

    Args:
        made: What is compared.
        wanted: What it should be, in the same or a wider type.

    Returns:
        Infinity if shapes, integers or infinite numbers differ.
    """
    if made.shape != wanted.shape:
        return float("inf")
    if not wanted.is_floating_point() or not wanted.numel():
        return 0.0 if torch.equal(made, wanted) else float("inf")
    one, other = made.double(), wanted.double()
    finite = other.isfinite()
    if not torch.equal(one[~finite], other[~finite]) or not one[finite].isfinite().all():
        return float("inf")
    if not finite.any():
        return 0.0
    scale = max(float(other[finite].abs().max()), 1e-30)
    return float((one[finite] - other[finite]).abs().max()) / scale


def _reaction(example: Example, other: Any) -> float:
    first, second = tensors(example.run()), tensors(example.run(other))
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if a.is_floating_point()]
    return max(float((a - b).abs().max()) / max(float(a.abs().max()), 1e-30) for a, b in pairs)
