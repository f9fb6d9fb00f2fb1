"""Sessions bound to device memory, so that running them moves nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import onnx
import onnxruntime as ort

from samba_onnx.runtime.elements import Array
from samba_onnx.runtime.engine.lowerings.nodes import declared_shape
from samba_onnx.runtime.engine.overwriting import unsafe_in_place
from samba_onnx.runtime.memory import DeviceMemory


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
