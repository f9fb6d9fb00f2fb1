"""Sessions bound to device memory, so that running them moves nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import onnx
import onnxruntime as ort

from samba_onnx.runtime.elements import Array
from samba_onnx.runtime.engine.hazards import unsafe_outputs
from samba_onnx.runtime.engine.nodes import declared_shape
from samba_onnx.runtime.memory import DeviceMemory, DeviceTensor


class Bound(Protocol):
    """What executes in device memory."""

    def run(self) -> None:
        """Execute. Whatever onnxruntime raises passes through."""


@dataclass(frozen=True)
class BoundSession:
    """A session with its place in device memory."""

    session: ort.InferenceSession
    binding: Any
    copies: tuple[tuple[Array, Array], ...]
    """Where to copy from buffers after a run, and the buffers."""
    values: Mapping[str, ort.OrtValue]
    """What the session uses as initializers; it does not keep them itself."""

    def run(self) -> None:
        """Execute. Whatever onnxruntime raises passes through."""
        self.session.run_with_iobinding(self.binding)
        for place, buffer in self.copies:
            place[...] = buffer


@dataclass(frozen=True)
class BoundSteps:
    """Several that execute one after the other."""

    steps: tuple[Bound, ...]

    def run(self) -> None:
        """Execute. Whatever onnxruntime raises passes through."""
        for step in self.steps:
            step.run()


def bind_session(
    session: ort.InferenceSession,
    model: onnx.ModelProto,
    memory: DeviceMemory,
    values: Mapping[str, ort.OrtValue],
    places: Mapping[str, str],
) -> BoundSession:
    """Bind a session to device memory.

    Args:
        session: Of the model.
        model: As onnxruntime got it; its inputs and outputs are symbols, outputs maybe in other
            shapes.
        memory: Where these live.
        values: What the session uses as initializers.
        places: Symbols by outputs that are none themselves, but live where a symbol does; the last
            of the model.
    """
    inputs = [value.name for value in model.graph.input]
    outputs = {value.name: declared_shape(value) for value in model.graph.output}
    binding = session.io_binding()
    for name in inputs:
        memory.tensor(name).bind_input(binding, name)
    symbols = [name for name in outputs if name not in places]
    unsafe = unsafe_in_place(model, memory, inputs, symbols)
    copies: list[tuple[Array, Array]] = []
    for name, shape in outputs.items():
        tensor = memory.tensor(places.get(name, name))
        if name in unsafe:
            buffer = memory.private(name)
            copies.append((tensor.items, buffer.items))
            buffer.bind_output(binding, name, shape)
        else:
            tensor.bind_output(binding, name, shape)
    return BoundSession(session, binding, tuple(copies), values)


def unsafe_in_place(
    model: onnx.ModelProto, memory: DeviceMemory, inputs: Sequence[str], outputs: Sequence[str]
) -> frozenset[str]:
    """Return the outputs of a session that must be written to a buffer first.

    Args:
        model: As onnxruntime gets it.
        memory: Where its inputs and outputs live.
        inputs: The symbols that the model's inputs are, by position.
        outputs: The symbols that its first outputs are.

    Returns:
        Symbols.
    """
    inside = {
        symbol: value.name
        for symbols, values in ((inputs, model.graph.input), (outputs, model.graph.output))
        for symbol, value in zip(symbols, values, strict=False)
    }
    readers: dict[str, list[str]] = {}
    for name in inputs:
        readers.setdefault(memory.region(name), []).append(name)
    shared = {
        name: readers[memory.region(name)] for name in outputs if memory.region(name) in readers
    }
    alike = {
        name: names
        for name, names in shared.items()
        if all(_alike(memory.tensor(name), memory.tensor(other)) for other in names)
    }
    overwritten = {
        inside[name]: [inside[other] for other in names] for name, names in alike.items()
    }
    unsafe = unsafe_outputs(model, overwritten)
    return frozenset(name for name in shared if name not in alike or inside[name] in unsafe)


def written_over(model: onnx.ModelProto, memory: DeviceMemory) -> frozenset[str]:
    """Return the outputs of a model that live where it reads inputs.

    Args:
        model: Its inputs and outputs are symbols.
        memory: Where these live.
    """
    read = {memory.region(value.name) for value in model.graph.input}
    return frozenset(v.name for v in model.graph.output if memory.region(v.name) in read)


def _alike(one: DeviceTensor, other: DeviceTensor) -> bool:
    return (one.element, one.shape) == (other.element, other.shape)
