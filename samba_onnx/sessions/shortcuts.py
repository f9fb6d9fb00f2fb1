"""Runs that were made before, made again with as little as possible around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from ctypes import memmove
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from samba_onnx.runtime.device import Device
from samba_onnx.runtime.elements import Array
from samba_onnx.runtime.registers import Registers
from samba_onnx.runtime.replay import Replay
from samba_onnx.tensor import SambaTensor
from samba_onnx.tensor.arrays import FOREIGN, to_array
from samba_onnx.tensor.marks import Marks
from samba_onnx.tensor.native import natively


class InputSlot(NamedTuple):
    """Where an input of a run goes."""

    place: int
    """Position among the tensors of the call."""
    shape: torch.Size
    dtype: torch.dtype
    address: int
    """In device memory."""
    bytes: int


@dataclass(frozen=True)
class Shortcut:
    """A run with other values: same names, shapes and types, and all values where they were.

    It does what ``SambaSession.run`` does, in fewer steps: on a small model each of them would
    take as long as an operator.
    """

    replay: Replay
    inputs: tuple[InputSlot, ...]
    asked: list[Marks]
    """Names and regions of the outputs, in the order in which they were asked for."""
    outputs: tuple[tuple[Callable[[], Array], Marks], ...]
    """What fetches each, and the marks of what is returned."""
    registers: Registers
    """The device's argins, where those of the run are set."""
    is_noted: bool
    """Whether there is more to a run than its values: argins that count steps and draw seeds, or a
    backward that may overwrite gradients."""

    def sources(self, tensors: Sequence[Any], asked: list[Marks]) -> list[int] | None:
        """Return where the values of the inputs are, if the run can be made with them.

        Args:
            tensors: SambaTensors with the names of the run.
            asked: Marks of the outputs that are wanted, which have the names of the run.

        Returns:
            The address of each input on the host, in the order of ``inputs``; None if the run
            cannot be made like this.
        """
        # Other marks are other tensors, even where the values would be the same.
        if asked != self.asked:
            return None
        sources = []
        with natively():
            try:
                for place, shape, dtype, _, _ in self.inputs:
                    tensor = tensors[place]
                    if (
                        # Without values on the host there is no address to copy from.
                        tensor._host.is_empty
                        or tensor.shape != shape
                        or tensor.dtype is not dtype
                        or not tensor.is_cpu
                        or not tensor.is_contiguous()
                        # A view of a conjugate: its memory holds what it is the negative of.
                        or tensor.is_neg()
                    ):
                        return None
                    sources.append(tensor.data_ptr())
            except RuntimeError:  # From sparse tensors and their like, which the long way refuses.
                return None
        return sources

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
        # Before anything is copied: an argin that does not fit leaves the inputs as they were.
        if argins:
            self.registers.apply(argins)
        for (_, _, _, address, size), source in zip(self.inputs, sources, strict=True):
            # Both sides are known to be contiguous and of the same type, so bytes suffice.
            memmove(address, source, size)
        self.replay.execute()
        results = []
        for fetch, marks in self.outputs:
            # Nothing else refers to the fresh array.
            result: Any = torch.from_numpy(fetch())
            # The same object: a wrapper would take as long again.
            result.__class__ = SambaTensor
            result._marks = marks
            results.append(result)
        return tuple(results)


def make_shortcut(
    device: Device,
    replay: Replay,
    names: Sequence[str],
    tensors: Sequence[SambaTensor],
    asked: Sequence[SambaTensor],
    outputs: Sequence[SambaTensor],
    *,
    is_noted: bool,
) -> Shortcut | None:
    """Return a shortcut for a run that was just made.

    Args:
        device: What made it.
        replay: The device's record of it.
        names: Symbols of the tensors.
        tensors: The inputs that the call was given.
        asked: The outputs as they were asked for.
        outputs: What it returned.
        is_noted: Whether there is more to a run than its values.

    Returns:
        The shortcut; None if the run's tensors have types that numpy does not have, or others than
        the device, or are not on the host.
    """
    places = {name: index for index, name in enumerate(names)}
    with natively():
        if any(t.dtype in FOREIGN or t.device.type != "cpu" for t in (*tensors, *outputs)):
            return None
        slots = []
        for name, *_ in replay.inputs:
            tensor, items = tensors[places[name]], device.memory.tensor(name).items
            if tensor.is_complex() or to_array(tensor).dtype != items.dtype:
                # Its memory may hold the conjugate, or integers of another width.
                return None
            slots.append(
                InputSlot(places[name], tensor.shape, tensor.dtype, items.ctypes.data, items.nbytes)
            )
    fetches = [fetch for _, fetch in replay.outputs]
    marks = [output._marks for output in outputs]
    return Shortcut(
        replay,
        tuple(slots),
        [one._marks for one in asked],
        tuple(zip(fetches, marks, strict=True)),
        device.registers,
        is_noted,
    )
