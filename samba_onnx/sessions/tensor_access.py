"""Tensors by name, on host and device, between runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from samba_onnx.errors import InputError, UsageError
from samba_onnx.runtime.inputs import of_width
from samba_onnx.sessions.loaded import LoadedProgram
from samba_onnx.sessions.run_values import wrapped
from samba_onnx.sessions.traced_state import TracedState
from samba_onnx.sessions.turns import in_turn
from samba_onnx.tensor import DEVICE, SambaTensor, to_torch
from samba_onnx.tensor.arrays import from_array, to_array
from samba_onnx.tensor.marks import marks_of


class TensorAccess:
    """Reads and writes traced tensors."""

    def __init__(self, program: LoadedProgram, state: TracedState) -> None:
        """Take what access depends on.

        Args:
            program: Must have a device before anything is read.
            state: Knows the tensors.
        """
        self._program = program
        self._state = state

    @in_turn
    def get_tensors(self, samba_tensors: Sequence[SambaTensor]) -> tuple[SambaTensor, ...]:
        """Copy the values that tensors have on the device.

        Args:
            samba_tensors: Tensors that were traced; they stay as they are.

        Returns:
            New tensors with these names, in memory of their own.

        Raises:
            NotTracedError: No graph was traced.
            InputError: The device has no such tensor.
            ScheduleError: It has no value now.
        """
        self._program.required_device()
        listed = [samba_tensors] if isinstance(samba_tensors, SambaTensor) else samba_tensors
        return tuple(self._read(one.sn_name, one.sn_region_name) for one in listed)

    @in_turn
    def get_tensors_by_name(self, names: Sequence[str]) -> tuple[SambaTensor, ...]:
        """Copy values from the device.

        Args:
            names: Names of tensors or regions.

        Returns:
            New tensors with these names, in memory of their own.

        Raises:
            NotTracedError: No graph was traced.
            InputError: The device has no such tensor.
            ScheduleError: It has no value now.
        """
        self._program.required_device()
        listed = [names] if isinstance(names, str) else names
        return tuple(self._read(name, name) for name in listed)

    @in_turn
    def set_tensors(self, values: Mapping[str, Any]) -> None:
        """Write values to the device, as programs do with ``samba.session.ctx.set_tensors``.

        Args:
            values: Arrays or tensors of the shapes and dtypes that the device has, by the name of
                a tensor, of its gradient, or of a region.

        Raises:
            NotTracedError: No graph was traced.
            InputError: The device has no such tensor, or shape or dtype differ; those before it
                are written.
        """
        self._program.required_device()
        for name, value in values.items():
            # np.array copies: torch warns of arrays that it may not write to.
            tensor = value if isinstance(value, torch.Tensor) else torch.from_numpy(np.array(value))
            place = self._place(name, name)
            DEVICE.store(place).write(place, to_torch(tensor).detach())

    @in_turn
    def update_tensor(self, name: str, tensor: SambaTensor | None) -> None:
        """Replace the host side of a traced tensor, or forget it; ``to_device`` sends it.

        Args:
            name: Its name.
            tensor: The new values; None forgets the tensor.

        Raises:
            InputError: No such tensor was traced, or shape or dtype differ.
        """
        old = self._state.get_samba_tensor_by_name(name)
        if tensor is None:
            self._state.forget(name)
            return
        if not isinstance(tensor, torch.Tensor):
            raise UsageError(
                f"tensor {name!r} was to become {type(tensor).__name__}; give a tensor, or None"
            )
        values = tensor.torch_tensor() if isinstance(tensor, SambaTensor) else tensor
        # Integers of another width are taken where all values fit, as by a run.
        if values.shape == old.shape and values.dtype != old.dtype:
            expected = to_array(torch.empty(0, dtype=old.dtype)).dtype
            values = from_array(of_width(name, to_array(values), expected))
        if values.shape != old.shape or values.dtype != old.dtype:
            raise InputError(
                f"tensor {name!r} is {old.dtype} of shape {list(old.shape)}; it was given "
                f"{tensor.dtype} of shape {list(tensor.shape)}"
            )
        old.data = values.detach()
        # Only the host has this input: without it, the next run would take the old values.
        if name in self._state.host_inputs:
            self._state.host_inputs[name] = old

    @in_turn
    def to_device(self) -> None:
        """Send every traced tensor that has values on the host to the device.

        Values that were not made yet are made, one by one, and dropped again.

        Raises:
            NotTracedError: No graph was traced.
        """
        self._program.required_device()
        for tensor in self._state:
            if DEVICE.has(tensor.sn_region_name) and (
                tensor.has_data or tensor.materializer_provided
            ):
                place = tensor.sn_region_name
                DEVICE.store(place).write(place, tensor.torch_tensor().detach())
        # The states of optimizers were sent with the rest: steps count on from the host's.
        self._program.hyperparameters.resume()

    def _read(self, name: str, region: str) -> SambaTensor:
        place = self._place(name, region)
        marks = marks_of(name, "" if region == name else region)
        return wrapped(DEVICE.store(place).read(place), marks)

    def _place(self, name: str, region: str) -> str:
        """Return where the device has a tensor.

        Args:
            name: Name of the tensor, or of a place.
            region: Its region.

        Raises:
            InputError: The device has it nowhere.
        """
        symbols = {graph.symbol(name) for graph in self._state.graphs.values()}
        # From the most exact to the least: a region may belong to several tensors.
        for place in (name, *symbols, region):
            if DEVICE.has(place):
                return place
        raise InputError(f"the device has no tensor {name!r}; traced were {self._state.listing()}")
