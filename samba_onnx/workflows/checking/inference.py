"""Comparison of an exported graph with what torch computes."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from numpy.typing import NDArray
from torch import nn
from torch.utils import _pytree as pytree

from samba_onnx.errors import ExportMismatchError
from samba_onnx.export.capture.branches import eager, missing_values
from samba_onnx.export.capture.modules import Inputs, arguments
from samba_onnx.export.capture.samba_calls import samba_calls
from samba_onnx.export.naming import place
from samba_onnx.export.programs.inference import Exported
from samba_onnx.program.kinds import SectionType
from samba_onnx.program.program import Part
from samba_onnx.workflows.checking.dropouts import CONDITION, rates_at_zero
from samba_onnx.workflows.checking.first_difference import first_difference
from samba_onnx.workflows.checking.numbers import difference, tolerance_of
from samba_onnx.workflows.checking.outcome import (
    Comparison,
    NotComparableError,
    done,
    not_comparable,
)
from samba_onnx.workflows.checking.refusals import refuse_unless_prepared
from samba_onnx.workflows.checking.running import feeds_of, run_part


@dataclass(frozen=True)
class ComparedPart:
    """The forward part of a program, after a comparison that found no mismatch."""

    errors: Mapping[str, float]
    """Largest error of each output by its name, as a fraction of its largest number."""
    values: Mapping[str, NDArray[Any]]
    """All that the part computed, by name."""


@samba_calls()
def compare_with_eager(
    module: nn.Module,
    inputs: Inputs,
    exported: Exported,
    keywords: Mapping[str, Any] = MappingProxyType({}),
) -> Comparison:
    """Run an exported graph on the engine, and compare it with the module itself.

    Args:
        module: With the weights to compare with; its buffers stay as they are.
        inputs: What it was exported with.
        exported: As ``export_inference`` returns it.
        keywords: Further arguments by keyword.

    Returns:
        The errors of all outputs; or why the module cannot be compared, after an engine prepared
        what was exported all the same.

    Raises:
        ExportMismatchError: An output differs; the message names the first operator that does, and
            the user's line.
        EngineRefusalError: The engine refuses an operator of the graph.
    """
    part = exported.program.parts[0]
    try:
        errors = compare_part(module, inputs, exported, part, keywords).errors
        return done(errors, CONDITION if exported.program.argins else "")
    except NotComparableError as obstacle:
        refuse_unless_prepared(part)
        return not_comparable(str(obstacle))


def compare_part(
    module: nn.Module,
    inputs: Inputs,
    exported: Exported,
    forward: Part,
    keywords: Mapping[str, Any] = MappingProxyType({}),
) -> ComparedPart:
    """Run the forward part of an exported graph, and compare its outputs with the module's.

    Args:
        module: With the weights to compare with; its buffers stay as they are.
        inputs: What it was exported with.
        exported: As ``export_inference`` or ``export_training`` returns it.
        forward: Its part of type FWD.
        keywords: Further arguments by keyword.

    Returns:
        What the part computed, and how far that is from what torch did.

    Raises:
        ExportMismatchError: An output differs; the message names the first operator that does, and
            the user's line.
        EngineRefusalError: The engine refuses an operator of the graph.
        NotComparableError: A tensor has no values, or torch fails on those that there are.
    """
    args, named = arguments(inputs)
    keywords = {**named, **keywords}
    missing = missing_values(module, (args, keywords))
    if missing:
        raise NotComparableError(missing)
    expected = _eager_outputs(module, args, keywords, exported)
    flat = pytree.tree_leaves((args, keywords))
    values = run_part(forward, feeds_of(module, flat, exported))
    errors = {
        name: (difference(values[name], tensor), tolerance_of(tensor))
        for name, tensor in zip(exported.outputs, expected, strict=True)
        if name is not None
    }
    for name, (error, tolerance) in errors.items():
        if not error <= tolerance:
            raise _mismatch(module, flat, exported, name, error)
    return ComparedPart({name: error for name, (error, _) in errors.items()}, values)


def _eager_outputs(
    module: nn.Module, args: tuple[Any, ...], keywords: Mapping[str, Any], exported: Exported
) -> list[Any]:
    """Return the flat outputs of a module, with the rates of its dropouts at 0."""
    try:
        with rates_at_zero() if exported.program.argins else contextlib.nullcontext():
            written = exported.captured.updates
            # Hooks that forward registers need tensors that are differentiated.
            trains = any(part.type is SectionType.BCKWD for part in exported.program.parts)
            return pytree.tree_leaves(eager(module, args, keywords, written, gradients=trains))
    except NotComparableError:
        raise
    except Exception as error:  # whatever the user's module raises, as for an index out of range
        text = " ".join(str(error).split())[:200]
        raise NotComparableError(
            f"torch itself fails on the given inputs, with {type(error).__name__}: {text}"
        ) from error


def _mismatch(
    module: nn.Module, flat: Sequence[Any], exported: Exported, output: str, error: float
) -> ExportMismatchError:
    """Return an error that names the first operator whose result differs."""
    first = first_difference(module, flat, exported)
    operator = location = None
    where = "no single operator differs by itself: the errors of many add up"
    if first is not None:
        node, amount = first
        operator, location = str(node.target), place(node)
        where = f"the first operator that differs is {operator} at {location}, by {amount:.2g}"
    return ExportMismatchError(
        f"output {output!r} of the exported graph differs from what {type(module).__name__} "
        f"computes in torch by {error:.2g} of its largest number; {where}. Please report this; "
        "write that operator in another way, or skip the comparison",
        operator=operator,
        location=location,
    )
