"""Tensors by name, on the device and on the host."""

from __future__ import annotations

from collections.abc import Sequence

from samba_onnx.sessions.calls.parts import SessionParts
from samba_onnx.sessions.tensor_access import TensorAccess
from samba_onnx.tensor import BUFFERS, SambaTensor

__all__ = ["TensorCalls"]


class TensorCalls(SessionParts):
    """Calls about single tensors."""

    @property
    def buffer_dict(self) -> dict[str, SambaTensor]:
        """Buffers of all converted modules, by name; they share memory with the modules' own."""
        return BUFFERS

    @property
    def ctx(self) -> TensorAccess:
        """The device's tensors by name; programs write gradients there, with ``ctx.set_tensors``."""
        return self._access

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
        return self._access.get_tensors(samba_tensors)

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
        return self._access.get_tensors_by_name(names)

    def get_samba_tensor_by_name(self, name: str) -> SambaTensor:
        """Return a traced tensor; nothing is copied.

        Args:
            name: Its name.

        Raises:
            InputError: No such tensor was traced.
        """
        return self._state.tensor(name)

    def update_tensor(self, name: str, tensor: SambaTensor | None) -> None:
        """Replace the host side of a traced tensor, or forget it; ``to_device`` sends it.

        Args:
            name: Its name.
            tensor: The new values; None forgets the tensor.

        Raises:
            InputError: No such tensor was traced, or shape or dtype differ.
        """
        self._access.update_tensor(name, tensor)

    def to_device(self) -> None:
        """Send every traced tensor that has values on the host to the device.

        Values that were not made yet are made, one by one, and dropped again.

        Raises:
            NotTracedError: No graph was traced.
        """
        self._access.to_device()

    def _traced_tensors(self) -> tuple[SambaTensor, ...]:
        """Return every traced tensor but the states of optimizers, which are in ``optim_dict``.

        Programs send those that have data themselves, after tracing with ``transfer_device=False``.
        """
        return tuple(t for group in self.tensor_dict.values() for t in group.values())

    def add_aux_tensor(self, tensor: SambaTensor, name: str) -> None:
        """Keep a tensor by name, beside those that are traced.

        Args:
            tensor: Any.
            name: Its name.

        Raises:
            UsageError: The name is taken.
        """
        self._state.add(tensor, name)

    def is_valid_aux_tensor_name(self, name: str) -> bool:
        """Whether ``add_aux_tensor`` may be given a name.

        Args:
            name: Any text.
        """
        return self._state.is_free(name)
