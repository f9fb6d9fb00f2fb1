"""What the session knows of a traced graph."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from samba_onnx.errors import UsageError
from samba_onnx.facts.dtypes import tensor_element
from samba_onnx.facts.names import root_name, symbol_name
from samba_onnx.pef.manifest import Symbol
from samba_onnx.program.fingerprint import Fingerprint
from samba_onnx.program.program import Program
from samba_onnx.sessions.arrays import torch_dtype
from samba_onnx.tensor import BUFFERS, SambaTensor


@dataclass
class TracedGraph:
    """One graph that was traced in this process."""

    name: str
    """In the PEF."""
    model: nn.Module | None
    """None for an ONNX model."""
    inputs: tuple[SambaTensor, ...]
    outputs: tuple[SambaTensor, ...]
    """Without values; in the order of the program's outputs."""
    fingerprint: Fingerprint
    residents: Mapping[str, SambaTensor] = field(default_factory=dict)
    """Host side of what stays on the device, by symbol."""
    symbols: Mapping[str, str] = field(default_factory=dict)
    """The PEF's name of a tensor, where it is not the tensor's own."""
    program: Program | None = None
    """What will be compiled; dropped when it was."""

    def symbol(self, name: str) -> str:
        """Return the PEF's name of a tensor."""
        return self.symbols.get(name, name)

    def tensors(self) -> Iterator[SambaTensor]:
        """Iterate over all tensors: inputs, residents, outputs."""
        yield from self.inputs
        yield from self.residents.values()
        yield from self.outputs


def host_parameters(model: nn.Module, prefix: str | None = None) -> dict[str, SambaTensor]:
    """Return the parameters of a module by the names that they have on the device.

    Args:
        model: A module, converted by ``from_torch_model_`` or not; it stays as it is.
        prefix: Goes in front of the names of one that was not converted.

    Returns:
        Tensors that share the module's memory, tied ones under every name.
    """
    found: dict[str, SambaTensor] = {}
    root = root_name(model, prefix)
    for path, parameter in model.named_parameters(remove_duplicate=False):
        name = symbol_name(root, path)
        if isinstance(parameter, SambaTensor):
            found[parameter.sn_name or name] = parameter
        else:
            found[name] = SambaTensor(parameter, name=name)
    return found


def host_buffers(model: nn.Module, prefix: str | None = None) -> dict[str, SambaTensor]:
    """Return the buffers of a module by the names that they have on the device.

    Args:
        model: A module, converted by ``from_torch_model_`` or not; it stays as it is.
        prefix: Goes in front of the names of one that was not converted.

    Returns:
        Tensors that share the module's memory.
    """
    found: dict[str, SambaTensor] = {}
    root = root_name(model, prefix)
    converted = {id(tensor._host.source): tensor for tensor in BUFFERS.values()}
    for path, buffer in model.named_buffers(remove_duplicate=False):
        name = symbol_name(root, path)
        known = converted.get(id(buffer))
        if known is None:
            found[name] = SambaTensor(buffer, name=name)
        else:
            found[known.sn_name] = known
    return found


def empty_tensor(symbol: Symbol, name: str | None = None) -> SambaTensor:
    """Return a tensor without values, in the shape and dtype of a symbol.

    Args:
        symbol: A tensor; sizes that are not known become 0.
        name: Its name; the symbol's when None.

    Raises:
        UsageError: It is no tensor that torch can hold.
    """
    sizes = [size if isinstance(size, int) else 0 for size in symbol.shape or ()]
    return SambaTensor(shape=sizes, dtype=_dtype(symbol.type), name=name or symbol.name)


def matches(symbol: Symbol, tensor: torch.Tensor) -> bool:
    """Return whether a tensor has the shape and dtype of a symbol.

    Args:
        symbol: As it was compiled; sizes that are not known match any.
        tensor: A plain tensor, or any while SambaTensors do not dispatch.
    """
    if symbol.shape is None:
        return _dtype(symbol.type) == tensor.dtype
    if tuple(tensor.shape) != symbol.shape:
        known = all(isinstance(size, int) for size in symbol.shape)
        if known or len(symbol.shape) != tensor.dim():
            return False
        pairs = zip(symbol.shape, tensor.shape, strict=True)
        if any(isinstance(size, int) and size != given for size, given in pairs):
            return False
    return _dtype(symbol.type) == tensor.dtype


@functools.cache
def _dtype(kind: str) -> torch.dtype:
    """The dtype of torch for ONNX's text form of a type."""
    element = tensor_element(kind)
    reason = "it is no tensor of numbers"
    if element is not None:
        try:
            return torch_dtype(element.numpy)
        except TypeError as error:
            reason = str(error)
    raise UsageError(f"torch cannot hold a {kind} ({reason}): run the PEF with samba_onnx.Device")
