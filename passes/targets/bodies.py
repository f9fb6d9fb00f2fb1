"""Whether a target executes the body of a Scan step by step, in one section."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import onnx_ir as ir

from samba_onnx.passes.targets.checks import is_static
from samba_onnx.passes.targets.dimensions import dimension_hint
from samba_onnx.passes.targets.reasons import Reason, ReasonCode
from samba_onnx.program.dataflow import dimensions, name_of
from samba_onnx.program.repetition import repetition

__all__ = ["REPEATING", "body_reason"]

REPEATING: Final = "Scan"
"""The operator that stands for a repeated body. A Loop is none: it may stop when it runs."""


def body_reason(
    node: ir.Node, target: str, inner_reason: Callable[[ir.Node], Reason | None]
) -> Reason | None:
    """Return why a target that repeats bodies does not repeat that of a node.

    1. The number of steps is known, and whatever it reads and returns is a tensor of static shape.
    2. A state has one type and one shape in all steps: it has one place on the chip.
    3. The target runs every node of the body, with the types and shapes that it has there.

    Args:
        node: A Scan with inferred types and shapes.
        target: The target's name, for messages.
        inner_reason: Returns why the target does not run a node of the body.
    """
    # Case 1. A section is laid out at compile time, with the number of its repetitions in it.
    repeated = repetition(node)
    if repeated is None:
        shapes = [v.shape for v in node.inputs if v is not None and v.shape is not None]
        unknown = [s for s in shapes if any(not isinstance(size, int) for size in s)]
        return Reason(
            ReasonCode.DYNAMIC_SHAPE,
            f"{REPEATING} has no number of steps that is known at compile time; {target} repeats a body a "
            "constant number of times",
            dimension_hint(node, unknown[0]) if unknown else "",
        )
    if not is_static(node):
        return Reason(
            ReasonCode.DYNAMIC_SHAPE,
            f"{REPEATING}: a value that it reads or returns has no static shape, or no elements",
        )
    # Case 2. Operand, parameter and result of a state are one place on the chip, whatever step it is.
    body = repeated.body
    for place in range(repeated.states):
        kinds = {_kind(v) for v in (node.inputs[place], body.inputs[place], body.outputs[place])}
        if len(kinds) > 1:
            return Reason(
                ReasonCode.DYNAMIC_SHAPE,
                f"{REPEATING}: its state {name_of(body.inputs[place])!r} changes its type or shape from step to step",
            )
    # Case 3. The first reason is enough: one node that must run on the CPU takes the whole body there.
    for inner in body:
        reason = inner_reason(inner)
        if reason is not None:
            return Reason(reason.code, f"{REPEATING}: in its body, {reason.message}", reason.hint)
    return None


def _kind(value: ir.Value | None) -> tuple[object, ...] | None:
    """Return the type and shape of a value; None for an operand that is left out."""
    if value is None:
        return None
    # A constant may have a tensor only, without a type of its own.
    dtype = value.const_value.dtype if value.const_value is not None else value.dtype
    return (dtype, dimensions(value))
