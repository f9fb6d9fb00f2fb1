"""ONNX models in the place of torch modules."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import onnx
from torch import nn

from samba_onnx.errors import UsageError
from samba_onnx.loading import load_model
from samba_onnx.program.fingerprint import Fingerprint, graph_lines, value_type
from samba_onnx.program.kinds import SectionType
from samba_onnx.tensor import SambaTensor
from samba_onnx.tensor.inputs import tensors_of

OnnxModel: TypeAlias = onnx.ModelProto | str | os.PathLike[str]


def is_onnx(model: object) -> bool:
    """Return whether a model is an ONNX model or the path to one.

    Args:
        model: What a user gave.

    Raises:
        UsageError: It is no torch module either.
    """
    if isinstance(model, nn.Module):
        return False
    if isinstance(model, (onnx.ModelProto, str, os.PathLike)):
        return True
    what = type(model).__name__
    if isinstance(model, type):
        what = f"the class {model.__name__}, and not a module of it, as {model.__name__}() makes"
    elif model is None:
        what = "None, which is also what from_torch_model_ returns: it changes a model in place"
    raise UsageError(
        f"the model is {what}; give a torch.nn.Module, an onnx.ModelProto or the path to an ONNX file"
    )


def input_symbols(names: Sequence[str], inputs: Any) -> dict[str, SambaTensor]:
    """Return the example inputs by the names that the ONNX model has for them.

    Args:
        names: The model's inputs.
        inputs: Named tensors. If one has a name that the model does not have, they are in the
            model's order.

    Raises:
        UsageError: There are more than the model has.
    """
    # The keys of a mapping count before the tensors' own names.
    if isinstance(inputs, Mapping) and set(inputs) <= set(names):
        return {name: tensor for name, tensor in inputs.items() if isinstance(tensor, SambaTensor)}
    tensors = list(tensors_of(inputs))
    if all(tensor.sn_name in names for tensor in tensors):
        return {tensor.sn_name: tensor for tensor in tensors}
    if len(tensors) > len(names):
        raise UsageError(f"{len(tensors)} inputs were given; the ONNX model has {', '.join(names)}")
    # Not strict: an ONNX model may have inputs that nobody gives an example of.
    return dict(zip(names, tensors, strict=False))


def onnx_fingerprint(
    model: OnnxModel, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[Fingerprint, tuple[str, ...]]:
    """Return what an ONNX model looks like, and the names of its inputs.

    Args:
        model: Any; large weights are looked at in samples only.
        shapes: Shapes of the inputs by name, where they are known.

    Raises:
        ModelError: The model cannot be used.
    """
    loaded = load_model(model).model
    graph = loaded.graph
    # Old models list their weights among the inputs.
    inputs = [v for v in graph.inputs if v.name not in graph.initializers]

    def lines() -> Iterator[str]:
        for value in inputs:
            size = shapes.get(value.name or "")
            yield f"input {value.name!r} {value_type(value) if size is None else list(size)}"
        for value in graph.outputs:
            yield f"output {value.name!r} {value_type(value)}"

    parts = ((SectionType.FWD.value, tuple(graph_lines(graph))),)
    return Fingerprint(tuple(lines()), parts), tuple(value.name or "" for value in inputs)


def model_source(model: OnnxModel) -> str:
    """Return what messages call an ONNX model."""
    return model.graph.name if isinstance(model, onnx.ModelProto) else Path(model).name
