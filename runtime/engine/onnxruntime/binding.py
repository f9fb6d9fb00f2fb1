"""Sessions bound to device memory, so that running them moves nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import onnx
import onnxruntime as ort

from samba_onnx.runtime.elements import Array
from samba_onnx.runtime.engine.lowerings.nodes import declared_shape
from samba_onnx.runtime.engine.overwriting import unsafe_in_place
from samba_onnx.runtime.engine.protocol import BoundComputation
from samba_onnx.runtime.memory import DeviceMemory, DeviceTensor

_INLINE_BYTES: Final = 1024
"""Tensors of shapes and bounds, which onnxruntime's optimizer wants to see, are smaller."""


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

    steps: tuple[BoundComputation, ...]

    def run(self) -> None:
        """Execute. Whatever onnxruntime raises passes through."""
        for step in self.steps:
            step.run()


def freeze_inputs(
    model: onnx.ModelProto, tensors: Mapping[str, DeviceTensor]
) -> dict[str, DeviceTensor]:
    """Turn inputs into initializers, so that onnxruntime may compute with them in advance.

    Args:
        model: Is changed in place.
        tensors: Inputs by name, with values whose elements do not share bytes. They must keep
            these values as long as the session lives.

    Returns:
        Those whose content onnxruntime must be given, for the model only names them; the content
        of small ones is in the model.
    """
    inputs = [value for value in model.graph.input if value.name not in tensors]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    outside: dict[str, DeviceTensor] = {}
    for name, tensor in tensors.items():
        proto = model.graph.initializer.add(
            name=name, data_type=tensor.element.number, dims=tensor.shape
        )
        if tensor.items.nbytes <= _INLINE_BYTES:
            proto.raw_data = tensor.items.tobytes()
            continue
        proto.data_location = onnx.TensorProto.EXTERNAL
        for key, text in (("location", name), ("offset", 0), ("length", tensor.items.nbytes)):
            proto.external_data.add(key=key, value=str(text))
        outside[name] = tensor
    return outside


def tensor_value(tensor: DeviceTensor) -> ort.OrtValue:
    """Return onnxruntime's view of a tensor's content, which shares its memory.

    Args:
        tensor: A tensor whose elements do not share bytes.
    """
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(tensor.items, tensor.element.number)


def bind_session(
    session: ort.InferenceSession,
    model: onnx.ModelProto,
    memory: DeviceMemory,
    values: Mapping[str, ort.OrtValue],
    places: Mapping[str, str],
) -> BoundSession:
    """Bind a session to device memory.

    Args:
        session: The session of the model.
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
        tensor = memory.tensor(name)
        number = tensor.element.number
        binding.bind_input(name, "cpu", 0, number, tensor.shape, tensor.address)
    # Outputs that lowerings added overwrite no input: they are added only where none is overwritten.
    symbols = [name for name in outputs if name not in places]
    unsafe = unsafe_in_place(model, memory, inputs, symbols)
    copies: list[tuple[Array, Array]] = []
    for name, shape in outputs.items():
        tensor = memory.tensor(places.get(name, name))
        if name in unsafe:
            # It is copied to its place after the run, when nothing reads the old value any more.
            buffer = memory.private(name)
            copies.append((tensor.items, buffer.items))
            tensor = buffer
        number = tensor.element.number
        # Where a last reshape was left out, the same bytes are written in another shape.
        seen = tensor.shape if shape is None else shape
        binding.bind_output(name, "cpu", 0, number, seen, tensor.address)
    return BoundSession(session, binding, tuple(copies), values)
