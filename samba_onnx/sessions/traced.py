"""What the session knows of a traced graph."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import onnx_ir as ir
import torch
from torch import nn

from samba_onnx.errors import UsageError
from samba_onnx.facts.dtypes import tensor_element
from samba_onnx.facts.names import gradient_name, root_name, updated_name, written_name
from samba_onnx.pef.manifest import Manifest, Symbol
from samba_onnx.program.fingerprint import Fingerprint, fingerprint
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.program.program import Program
from samba_onnx.sessions.module_watch import ModuleWatch
from samba_onnx.tensor import BUFFERS, SambaTensor
from samba_onnx.tensor.arrays import torch_dtype
from samba_onnx.tensor.inputs import tensors_of
from samba_onnx.tensor.modules import member_names


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
    training: bool = False
    """Whether the model was in training mode; set to what it is once a run has told of a switch."""
    watch: ModuleWatch | None = None
    """Notices what is changed in the model after the trace; None for an ONNX model."""

    def symbol(self, name: str) -> str:
        """Return the PEF's name of a tensor."""
        return self.symbols.get(name, name)

    def hand_over(self, manifest: Manifest) -> None:
        """Give the model its outputs, and begin to notice what is changed in it.

        Args:
            manifest: Says which parameters have gradients on the device.
        """
        if self.model is None:
            return
        self.model.output_tensors = self.outputs  # type: ignore[assignment]
        known = {s.name for s in manifest.symbols if s.kind is SymbolKind.GRADIENT}
        names = member_names(self.model, root_name(self.model))
        trained = {path for path, name in names.items() if gradient_name(name) in known}
        self.watch = ModuleWatch(self.model, trained)

    def tensors(self) -> Iterator[SambaTensor]:
        """Iterate over all tensors: inputs, residents, outputs."""
        yield from self.inputs
        yield from self.residents.values()
        yield from self.outputs


def traced_graph(program: Program, model: nn.Module, inputs: Any) -> TracedGraph:
    """Return a program's tensors.

    Args:
        program: The program of the module with these inputs.
        model: The module.
        inputs: Named tensors.
    """
    outputs: dict[str, ir.Value] = {}
    operands: set[str] = set()
    for part in program.parts:
        operands |= {v.name or "" for v in part.model.graph.inputs} - outputs.keys()
        outputs |= {v.name or "": v for v in part.model.graph.outputs}
    hosts = {**host_parameters(model), **host_buffers(model)}
    # What is written and never read is known by its new value only.
    ends = (str, updated_name, written_name)
    residents = {n: t for n, t in hosts.items() if any(e(n) in program.residents for e in ends)}
    member_kinds = (SymbolKind.WEIGHT, SymbolKind.BUFFER)
    for name, kind in program.residents.items():
        if kind in member_kinds and name in operands and name not in residents:
            raise UsageError(
                f"parameter {name!r} of the traced program is not in the model, which has "
                f"{', '.join(list(hosts)[:8])}, ...: convert the model once, with "
                "samba.from_torch_model_(model)"
            )
    return TracedGraph(
        name=program.name,
        model=model,
        # dict.fromkeys: a tensor that forward takes twice is one input.
        inputs=tuple(dict.fromkeys(tensors_of(inputs))),
        outputs=tuple(_empty_output(name, outputs[name]) for name in program.outputs),
        fingerprint=fingerprint(program),
        residents=residents,
        program=program,
        training=model.training,
    )


def host_parameters(model: nn.Module) -> dict[str, SambaTensor]:
    """Return the parameters of a module by the names that they have on the device.

    Args:
        model: A module, converted by ``from_torch_model_`` or not; it stays as it is.

    Returns:
        Tensors that share the module's memory; tied ones are there once.
    """
    names = member_names(model, root_name(model))
    parameters: dict[str, SambaTensor] = {}
    for path, parameter in model.named_parameters():
        if isinstance(parameter, SambaTensor):
            parameters[names[path]] = parameter
        else:
            parameters.setdefault(names[path], SambaTensor(parameter, name=names[path]))
    return parameters


def host_buffers(model: nn.Module) -> dict[str, SambaTensor]:
    """Return the buffers of a module by the names that they have on the device.

    Args:
        model: A module, converted by ``from_torch_model_`` or not; it stays as it is.

    Returns:
        Tensors that share the module's memory.
    """
    names = member_names(model, root_name(model))
    buffers: dict[str, SambaTensor] = {}
    for path, buffer in model.named_buffers():
        name = names[path]
        known = BUFFERS.get(name)
        if known is not None and known._host.source is buffer:
            buffers[name] = known
        else:
            buffers.setdefault(name, SambaTensor(buffer, name=name))
    return buffers


def empty_tensor(symbol: Symbol) -> SambaTensor:
    """Return a tensor without values, in the shape, dtype and name of a symbol.

    Args:
        symbol: A tensor; sizes that are not known become 0.

    Raises:
        UsageError: It is no tensor that torch can hold.
    """
    sizes = [size if isinstance(size, int) else 0 for size in symbol.shape or ()]
    return SambaTensor(shape=sizes, dtype=_dtype(symbol.type), name=symbol.name)


def empty_output(symbol: Symbol) -> SambaTensor:
    """Return a tensor that stands for an output, as ``empty_tensor`` makes it.

    Args:
        symbol: The output.

    Raises:
        UsageError: It is no tensor that torch can hold.
    """
    return _standing_for_output(empty_tensor(symbol))


def _standing_for_output(tensor: SambaTensor) -> SambaTensor:
    tensor._marks = replace(tensor._marks, stands_for_output=True)
    return tensor


def matches(symbol: Symbol, tensor: torch.Tensor) -> bool:
    """Return whether a tensor has the shape and dtype of a symbol.

    Args:
        symbol: As it was compiled; sizes that are not known match any.
        tensor: A plain tensor, or any while SambaTensors do not dispatch.
    """
    if symbol.shape is None:
        return _dtype(symbol.type) == tensor.dtype
    if tuple(tensor.shape) != symbol.shape:
        if len(symbol.shape) != tensor.dim():
            return False
        pairs = zip(symbol.shape, tensor.shape, strict=True)
        if any(isinstance(size, int) and size != length for size, length in pairs):
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


def _empty_output(name: str, value: ir.Value) -> SambaTensor:
    shape = () if value.shape is None else value.shape.numpy()
    dtype = torch.float32 if value.dtype is None else torch_dtype(value.dtype.numpy())
    return _standing_for_output(SambaTensor(shape=shape, dtype=dtype, name=name))
