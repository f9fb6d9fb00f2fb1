"""Comparison of exported optimizer steps with torch.optim."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Container, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from samba_onnx.comparing.eager.numbers import zeros
from samba_onnx.comparing.eager.refusals import refuse_unless_prepared
from samba_onnx.comparing.eager.running import run_part
from samba_onnx.comparing.eager.torch_steps import Memory, Slot, torchs_step
from samba_onnx.comparing.expectations import Expectation, Expected
from samba_onnx.comparing.judge import judge
from samba_onnx.comparing.outcome import Comparison, done, not_comparable
from samba_onnx.errors import ExportMismatchError
from samba_onnx.export.translation.builder import count as count_of
from samba_onnx.facts.names import gradient_name, updated_name
from samba_onnx.facts.tolerances import TIMES_TORCHS_ERROR, UPDATE_ROUNDINGS
from samba_onnx.optim.argins import derive
from samba_onnx.optim.records import MASTER, OptimizerRecord, state_name
from samba_onnx.program.program import Part

MOST_NUMBERS: Final = 1 << 22
"""Numbers of all parameters up to which steps are compared. Weights, gradients, states, their new
values, and torch's of float32 and float64 take up to 140 bytes per number: 600 MB, and 5 s."""

_NORM_FRACTIONS: Final = (0.5, 2.0)
"""Per step, the largest norm as a fraction of that of the gradients: the first step, from states of
zero, clips them; the second one, from the states of the first, leaves them as they are."""
_LEAST: Final[Mapping[str, float]] = MappingProxyType({"lr": 1e-2, "weight_decay": 0.1, "eps": 0.1})
"""Smallest hyperparameters of the comparison. A run may set any, so that the graph must be right
for any; with 0, as at the start of a warm-up, an error in what they multiply would not show, and
without eps the rounding of an average is divided by next to nothing."""
_LEAST_MOMENTA: Final = (0.5, 0.0)
"""The same of the momentum in each step: in the second one, SGD that was made without has none."""
_SQUARES: Final = frozenset({"exp_avg_sq", "max_exp_avg_sq"})
_SQUARES_PART: Final = 1e-3
"""About the part of a gradient's square that enters a running average."""


def compare_updates(records: Sequence[OptimizerRecord], parts: Sequence[Part]) -> Comparison:
    """Run exported optimizer steps on the engine, and compare them with those of torch.optim.

    Both of two steps start from the same numbers on either side. Weights and gradients are seeded
    normal numbers, and not the module's: in a new module many are zero, where a wrong factor does
    not show, and one on the meta device has none.

    Args:
        records: The optimizers.
        parts: Their GRADNORM and OPT parts, in the order in which they run.

    Returns:
        The largest error of each weight and state; or that there are too many numbers to compare.
        An engine prepared all parts in either case.

    Raises:
        ExportMismatchError: A new weight or state differs; the message names the optimizer and it.
        EngineRefusalError: The engine refuses an operator; the error names the type of the section.
    """
    for part in parts:
        refuse_unless_prepared(part)
    parameters = [name for record in records for name in record.parameters]
    count = _count(parts, set(map(gradient_name, parameters)))
    if count > MOST_NUMBERS:
        reason = f"it has {count:,} numbers, and only up to {MOST_NUMBERS:,} are compared"
        return not_comparable(reason, "torch.optim", "The update of the parameters")
    generator = np.random.default_rng(0)
    memory = _initial(parameters, parts, generator)
    errors: dict[str, float] = {}
    for step, fraction in enumerate(_NORM_FRACTIONS, 1):
        for gradient in map(gradient_name, parameters):
            if gradient in memory:
                memory[gradient] = _normal(memory[gradient], generator)
        least = {**_LEAST, "momentum": _LEAST_MOMENTA[step - 1]}
        current = [_with_hyperparameters(one, memory, least, fraction) for one in records]
        after = _stepped(current, parts, memory, step)
        for record in current:
            for name, error in _errors(record, memory, after, step).items():
                errors[name] = max(error, errors.get(name, 0.0))
        memory = {name: after.get(updated_name(name), array) for name, array in memory.items()}
    return done(errors)


def _count(parts: Sequence[Part], gradients: Container[str]) -> int:
    """Return how many numbers the gradients that the parts read have."""
    values = {v.name or "": v for part in parts for v in part.model.graph.inputs}
    return sum(count_of(value) for name, value in values.items() if name in gradients)


def _initial(
    parameters: Sequence[str], parts: Sequence[Part], generator: np.random.Generator
) -> Memory:
    """Return the memory before the first step: random weights, and zeros for everything else."""
    memory = {v.name or "": zeros(v) for part in parts for v in part.model.graph.inputs}
    outputs = {v.name or "": v for part in parts for v in part.model.graph.outputs}
    for name in parameters:
        if updated_name(name) not in outputs:  # no loss reaches it
            continue
        memory[name] = _normal(zeros(outputs[updated_name(name)]), generator)
        master = state_name(name, MASTER)
        if master in memory:
            memory[master] = _normal(memory[master], generator)
            memory[name] = memory[master].astype(memory[name].dtype)
    return memory


def _normal(array: NDArray[Any], generator: np.random.Generator) -> NDArray[Any]:
    """Return normal numbers in the shape and type of an array."""
    numbers: NDArray[Any] = np.asarray(generator.standard_normal(array.shape)).astype(array.dtype)
    return numbers


def _with_hyperparameters(
    record: OptimizerRecord, memory: Memory, least: Mapping[str, float], fraction: float
) -> OptimizerRecord:
    """Return an optimizer with the hyperparameters of a step of the comparison."""
    groups = tuple(
        dataclasses.replace(
            group,
            hyperparameters=MappingProxyType(
                {k: max(v, least.get(k, v)) for k, v in group.hyperparameters.items()}
            ),
        )
        for group in record.groups
    )
    norm = None
    if record.max_grad_norm is not None:
        gradients = (memory[gradient_name(name)] for name in record.parameters if name in memory)
        norm = fraction * math.sqrt(sum(float(np.square(_wide(g)).sum()) for g in gradients))
    return dataclasses.replace(record, groups=groups, max_grad_norm=norm)


def _stepped(
    records: Sequence[OptimizerRecord], parts: Sequence[Part], memory: Memory, step: int
) -> Memory:
    """Run the parts once; return what they write."""
    scalars = {name: v for record in records for name, v in derive(record, {}, step).items()}
    argins = {n: np.asarray(v, memory[n].dtype) for n, v in scalars.items() if n in memory}
    outputs: Memory = {}
    for part in parts:
        outputs |= run_part(part, {**memory, **argins, **outputs})
    return outputs


def _errors(record: OptimizerRecord, before: Memory, after: Memory, step: int) -> dict[str, float]:
    """Return the error of each weight and state; raise where one is beyond what is allowed."""
    exact = torchs_step(record, before, step, exact=True)
    torchs = torchs_step(record, before, step, exact=False)
    stated = {}
    for slot, values in exact.items():
        scale = _scale(slot, before, values)
        torchs_error = float(np.abs(torchs[slot] - values).max())
        dtype = after[updated_name(slot.symbol)].dtype
        reason = f"torch's own rounding error is {torchs_error / scale:.2g}"
        allowed = _allowed(dtype, values, scale, torchs_error)
        stated[str(slot)] = Expected(values, allowed, scale, reason)
    actual = {str(slot): _wide(after[updated_name(slot.symbol)]) for slot in exact}
    expectation = Expectation({str(slot): values for slot, values in exact.items()}, stated=stated)
    verdicts = judge(actual, expectation) if stated else ()
    for verdict in verdicts:
        if not verdict.passed:
            raise ExportMismatchError(
                f"step {step} of {record.kind} in the exported graph differs from torch.optim's: "
                f"{verdict.name} by {verdict.max_relative_error:.2g} of its largest number, where "
                f"{verdict.tolerance}; compile without this optimizer, and call its step() "
                "on the host"
            )
    errors = (verdict.max_relative_error for verdict in verdicts)
    return dict(zip((updated_name(slot.symbol) for slot in exact), errors, strict=True))


def _allowed(
    dtype: np.dtype[Any], expected: NDArray[np.float64], scale: float, torchs_error: float
) -> NDArray[np.float64]:
    """Return how far each number may be from what is exact.

    Low precision is computed in float32 and rounded once, when it is stored.
    """
    limits = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]  # it has no annotations
    computed = min(float(limits.eps), float(np.finfo(np.float32).eps))
    allowed = TIMES_TORCHS_ERROR * torchs_error + UPDATE_ROUNDINGS * computed * scale
    stored = float(limits.eps) * (np.abs(expected) + float(limits.smallest_normal))
    return np.asarray(stored + allowed)


def _scale(slot: Slot, before: Memory, expected: NDArray[np.float64]) -> float:
    """Return the size of the largest number that enters a new weight or state.

    The new value alone would not do: a sum that cancels keeps the roundings of its terms.
    """
    largest = max(float(np.abs(expected).max()), float(np.abs(_wide(before[slot.symbol])).max()))
    if slot.key in ("", MASTER):
        return largest
    gradient = float(np.abs(_wide(before[gradient_name(slot.parameter)])).max())
    return max(largest, _SQUARES_PART * gradient**2 if slot.key in _SQUARES else gradient)


def _wide(array: NDArray[Any]) -> NDArray[np.float64]:
    return array.astype(np.float64)
