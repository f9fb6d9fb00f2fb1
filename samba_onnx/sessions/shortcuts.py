"""Runs that were made before, made again by the device with as little as possible around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from samba_onnx.runtime.device import Device
from samba_onnx.runtime.memory_runs import MemoryRun
from samba_onnx.runtime.prepared import PreparedRun
from samba_onnx.tensor import SambaTensor
from samba_onnx.tensor.arrays import FOREIGN, to_array
from samba_onnx.tensor.marks import Marks
from samba_onnx.tensor.native import natively


@dataclass(frozen=True)
class Shortcut:
    """What the session adds to a run that the device repeats from memory: SambaTensors on both sides."""

    memory_run: MemoryRun
    asked: list[Marks]
    """Names and regions of the outputs, in the order in which they were asked for."""
    outputs: tuple[Marks, ...]
    """The marks of what is returned."""
    lone: tuple[int, ...]
    """Positions of the inputs with one element: what stands for values that were not made yet repeats one element,
    so that larger ones are not contiguous."""
    is_noted: bool
    """Whether there is more to a run than its values: argins that count steps and draw seeds, or a
    backward that may overwrite gradients."""

    def sources(self, tensors: Sequence[Any], asked: list[Marks]) -> list[int] | None:
        """Return where the values of the inputs are, if the run can be made with them.

        Args:
            tensors: SambaTensors with the names of the run.
            asked: Marks of the outputs that are wanted, which have the names of the run.

        Returns:
            The address of each input on the host; None if the run cannot be made like this.
        """
        # Other marks are other tensors, even where the values would be the same.
        if asked != self.asked:
            return None
        for position in self.lone:
            # Without values on the host there is no address to copy from.
            if tensors[position]._host.is_empty:
                return None
        with natively():
            return self.memory_run.sources(tensors)

    def run(
        self, sources: Sequence[int], argins: Mapping[str, Any] | None = None
    ) -> tuple[SambaTensor, ...]:
        """Make the run, where values are as they were.

        Args:
            sources: From :meth:`sources`, of tensors that the caller still has.
            argins: Numbers by the names of argins, in a mapping that is not changed any more.

        Returns:
            The outputs.

        Raises:
            InputError: An argin does not fit.
            ExecutionError: An operator failed.
        """
        results = []
        for array, marks in zip(self.memory_run.run(sources, argins), self.outputs, strict=True):
            # Nothing else refers to the fresh array.
            result: Any = torch.from_numpy(array)
            # The same object: a wrapper would take as long again.
            result.__class__ = SambaTensor
            result._marks = marks
            results.append(result)
        return tuple(results)


def make_shortcut(
    device: Device,
    prepared: PreparedRun,
    tensors: Sequence[SambaTensor],
    asked: Sequence[SambaTensor],
    outputs: Sequence[SambaTensor],
    *,
    is_noted: bool,
) -> Shortcut | None:
    """Return a shortcut for a run that was just made.

    Args:
        device: What made it.
        prepared: The device's record of it.
        tensors: The inputs that the call was given.
        asked: The outputs as they were asked for.
        outputs: What it returned.
        is_noted: Whether there is more to a run than its values.

    Returns:
        The shortcut; None if the run's tensors have types that numpy does not have, or others than
        the device, or are not on the host.
    """
    with natively():
        if any(t.dtype in FOREIGN or t.device.type != "cpu" for t in (*tensors, *outputs)):
            return None
        # The memory of a complex tensor may hold its conjugate.
        if any(tensor.is_complex() for tensor in tensors):
            return None
        names = prepared.request.inputs
        given = {
            name: (place, tensor, to_array(tensor))
            for place, (name, tensor) in enumerate(zip(names, tensors, strict=True))
        }
        memory_run = device.runs.from_memory(prepared, device.registers, given)
    if memory_run is None:
        return None
    marks = tuple(output._marks for output in outputs)
    lone = tuple(place for place, tensor in enumerate(tensors) if tensor.shape.numel() == 1)
    return Shortcut(memory_run, [one._marks for one in asked], marks, lone, is_noted)
