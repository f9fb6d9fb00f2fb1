"""Somebody else's model with its long sums in float64, so that a comparison does not tell of onnxruntime's.

It shares nothing with what the device makes of long sums: the operators stay, and only their numbers are
of another type.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import onnx
from onnx import numpy_helper

from samba_onnx.facts.domains import is_default
from samba_onnx.facts.families import SUMMING

__all__ = ["add_in_float64"]

_T: Final = onnx.TensorProto
_FLOATS: Final = frozenset({_T.FLOAT, _T.FLOAT16})
_LONG: Final = 512
"""Sums of fewer numbers are as near in float32; what is not known to be shorter is long."""

Shapes = Mapping[str, tuple[int, ...] | None]


def add_in_float64(model: onnx.ModelProto) -> None:
    """Put casts around what adds many numbers of float32 or float16.

    Args:
        model: Is changed in place, its main graph only; stays as it is where types cannot be inferred.
    """
    if not any(_adds(node) for node in model.graph.node):
        return
    try:
        typed = onnx.shape_inference.infer_shapes(model).graph
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        return
    values = (*typed.input, *typed.value_info, *typed.output)
    types = {value.name: value.type.tensor_type.elem_type for value in values}
    types |= {tensor.name: tensor.data_type for tensor in typed.initializer}
    shapes = {value.name: _shape(value) for value in values}
    shapes |= {tensor.name: tuple(tensor.dims) for tensor in typed.initializer}
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        dtype = types.get(node.input[0], 0) if _adds(node) else 0
        if dtype in _FLOATS and _is_long(node, shapes, constants):
            nodes += _in_float64(node, dtype, types)
        else:
            nodes.append(node)
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _adds(node: onnx.NodeProto) -> bool:
    return node.op_type in SUMMING and is_default(node.domain)


def _shape(value: onnx.ValueInfoProto) -> tuple[int, ...] | None:
    """Return the sizes of a value, 0 for one that is not known; None where their number is not."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return tuple(size.dim_value for size in tensor.shape.dim)


def _is_long(
    node: onnx.NodeProto, shapes: Shapes, constants: Mapping[str, onnx.TensorProto]
) -> bool:
    shape = shapes.get(node.input[0])
    # It takes the variance for a difference of means, which loses digits however few they are of.
    if shape is None or node.op_type == "GroupNormalization":
        return True
    stated = next((list(item.ints) for item in node.attribute if item.name == "axes"), None)
    if node.op_type.startswith("Reduce") and len(node.input) > 1 and node.input[1]:
        tensor = constants.get(node.input[1])
        if tensor is not None and tensor.data_location != _T.EXTERNAL:
            stated = np.atleast_1d(numpy_helper.to_array(tensor)).tolist()
    sizes = shape if not stated else [shape[axis] for axis in stated]
    # 0 stands for a size that is not known, and may be large.
    return 0 in sizes or math.prod(sizes) > _LONG


def _in_float64(
    node: onnx.NodeProto, dtype: int, types: Mapping[str, int]
) -> Iterator[onnx.NodeProto]:
    """Yield a node between casts."""
    wide = onnx.NodeProto()
    wide.CopyFrom(node)
    result = node.output[0]
    for place, name in enumerate(node.input):
        # Axes are whole numbers, and stay as they are.
        if name and types.get(name) == dtype:
            wide.input[place] = f"{result}.{place}.float64"
            yield onnx.helper.make_node("Cast", [name], [wide.input[place]], to=_T.DOUBLE)
    wide.output[0] = f"{result}.float64"
    yield wide
    yield onnx.helper.make_node("Cast", [wide.output[0]], [result], to=dtype)
