"""Loops of a known number of trips, one after the other.

Evidence: the RDU runs static graphs, and a loop whose number of trips is known is one. What a trip computes must be
made of operators that the target has, or that other rules write. Nothing is computed otherwise than in the loop.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.legalisation.bodies import Values, copy_nodes
from samba_onnx.passes.rewrites.legalisation.forms import MOST_NODES
from samba_onnx.passes.rewrites.legalisation.registry import legalises
from samba_onnx.passes.rewrites.rewriting import is_operator, small_array

MOST_TRIPS = 256
"""Trips that a loop is unrolled to at most."""


@legalises(
    "Scan",
    name="scan",
    makes="a copy of the body for each trip, and a Concat of what each returns",
    needs=f"static length, at most {MOST_TRIPS} trips and {MOST_NODES:,} nodes",
)
def scan(draft: Draft) -> list[ir.Value | None]:
    """Write a Scan."""
    body = draft.node.attributes["body"].as_graph()
    count = draft.integer("num_scan_inputs")
    states = [draft.operand(place) for place in range(len(draft.node.inputs) - count)]
    first = len(states)
    sources = [draft.operand(first + place) for place in range(count)]
    axes = _listed(draft, "scan_input_axes", count)
    trips = draft.size(sources[0], axes[0])
    _refuse_long(trips, body)
    backwards = _listed(draft, "scan_input_directions", count)
    collected: list[list[ir.Value]] = [[] for _ in body.outputs[first:]]
    for trip in range(trips):
        pieces = [
            _taken(draft, source, trips - 1 - trip if back else trip, axis)
            for source, axis, back in zip(sources, axes, backwards, strict=True)
        ]
        results = _trip(draft, body, [*states, *pieces])
        states = results[:first]
        for place, value in enumerate(results[first:]):
            collected[place].append(value)
    flipped = _listed(draft, "scan_output_directions", len(collected))
    out_axes = _listed(draft, "scan_output_axes", len(collected))
    stacks = [
        _stack(draft, values[::-1] if flip else values, axis)
        for values, flip, axis in zip(collected, flipped, out_axes, strict=True)
    ]
    return [*states, *stacks]


@legalises(
    "Loop",
    name="loop",
    makes="a copy of the body for each trip, and a Concat of what each returns",
    needs=f"a constant number of trips, at most {MOST_TRIPS} and {MOST_NODES:,} nodes; a condition that stays true",
)
def loop(draft: Draft) -> list[ir.Value | None]:
    """Write a Loop."""
    body = draft.node.attributes["body"].as_graph()
    trips = int(draft.known(draft.operand(0), "its number of trips").numpy().item())
    condition = draft.optional(1)
    begins = condition is None or bool(draft.known(condition, "its condition").numpy().all())
    states = [draft.operand(place) for place in range(2, len(draft.node.inputs))]
    first = len(states)
    trips = trips if begins else 0
    _refuse_long(trips, body)
    if trips > 1 and not _goes_on(body):
        raise CannotExpandError("its body computes whether it goes on")
    if trips <= 0 and len(body.outputs) > first + 1:
        raise CannotExpandError("it makes no trip, and returns tensors without elements")
    true = draft.constant(np.array(True))
    collected: list[list[ir.Value]] = [[] for _ in body.outputs[first + 1 :]]
    for trip in range(trips):
        number = draft.constant(np.array(trip, np.int64))
        results = _trip(draft, body, [number, true, *states])
        states = results[1 : first + 1]
        for place, value in enumerate(results[first + 1 :]):
            collected[place].append(value)
    return [*states, *(_stack(draft, values, 0) for values in collected)]


def _goes_on(body: ir.Graph) -> bool:
    """Return whether a loop's condition is true after every trip."""
    value: ir.Value | None = body.outputs[0]
    while value is not None and (maker := value.producer()) is not None:
        if not is_operator(maker, "Identity"):
            return False
        value = maker.inputs[0]
    if value is body.inputs[1]:
        return True
    array = small_array(value)
    return array is not None and bool(array.all())


def _trip(draft: Draft, body: ir.Graph, operands: Sequence[ir.Value]) -> list[ir.Value]:
    """Write the body once, and return its results."""
    if body.initializers:
        raise CannotExpandError("its body has initializers of its own")
    values: Values = dict(zip(body.inputs, operands, strict=True))
    copy_nodes(draft, body, values)
    results = [values.get(value, value) for value in body.outputs]
    return [value for value in results if value is not None]


def _taken(draft: Draft, source: ir.Value, place: int, axis: int) -> ir.Value:
    return draft.op("Gather", source, draft.constant(np.array(place, np.int64)), axis=axis)


def _stack(draft: Draft, values: Sequence[ir.Value], axis: int) -> ir.Value:
    """Return values along a new axis."""
    rows = [draft.op("Unsqueeze", value, draft.integers(axis)) for value in values]
    return draft.op("Concat", *rows, axis=axis)


def _listed(draft: Draft, name: str, count: int) -> list[int]:
    return [int(number) for number in draft.list_of(name)] or [0] * count


def _refuse_long(trips: int, body: ir.Graph) -> None:
    if trips > MOST_TRIPS:
        raise CannotExpandError(f"it has {trips:,} trips, more than {MOST_TRIPS}")
    nodes = trips * sum(1 for _ in body.all_nodes())
    if nodes > 4 * MOST_NODES:
        raise CannotExpandError(f"it would become {nodes:,} nodes, more than {MOST_NODES:,} folded")
