"""The steps of a Loop or Scan, one behind the other: the one place that writes them, with one limit on their number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import onnx_ir as ir

from samba_onnx.passes.rewrites.bodies import MOST_NODES, Values, copy_nodes
from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.loop_bodies import each_integer, source
from samba_onnx.passes.rewrites.rewriting import integers, small_array
from samba_onnx.program.dataflow import each_node
from samba_onnx.program.repetition import repetition

SHORT: Final = 96
"""Nodes up to which all steps of a Loop stand one behind the other even where the target repeats bodies. A step knows
its number, by which much of it may be constant, and so many operators share a section of every target: to repeat a
body would save no launch."""
FEW_STEPS: Final = 2
"""Steps up to which those of a Scan do. All of its steps are alike, so that nothing of them gets constant, and no plan is
shorter with the steps than with the body."""


def is_short(node: ir.Node) -> bool:
    """Return whether the steps of a Loop or Scan are so few that they stand one behind the other in any case."""
    body, steps = node.attributes["body"].as_graph(), _constant_steps(node)
    if steps is None:
        return False
    return steps <= FEW_STEPS if node.op_type == "Scan" else _nodes(steps, body) <= SHORT


def _constant_steps(node: ir.Node) -> int | None:
    """Return the number of steps that a Loop or Scan states; None where it is not known."""
    if node.op_type == "Scan":
        repeated = repetition(node)
        return None if repeated is None else repeated.steps
    most = integers(node.inputs[0]) if node.inputs else None
    return most[0] if most is not None and len(most) == 1 else None


def _nodes(steps: int, body: ir.Graph) -> int:
    """Return how many nodes all steps have, each with one that puts its results together."""
    return steps * (sum(node.op_type != "Constant" for node in each_node(body)) + 1)


def write_steps(draft: Draft) -> list[ir.Value | None]:
    """Write a Loop or Scan as its steps, as tracing would have.

    1. A Loop has a constant number of steps, and nothing stops it before: its condition and that of its body
       are constantly true, or left out. A Scan reads inputs of known lengths.
    2. All steps together have no more than ``MOST_NODES`` nodes, each with one more that puts its results together.
    3. Without a step there is no tensor of all steps.

    Args:
        draft: What the node is to be replaced by.

    Returns:
        A value per output of the node.

    Raises:
        CannotExpandError: It is beyond that.
    """
    body = draft.node.attributes["body"].as_graph()
    if body.initializers:
        raise CannotExpandError("its body has initializers of its own")
    return _loop(draft, body) if draft.node.op_type == "Loop" else _scan(draft, body)


def _loop(draft: Draft, body: ir.Graph) -> list[ir.Value | None]:
    # Case 1.
    steps = _loop_steps(draft)
    states = [draft.operand(place) for place in range(2, len(draft.node.inputs))]
    _refuse_long(steps, body)
    if steps > 1 and not _goes_on(body):
        raise CannotExpandError("its body computes whether it goes on")
    # Case 3.
    if steps <= 0 and len(body.outputs) > len(states) + 1:
        raise CannotExpandError("it makes no step, and returns tensors without elements")
    true = draft.constant(np.array(True))
    written: list[list[ir.Value]] = [[] for _ in body.outputs[len(states) + 1 :]]
    for step in range(steps):
        number = draft.constant(np.array(step, np.int64))
        _, *results = _step(draft, body, [number, true, *states], step)
        states = _kept(results, len(states), written)
    return [*states, *(_together(draft, values, 0) for values in written)]


def write_repetition(draft: Draft) -> Sequence[ir.Value | None]:
    """Write a Loop of a known number of steps as a Scan over the numbers of its steps.

    1. The number of steps is constant, and nothing stops it before, as for :func:`write_steps`.
    2. It makes steps, and its body has no initializers of its own.

    Args:
        draft: What the Loop is to be replaced by.

    Returns:
        A value per output of the Loop. Whether a state keeps its shape, which a Scan demands, is for the caller to find
        out: of a Loop's body nothing says so before types are inferred.

    Raises:
        CannotExpandError: It is beyond that.
    """
    body = draft.node.attributes["body"].as_graph()
    # Case 1.
    steps = _loop_steps(draft)
    if steps > 1 and not _goes_on(body):
        raise CannotExpandError("its body computes whether it goes on")
    # Case 2.
    if steps <= 0 or body.initializers:
        raise CannotExpandError("it makes no step, or its body has initializers of its own")
    states = [draft.operand(place) for place in range(2, len(draft.node.inputs))]
    true = draft.constant(np.array(True))
    numbers = draft.constant(np.arange(steps, dtype=np.int64))

    def step(values: Sequence[ir.Value]) -> Sequence[ir.Value]:
        *before, number = values
        _, *results = _step(draft, body, [number, true, *before])
        return results

    return draft.repeated(step, states, [numbers])


def _loop_steps(draft: Draft) -> int:
    """Return the constant number of steps of a Loop."""
    most = draft.known(draft.operand(0), "its number of steps")
    if most.size != 1:
        raise CannotExpandError(f"its number of steps has {most.size} elements")
    condition = draft.optional(1)
    begins = condition is None or bool(draft.known(condition, "its condition").numpy().all())
    return int(most.numpy().item()) if begins else 0


def _scan(draft: Draft, body: ir.Graph) -> list[ir.Value | None]:
    node = draft.node
    count = draft.integer("num_scan_inputs")
    if len(node.inputs) != len(body.inputs) or not 0 < count <= len(node.inputs):
        raise CannotExpandError("it is one of operator set 8, which has batches of its own")
    operands = [draft.operand(place) for place in range(len(node.inputs))]
    states, read = operands[:-count], operands[-count:]
    axes = each_integer(node, "scan_input_axes", count)
    # Case 1.
    lengths = {draft.size(value, axis) for value, axis in zip(read, axes, strict=True)}
    if len(lengths) > 1:
        raise CannotExpandError("its inputs have several lengths")
    steps = lengths.pop()
    _refuse_long(steps, body)
    written: list[list[ir.Value]] = [[] for _ in body.outputs[len(states) :]]
    # Case 3.
    if steps <= 0 and written:
        raise CannotExpandError("it makes no step, and returns tensors without elements")
    backwards = each_integer(node, "scan_input_directions", count)
    for step in range(steps):
        pieces = [
            _taken(draft, value, steps - 1 - step if back else step, axis)
            for value, axis, back in zip(read, axes, backwards, strict=True)
        ]
        states = _kept(_step(draft, body, [*states, *pieces], step), len(states), written)
    flipped = each_integer(node, "scan_output_directions", len(written))
    out_axes = each_integer(node, "scan_output_axes", len(written))
    stacks = [
        _together(draft, values[::-1] if flip else values, axis)
        for values, flip, axis in zip(written, flipped, out_axes, strict=True)
    ]
    return [*states, *stacks]


def _goes_on(body: ir.Graph) -> bool:
    """Return whether a loop's condition is true after every step."""
    again = source(body.outputs[0])
    array = small_array(again)
    return again is body.inputs[1] or (array is not None and bool(array.all()))


def _refuse_long(steps: int, body: ir.Graph) -> None:
    """Give up before more nodes are written than there may be (case 2)."""
    if _nodes(steps, body) > MOST_NODES:
        raise CannotExpandError(f"its {steps:,} steps have more than {MOST_NODES:,} nodes")


def _step(
    draft: Draft, body: ir.Graph, operands: Sequence[ir.Value], step: int | None = None
) -> list[ir.Value]:
    """Write the body once, with the number of the step behind its names, and return its results."""
    values: Values = dict(zip(body.inputs, operands, strict=True))
    copy_nodes(draft, body, values, suffix="" if step is None else f"_{step}")
    results = [values.get(value, value) for value in body.outputs]
    return [value for value in results if value is not None]


def _kept(
    results: Sequence[ir.Value], states: int, written: Sequence[list[ir.Value]]
) -> list[ir.Value]:
    """Add what a step returns for tensors of all steps to these, and return its states."""
    for values, result in zip(written, results[states:], strict=True):
        values.append(result)
    return list(results[:states])


def _taken(draft: Draft, value: ir.Value, place: int, axis: int) -> ir.Value:
    piece = draft.op("Gather", value, draft.constant(np.array(place, np.int64)), axis=axis)
    piece.type = value.type
    return piece


def _together(draft: Draft, values: Sequence[ir.Value], axis: int) -> ir.Value:
    """Return the results of all steps, joined along a new axis."""
    rows = [draft.op("Unsqueeze", value, draft.integers(axis)) for value in values]
    whole = draft.op("Concat", *rows, axis=axis)
    whole.type = values[0].type
    return whole
