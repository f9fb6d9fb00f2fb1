"""Which outputs of a model live where it reads inputs, and which of them need a buffer first."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from samba_onnx.runtime.engine.hazards import unsafe_outputs
from samba_onnx.runtime.memory import DeviceMemory, DeviceTensor


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
    # In another shape or type an element lies elsewhere, so that elementwise arithmetic, too,
    # would overwrite elements that are read later: a buffer in any case.
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
