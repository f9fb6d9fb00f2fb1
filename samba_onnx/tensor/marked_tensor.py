"""The part of a SambaTensor that names it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import torch

from samba_onnx.errors import UsageError
from samba_onnx.facts.names import gradient_name
from samba_onnx.tensor.device import FAST_ACCESS
from samba_onnx.tensor.marks import NO_MARKS, DimNames, Marks, memory_type

_ANONYMOUS: Final[Iterator[int]] = itertools.count()


class MarkedTensor(torch.Tensor):
    """A tensor with a name, a place in device memory and hints."""

    _marks: Marks = NO_MARKS
    _anonymous_name: str = ""

    @property
    def sn_name(self) -> str:
        """Name of the tensor, unique among those on the device; empty when it has none."""
        return self._marks.name

    @sn_name.setter
    def sn_name(self, name: str) -> None:
        self._marks = replace(self._marks, name=name)

    @property
    def sn_region_name(self) -> str:
        """Name of the tensor's place in device memory; ``sn_name`` unless it was given one.

        Tensors with the same region name share memory on the device.
        """
        return self._marks.region_name or self._marks.name

    @sn_region_name.setter
    def sn_region_name(self, region_name: str) -> None:
        self._marks = replace(self._marks, region_name=region_name)

    @property
    def sn_grad_name(self) -> str:
        """Name of the tensor's gradient; empty when the tensor has no name."""
        return gradient_name(self.sn_name) if self.sn_name else ""

    @property
    def name(self) -> str:
        """``sn_name``, or a made-up name that stays the same as long as the tensor exists."""
        if self.sn_name:
            return self.sn_name
        if not self._anonymous_name:
            self._anonymous_name = f"sambatensor_{next(_ANONYMOUS)}"
        return self._anonymous_name

    @property
    def batch_dim(self) -> int | None:
        """Which dimension is the batch; deprecated, without effect."""
        return self._marks.batch_dim

    @batch_dim.setter
    def batch_dim(self, batch_dim: int | None) -> None:
        self._marks = replace(self._marks, batch_dim=batch_dim)

    @property
    def named_dims(self) -> DimNames:
        """Names of the dimensions; deprecated, without effect."""
        return self._marks.named_dims

    @property
    def sized_dims(self) -> DimNames:
        """Names of the sizes that may vary; without effect."""
        return self._marks.sized_dims

    @property
    def mem_type(self) -> str | None:
        """Memory that should hold the tensor: ``DDR``, ``HBM``, ``Host``, or None for any.

        Raises:
            UsageError: On setting, if there is no such memory.
        """
        return self._marks.mem_type

    @mem_type.setter
    def mem_type(self, mem_type: str | None) -> None:
        self._marks = replace(self._marks, mem_type=memory_type(mem_type))

    @property
    def host_memory(self) -> bool:
        """Whether the device should read the tensor from host memory directly."""
        return self._marks.host_memory

    @host_memory.setter
    def host_memory(self, host_memory: bool) -> None:
        self._marks = replace(self._marks, host_memory=host_memory)

    @property
    def fast_access(self) -> bool:
        """Whether the tensor uses pinned memory.

        Raises:
            UsageError: On setting, if the tensor has no name.
        """
        return self.is_fast_access(self.sn_name)

    @fast_access.setter
    def fast_access(self, fast_access: bool) -> None:
        if not self.sn_name:
            raise UsageError("fast_access is known by name: give the tensor an sn_name first")
        if fast_access:
            FAST_ACCESS.add(self.sn_name)
        else:
            FAST_ACCESS.discard(self.sn_name)

    @staticmethod
    def is_fast_access(name: str) -> bool:
        """Whether the tensor of a name uses pinned memory.

        Args:
            name: An ``sn_name``.
        """
        return name in FAST_ACCESS
