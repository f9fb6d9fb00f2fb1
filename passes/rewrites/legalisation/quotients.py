"""Quotients and remainders of integers: a quotient of float32, which integers put right.

Evidence: the vendor's table has ``div`` of bfloat16 and float32 only, and no ``remainder``; Floor, and sums, products and
comparisons of integers, are in its table or assumed as elementary arithmetic. No document says how the RDU rounds a
quotient: one of at most 2^21 is less than one off, whether a quotient of float32 is rounded correctly or is a product
with a reciprocal, and one step in integers makes it exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import onnx_ir as ir

from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.legalisation.rules import legalises
from samba_onnx.program.bounds import type_limits
from samba_onnx.program.intervals import Interval

_MOST: Final = 1 << 21
"""The largest quotient: four roundings of at most 2^-24 each, as of a reciprocal, make it wrong by one half."""


@legalises(
    "Div",
    "Mod",
    name="quotient",
    makes="a quotient of float32, its Floor, and a step up or down by what remains of integers",
    needs=f"integers whose ranges are proved: a quotient of at most {_MOST:,}, a divisor that is not 0 and has one sign",
)
def quotient(draft: Draft) -> ir.Value:
    """Write a Div or a Mod of integers."""
    number, divisor = draft.operand(0), draft.operand(1)
    # A quotient of floats that the target refuses is refused for its type, which this cannot
    # change.
    if not draft.dtype(number).is_integer():
        raise CannotExpandError("its operands are no integers, which are all that the rule divides")
    above, below = draft.interval(number), draft.interval(divisor)
    # Integers have no infinity: the Casts would make some number of what a division of floats by 0
    # gives.
    if below.low <= 0 <= below.high:
        raise CannotExpandError(f"its divisor {divisor.name!r} may be 0")
    # With the smallest divisor, for which the quotient is largest.
    _refuse_large(number, above, min(abs(below.low), abs(below.high)) * _MOST)
    limits = type_limits(draft.dtype(number))
    _refuse_large(
        divisor, below, limits.high // 2
    )  # so that a rest that is one step off is of the type
    if below.high < 0:  # of two negatives the quotient is the same, and the rest a negative
        if not above.negated().is_inside(limits):
            raise CannotExpandError(f"its operand {number.name!r} may have no negative")
        number, divisor = draft.op("Neg", number), draft.op("Neg", divisor)
        above = above.negated()
    # Always rounded down first, since Floor is what the target has; ONNX rounds integers' quotients
    # to zero.
    floor, rest = _floored(draft, number, divisor)
    is_cut = draft.node.op_type == "Div" or draft.integer("fmod") != 0
    if is_cut and above.low < 0:
        floor, rest = _cut(draft, number, divisor, floor, rest)
    if draft.node.op_type == "Div":
        return floor
    return draft.op("Neg", rest) if below.high < 0 else rest


def _refuse_large(value: ir.Value, interval: Interval, limit: float) -> None:
    most = max(abs(interval.low), abs(interval.high))
    if most > limit:
        what = f"as large as {most:,}" if math.isfinite(most) else "any integer"
        raise CannotExpandError(f"its operand {value.name!r} may be {what}")


def _floored(draft: Draft, number: ir.Value, divisor: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Write a quotient that is rounded down, and its rest from 0 to the divisor; return both."""
    dtype = draft.dtype(draft.operand(0))
    operands = [draft.op("Cast", value, to=ir.DataType.FLOAT) for value in (number, divisor)]
    # near is at most one off, so that one step by the rest, which is exact, puts it right.
    near = draft.op("Cast", draft.op("Floor", draft.op("Div", *operands)), to=dtype)
    rest = draft.op("Sub", number, draft.op("Mul", near, divisor))
    zero = draft.scalar(0, draft.operand(0))
    up = draft.op("Cast", draft.op("GreaterOrEqual", rest, divisor), to=dtype)
    down = draft.op("Cast", draft.op("Less", rest, zero), to=dtype)
    step = draft.op("Sub", up, down)
    exact = draft.op("Add", near, step)
    return exact, draft.op("Sub", rest, draft.op("Mul", step, divisor))


def _cut(
    draft: Draft, number: ir.Value, divisor: ir.Value, floor: ir.Value, rest: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """Write a quotient that is rounded towards zero, one more of a negative number if something remains, and its rest."""
    # Rounding down is rounding to zero for positive numbers, and without a rest.
    zero = draft.scalar(0, draft.operand(0))
    dtype = draft.dtype(draft.operand(0))
    remains: Sequence[ir.Value] = (
        draft.op("Less", number, zero),
        draft.op("Greater", rest, zero),
    )
    step = draft.op("Cast", draft.op("And", *remains), to=dtype)
    return (
        draft.op("Add", floor, step),
        draft.op("Sub", rest, draft.op("Mul", step, divisor)),
    )
