"""Run a plan on tensors, so that torch traces it and its autograd follows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from samba_onnx.errors import ModelError, SambaError
from samba_onnx.importing import control
from samba_onnx.importing.instructions import Body, Instruction
from samba_onnx.importing.values import Array, Host, Value
from samba_onnx.passes.rewrites.evaluation import FOLDABLE, evaluate
from samba_onnx.passes.rewrites.refusals import Refusal

__all__ = ["Interpreter"]

_EVALUATED = FOLDABLE | {"Relu"}
"""What is computed with numpy where all operands are known; Relu is in the body of Range."""


class Interpreter:
    """One run of a plan.

    What does not depend on the content of tensors is computed with numpy and becomes no operation
    of torch's.
    """

    def __init__(
        self,
        values: dict[int, Value],
        opset: int,
        *,
        training: bool = False,
        moving: Mapping[int, Tensor] | None = None,
    ) -> None:
        """Start with the values that are given.

        Args:
            values: By slot: inputs, weights and constants.
            opset: Version of the default operator set.
            training: Whether dropout drops.
            moving: By slot: buffers that follow the moving statistics of batch normalisations.
        """
        self.values = values
        self._opset = opset
        self._training = training
        self._moving = dict(moving or {})

    def run(self, body: Body) -> list[Value]:
        """Run a body whose inputs are among the values, and return its outputs.

        Raises:
            ModelError: A node cannot be computed, or needs to know what only a run can tell.
        """
        for instruction in body.instructions:
            # Bodies read values of the graph around them: one dict of slots serves all graphs of a
            # run.
            operands = [None if slot is None else self.values[slot] for slot in instruction.inputs]
            results = self._results(instruction, operands)
            for slot, result in zip(instruction.outputs, results, strict=False):
                if slot is not None:
                    self.values[slot] = result
            # Only with three outputs does the node compute new statistics (`training_mode`). ONNX
            # returns them; torch's way is to keep them in buffers.
            if instruction.call.operator == "BatchNormalization" and len(results) == 3:
                self._move_statistics(instruction, results)
        return [self.values[slot] for slot in body.outputs]

    def call(self, body: Body, operands: Sequence[Value]) -> list[Value]:
        """Run the body of a node on operands."""
        # A body that is repeated writes the same slots in each turn; the turn before is no longer
        # read.
        self.values.update(zip(body.inputs, operands, strict=True))
        return self.run(body)

    def _results(self, instruction: Instruction, operands: list[Value]) -> list[Value]:
        if instruction.bodies:
            return control.run(self, instruction, operands)
        # numpy comes before torch: shapes that torch computed would be tensors, and a tensor's
        # content cannot decide a shape while the graph is traced.
        known = self._evaluate(instruction, operands)
        if known is not None:
            return known
        if instruction.entry is None:
            raise instruction.call.refuse(
                "it can only be computed where shapes and constants decide it"
            )
        arguments = [_argument(instruction, place, value) for place, value in enumerate(operands)]
        # Instructions are shared by all copies of a module, each of which may train or not.
        call = (
            dataclasses.replace(instruction.call, training=True)
            if self._training
            else instruction.call
        )
        try:
            result = instruction.entry.compute(call, *arguments)
        # An operator's own refusal names the node and what to do already.
        except SambaError:
            raise
        # What torch raises for operands that it does not take. Any other class would be a fault of
        # ours, and must not be blamed on the user's model.
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
            reason = (str(error) or repr(error)).splitlines()[0]
            raise instruction.call.refuse(f"torch cannot compute it: {reason}") from error
        several = result if isinstance(result, tuple) else (result,)
        return [Host(item) if isinstance(item, np.ndarray) else item for item in several]

    def _evaluate(self, instruction: Instruction, operands: list[Value]) -> list[Value] | None:
        """Return the results of a node all of whose operands are known."""
        node = instruction.node
        if node.domain != "" or node.op_type not in _EVALUATED or not operands:
            return None
        arrays: list[Array | None] = []
        for operand in operands:
            if operand is not None and not isinstance(operand, Host):
                return None
            arrays.append(None if operand is None else operand.array)
        results = evaluate(node, arrays, self._opset)
        # numpy refuses some types and sizes that torch takes.
        if isinstance(results, Refusal):
            return None
        return [Host(result) for result in results]

    def _move_statistics(self, instruction: Instruction, results: list[Value]) -> None:
        # In evaluation mode torch leaves the moving statistics alone, whatever the graph says.
        if not self._training:
            return
        # Operands 3 and 4 are the mean and variance that go in; results 1 and 2 are what they
        # become.
        for slot, result in zip(instruction.inputs[3:5], results[1:], strict=True):
            buffer = None if slot is None else self._moving.get(slot)
            if buffer is not None and isinstance(result, Tensor):
                # Statistics are no part of the loss; a gradient through them would keep every
                # step's graph alive.
                with torch.no_grad():
                    buffer.copy_(result)


def _argument(instruction: Instruction, place: int, value: Value) -> Any:
    """Return an operand as the node's computation wants it."""
    entry = instruction.entry
    if isinstance(value, Host):
        # Known and flexible operands come as arrays; all others as tensors, so that computations
        # need not ask which they got.
        known = entry is not None and place in entry.known | entry.flexible
        return value.array if known else _as_tensor(instruction, value)
    if isinstance(value, Tensor) and entry is not None and place in entry.known:
        name = instruction.node.inputs[place]
        raise instruction.call.refuse(
            f"operand {place} ({name.name if name is not None else ''!r}) depends on the content "
            "of tensors, but must be known beforehand: make it a constant of the model"
        )
    return value


def _as_tensor(instruction: Instruction, value: Host) -> Tensor:
    try:
        return value.tensor()
    except ModelError as error:
        raise instruction.call.refuse(str(error)) from None
