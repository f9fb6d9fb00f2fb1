"""Copies of whole modules and their optimizers between host and device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import nn
from torch.optim import Optimizer

from samba_onnx.errors import NoDeviceError
from samba_onnx.export.programs.training_steps import parameter_names
from samba_onnx.sessions.module_watch import copied
from samba_onnx.sessions.optimizer_steps import fetch_state, send_state
from samba_onnx.sessions.traced import host_buffers, host_parameters
from samba_onnx.sessions.turns import in_turn
from samba_onnx.tensor import DEVICE, SambaTensor


@in_turn
def to_cpu(
    model: nn.Module, optims: Sequence[Optimizer] | None = None, inplace: bool = False
) -> None:
    """Copy parameters, buffers and optimizer state from the device to the host.

    Args:
        model: The module that was traced; tensors that the device does not have are left out.
        optims: Its optimizers.
        inplace: Write into the memory that the host's tensors have. Otherwise they get new.

    Raises:
        NoDeviceError: No program is loaded.
    """
    for tensor in _on_device(_tensors(model)):
        tensor.cpu(inplace)
    copied(model)
    for optimizer in _optimizers(optims):
        fetch_state(optimizer, parameter_names(model), inplace)


def to_cpu_(model: nn.Module, optims: Sequence[Optimizer] | None = None) -> None:
    """``to_cpu`` into the memory that the host's tensors have.

    Args:
        model: The module that was traced.
        optims: Its optimizers.

    Raises:
        NoDeviceError: No program is loaded.
    """
    to_cpu(model, optims, inplace=True)


@in_turn
def to_rdu(model: nn.Module, optims: Sequence[Optimizer] | None = None) -> None:
    """Copy parameters, buffers and optimizer state from the host to the device.

    Args:
        model: The module that was traced; tensors that the device does not have are left out.
        optims: Its optimizers.

    Raises:
        NoDeviceError: No program is loaded.
    """
    for tensor in _on_device(_tensors(model)):
        tensor.rdu()
    copied(model)
    for optimizer in _optimizers(optims):
        send_state(optimizer, parameter_names(model))


@in_turn
def sync_buffers_to_cpu(model: nn.Module, inplace: bool = False) -> None:
    """Copy buffers from the device to the host.

    Args:
        model: The module that was traced.
        inplace: Write into the memory that the host's buffers have.

    Raises:
        NoDeviceError: No program is loaded.
    """
    for tensor in _on_device(host_buffers(model)):
        tensor.cpu(inplace)
    copied(model, dict(model.named_buffers()).values())


@in_turn
def sync_buffers_to_rdu(model: nn.Module) -> None:
    """Copy buffers from the host to the device.

    Args:
        model: The module that was traced.

    Raises:
        NoDeviceError: No program is loaded.
    """
    for tensor in _on_device(host_buffers(model)):
        tensor.rdu()
    copied(model, dict(model.named_buffers()).values())


def _tensors(model: nn.Module) -> dict[str, SambaTensor]:
    return {**host_parameters(model), **host_buffers(model)}


def _optimizers(optimizers: Sequence[Optimizer] | Optimizer | None) -> tuple[Optimizer, ...]:
    if optimizers is None:
        return ()
    return (optimizers,) if isinstance(optimizers, Optimizer) else tuple(optimizers)


def _on_device(tensors: dict[str, SambaTensor]) -> Iterator[SambaTensor]:
    """Tensors that the device has."""
    if not DEVICE.attached:
        raise NoDeviceError(
            "no program is loaded, so that nothing is on a device: call "
            "samba.utils.trace_graph(model, inputs, pef=...) first"
        )
    # Tied parameters are there once: they have one name.
    yield from (tensor for tensor in tensors.values() if DEVICE.has(tensor.sn_region_name))
