"""Runs that are repeated with inputs copied from the host's memory by address, with no array around them.

On a small model an array takes as long to make as an operator to execute.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import methodcaller
from typing import Any, NamedTuple, Protocol

import numpy as np

from samba_onnx.runtime.elements import Array
from samba_onnx.runtime.inputs import InputSpec
from samba_onnx.runtime.memory import DeviceMemory
from samba_onnx.runtime.plans import RunPlan
from samba_onnx.runtime.registers import Registers
from samba_onnx.runtime.replay import Replay

__all__ = ["HostTensor", "MemoryRun", "make_memory_run"]


class HostTensor(Protocol):
    """What a tensor says of its memory; torch's do, whom the runtime does not know."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes."""

    @property
    def dtype(self) -> object:
        """The type of the elements: one object for each type."""

    @property
    def is_cpu(self) -> bool:
        """Whether the memory is the host's."""

    def is_contiguous(self) -> bool:
        """Return whether elements lie one behind the other."""

    def is_neg(self) -> bool:
        """Return whether the memory holds the negative of the values."""

    def data_ptr(self) -> int:
        """Return where the memory begins."""


class _Slot(NamedTuple):
    """An input: what a tensor must be for its memory to be copied, and where to."""

    position: int
    """Among the tensors of a run."""
    shape: tuple[int, ...]
    dtype: object
    address: int
    """In device memory."""
    size: int
    """Bytes."""
    accepts: Callable[[int], bool] | None
    """Whether the integers at an address of the host are in the ranges that the graph demands; None where it
    demands none."""


@dataclass(frozen=True)
class MemoryRun:
    """A run with other values: same names, shapes and types, and all values where they were."""

    replay: Replay
    slots: tuple[_Slot, ...]
    registers: Registers
    """The device's argins, where those of the run are set."""

    def sources(self, tensors: Sequence[HostTensor]) -> list[int] | None:
        """Return where the values of the inputs are, if the run can be made with them.

        Args:
            tensors: The inputs, in the order of the run that it repeats.

        Returns:
            The address of each input on the host, in the order of ``slots``; None for tensors whose memory cannot be
            copied as it is, and for those that a run refuses: it says why when it is made the long way.
        """
        sources = []
        try:
            for position, shape, dtype, _, _, accepts in self.slots:
                tensor = tensors[position]
                if (
                    tensor.shape != shape
                    or tensor.dtype is not dtype
                    or not tensor.is_cpu
                    or not tensor.is_contiguous()
                    # A view of a conjugate: its memory holds what it is the negative of.
                    or tensor.is_neg()
                ):
                    return None
                address = tensor.data_ptr()
                if accepts is not None and not accepts(address):
                    return None
                sources.append(address)
        except RuntimeError:  # From sparse tensors and their like, which the long way refuses.
            return None
        return sources

    def run(self, sources: Sequence[int], argins: Mapping[str, Any] | None = None) -> list[Array]:
        """Make the run, where values are as they were.

        Args:
            sources: From :meth:`sources`, of tensors that the caller still has.
            argins: Numbers by the names of argins, in a mapping that is not changed any more.

        Returns:
            Fresh arrays, in the order of the outputs.

        Raises:
            InputError: An argin does not fit.
            ExecutionError: An operator failed.
        """
        # Before anything is copied: an argin that does not fit leaves the inputs as they were.
        if argins:
            self.registers.apply(argins)
        for (_, _, _, address, size, _), source in zip(self.slots, sources, strict=True):
            # Both sides are known to be contiguous and of the same type, so bytes suffice.
            ctypes.memmove(address, source, size)
        self.replay.execute()
        return [fetch() for _, fetch in self.replay.outputs]


def make_memory_run(
    plan: RunPlan,
    replay: Replay,
    memory: DeviceMemory,
    registers: Registers,
    given: Mapping[str, tuple[int, HostTensor, Array]],
) -> MemoryRun | None:
    """Return a replay as one whose inputs are copied by address.

    Args:
        plan: What it executes.
        replay: The replay.
        memory: The device's memory.
        registers: The device's argins.
        given: Position, tensor and array of the inputs of the run that is repeated, by name.

    Returns:
        The run; None if an array has another type than the device has in its place.
    """
    slots = []
    for name in replay.inputs:
        position, tensor, array = given[name]
        items = memory.tensor(name).items
        if array.dtype != items.dtype:
            # Integers of another width are converted, and so no bytes to copy.
            return None
        accepts = _acceptance(plan.specs[name], items)
        slots.append(
            _Slot(
                position,
                tensor.shape,
                tensor.dtype,
                address=items.ctypes.data,
                size=items.nbytes,
                accepts=accepts,
            )
        )
    return MemoryRun(replay, tuple(slots), registers)


def _acceptance(spec: InputSpec, items: Array) -> Callable[[int], bool] | None:
    """Return what looks at the integers at an address of the host, for an input with ranges."""
    checks = spec.index_checks
    if not checks:
        return None
    # One array for all runs: to make one around each address takes longer than to copy what is there.
    copy = np.empty_like(items)
    place, size, accepted = copy.ctypes.data, copy.nbytes, methodcaller("accepts", copy)

    def accepts(address: int) -> bool:
        ctypes.memmove(place, address, size)
        return all(map(accepted, checks))

    return accepts
