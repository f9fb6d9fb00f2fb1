"""Whole modules between host and device, and to ONNX."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import onnx
from torch import nn
from torch.optim import Optimizer

from samba_onnx.sessions.calls.parts import SessionParts
from samba_onnx.sessions.module_transfers import (
    fetch_buffers,
    fetch_module,
    send_buffers,
    send_module,
)

__all__ = ["ModuleCalls"]


class ModuleCalls(SessionParts):
    """Calls about all tensors of a module."""

    @classmethod
    def to_cpu(
        cls, model: nn.Module, optims: Sequence[Optimizer] | None = None, inplace: bool = False
    ) -> None:
        """Copy parameters, buffers and optimizer state from the device to the host.

        Args:
            model: The module that was traced; tensors that the device does not have are left out.
            optims: Its optimizers.
            inplace: Write into the memory that the host's tensors have. Otherwise they get new.

        Raises:
            NoDeviceError: No program is loaded.
        """
        fetch_module(model, optims, inplace)

    @classmethod
    def to_cpu_(cls, model: nn.Module, optims: Sequence[Optimizer] | None = None) -> None:
        """``to_cpu`` into the memory that the host's tensors have.

        Args:
            model: The module that was traced.
            optims: Its optimizers.

        Raises:
            NoDeviceError: No program is loaded.
        """
        fetch_module(model, optims, inplace=True)

    @classmethod
    def to_rdu(cls, model: nn.Module, optims: Sequence[Optimizer] | None = None) -> None:
        """Copy parameters, buffers and optimizer state from the host to the device.

        Args:
            model: The module that was traced; tensors that the device does not have are left out.
            optims: Its optimizers.

        Raises:
            NoDeviceError: No program is loaded.
        """
        send_module(model, optims)

    @classmethod
    def sync_buffers_to_cpu(cls, model: nn.Module, inplace: bool = False) -> None:
        """Copy buffers from the device to the host.

        Args:
            model: The module that was traced.
            inplace: Write into the memory that the host's buffers have.

        Raises:
            NoDeviceError: No program is loaded.
        """
        fetch_buffers(model, inplace)

    @classmethod
    def sync_buffers_to_rdu(cls, model: nn.Module) -> None:
        """Copy buffers from the host to the device.

        Args:
            model: The module that was traced.

        Raises:
            NoDeviceError: No program is loaded.
        """
        send_buffers(model)

    def to_onnx(self, model: Any, path: str | os.PathLike[str] | None = None) -> onnx.ModelProto:
        """Return an ONNX model with the weights that it has by now.

        Weights and buffers of a model that was traced are fetched from the device first, into the
        host's memory. Everything but their content is as it was in the model: names, interface,
        nodes, metadata; losses that were built on it are no part of it.

        Args:
            model: What ``samba.from_onnx`` returned, or the ONNX model that was traced with its
                optimizers, or the path to it.
            path: Where to write the model, in whole or not at all. Weights go into a file beside
                it, named with ``.data`` appended, when they did so in the original or take more
                than 2 GB.

        Returns:
            The model; with data beside the file it refers to that data, else it holds its weights.

        Raises:
            UsageError: The module was not made of an ONNX model, or the ONNX model was not traced
                for training.
            OutputError: The file cannot be written.
            ModelError: A weight has another shape than in the model.
        """
        return self._writer.to_onnx(model, path)
