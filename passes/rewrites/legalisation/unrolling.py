"""Loops of a known number of steps: a Scan of one body, or one step after the other.

Evidence: the RDU runs static graphs, and a loop whose number of steps is known is one. What a step computes must be
made of operators that the target has, or that other rules write. Nothing is computed otherwise than in the loop.
Where the target repeats no bodies, a loop of whose body it has every operator is unrolled before, whatever it costs.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from samba_onnx.passes.rewrites.bodies import MOST_NODES
from samba_onnx.passes.rewrites.foreign.drafting import Draft
from samba_onnx.passes.rewrites.legalisation.rules import legalises
from samba_onnx.passes.rewrites.loop_steps import is_short, write_repetition, write_steps

_MAKES = "a copy of the body for each step, and a Concat of what each returns"


@legalises(
    "Scan",
    name="scan",
    makes=_MAKES,
    needs=f"static length, at most {MOST_NODES:,} nodes",
)
def scan(draft: Draft) -> Sequence[ir.Value | None]:
    """Write a Scan."""
    return write_steps(draft)


@legalises(
    "Loop",
    name="loop",
    makes="a Scan over the numbers of its steps",
    needs="a constant number of steps; a condition that stays true",
)
def loop(draft: Draft) -> Sequence[ir.Value | None]:
    """Write a Loop as a Scan, or the steps of one that is short or that makes none."""
    # A short loop costs fewer nodes as its steps, of which more is constant; a long one would
    # become too large a graph.
    return write_steps(draft) if is_short(draft.node) else write_repetition(draft)
