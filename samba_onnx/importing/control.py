"""Operators with a body: chosen or repeated while the graph is traced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from samba_onnx.importing.instructions import Instruction
from samba_onnx.importing.values import Host, Value

if TYPE_CHECKING:
    from samba_onnx.importing.interpreter import Interpreter

# Every turn writes the body once more into the graph that torch traces, and a Loop without a count
# may have a condition that stays true for ever.
MOST_STEPS = 10_000
"""Repetitions that are written out."""


def run(interpreter: Interpreter, instruction: Instruction, operands: list[Value]) -> list[Value]:
    """Run a node with a body.

    Raises:
        ModelError: A condition or count depends on the content of tensors.
    """
    rules = {"If": _if, "Loop": _loop, "Scan": _scan, "SequenceMap": _sequence_map}
    rule = rules.get(instruction.call.operator)
    if rule is None:
        raise instruction.call.refuse(
            f"operators with a body cannot be trained through, but for {', '.join(rules)}"
        )
    return rule(interpreter, instruction, operands)


def _if(interpreter: Interpreter, instruction: Instruction, operands: list[Value]) -> list[Value]:
    taken = _known(instruction, operands[0], "its condition")
    # Bodies see the values around them by name, so that no operands are handed to a branch.
    return interpreter.call(instruction.bodies["then_branch" if taken else "else_branch"], [])


def _known(instruction: Instruction, value: Value, what: str) -> Any:
    """Return a number that must not depend on tensors."""
    if not isinstance(value, Host):
        raise instruction.call.refuse(
            f"{what} depends on the content of tensors: a trained graph is the same in each step; "
            "make it a constant of the model"
        )
    return value.array.reshape(-1)[0]


def _loop(interpreter: Interpreter, instruction: Instruction, operands: list[Value]) -> list[Value]:
    body = instruction.bodies["body"]
    count = None if operands[0] is None else int(_known(instruction, operands[0], "its count"))
    # ONNX lets count and condition be left out; a missing condition is always true.
    condition: Value = Host(np.array(True)) if operands[1] is None else operands[1]
    carried = operands[2:]
    collected: list[list[Value]] = [[] for _ in body.outputs[1 + len(carried) :]]
    turn = 0
    while (count is None or turn < count) and _known(instruction, condition, "its condition"):
        if turn == MOST_STEPS:
            raise instruction.call.refuse(
                f"it runs more than {MOST_STEPS} times, too often to write out"
            )
        arguments = [Host(np.array(turn, np.int64)), condition, *carried]
        condition, *results = interpreter.call(body, arguments)
        carried = results[: len(carried)]
        for items, item in zip(collected, results[len(carried) :], strict=True):
            items.append(item)
        turn += 1
    return [*carried, *(_stack(instruction, items, 0) for items in collected)]


def _stack(instruction: Instruction, items: Sequence[Value], axis: int) -> Value:
    if not items:
        # A stack of no items would need the shape of one, which only a turn could tell.
        raise instruction.call.refuse("it never runs, so that the shape of its results is unknown")
    # Items that are known stay known, because shapes may be computed from them later.
    if all(isinstance(item, Host) for item in items):
        return Host(np.stack([cast(Host, item).array for item in items], axis))
    return torch.stack([_tensor(instruction, item) for item in items], axis)


def _tensor(instruction: Instruction, value: Value) -> Tensor:
    if isinstance(value, Host):
        return value.tensor()
    if not isinstance(value, Tensor):
        raise instruction.call.refuse("it collects sequences, which have no fixed shape")
    return value


def _scan(interpreter: Interpreter, instruction: Instruction, operands: list[Value]) -> list[Value]:
    body, node = instruction.bodies["body"], instruction.call
    scanned = node.integer("num_scan_inputs")
    # States come first among the operands and scanned sequences last; `num_scan_inputs` is the only
    # thing that tells where one ends and the other begins.
    states, sources = (
        operands[:-scanned],
        [_tensor(instruction, item) for item in operands[-scanned:]],
    )
    axes = node.integers("scan_input_axes", [0] * scanned)
    backwards = node.integers("scan_input_directions", [0] * scanned)
    parts = [list(source.unbind(axis)) for source, axis in zip(sources, axes, strict=True)]
    parts = [items[::-1] if back else items for items, back in zip(parts, backwards, strict=True)]
    scans = len(body.outputs) - len(states)
    collected: list[list[Value]] = [[] for _ in range(scans)]
    for slices in zip(*parts, strict=True):
        results = interpreter.call(body, [*states, *slices])
        states = results[: len(states)]
        for items, item in zip(collected, results[len(states) :], strict=True):
            items.append(item)
    out_axes = node.integers("scan_output_axes", [0] * scans)
    reverse = node.integers("scan_output_directions", [0] * scans)
    return [
        *states,
        *(
            _stack(instruction, items[::-1] if back else items, axis)
            for items, axis, back in zip(collected, out_axes, reverse, strict=True)
        ),
    ]


def _sequence_map(
    interpreter: Interpreter, instruction: Instruction, operands: list[Value]
) -> list[Value]:
    body = instruction.bodies["body"]
    first = operands[0]
    if not isinstance(first, list):
        raise instruction.call.refuse("its first operand is no sequence")
    results: list[list[Value]] = [[] for _ in body.outputs]
    for turn in range(len(first)):
        arguments = [item[turn] if isinstance(item, list) else item for item in operands]
        for items, item in zip(results, interpreter.call(body, arguments), strict=True):
            items.append(item)
    return list(results)
