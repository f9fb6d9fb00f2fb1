"""Small models, from the text form of ONNX."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

Array = np.ndarray


def parse(text: str, **weights: Array) -> onnx.ModelProto:
    """Return a model of opset 21.

    Args:
        text: A graph as ``(float[2] x) => (float[2] y) { y = Relu(x) }``.
        **weights: Initializers.
    """
    head = '<ir_version: 10, opset_import: ["" : 21]>\n'
    model = onnx.parser.parse_model(f"{head}{text}")
    for name, array in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def ramp(*shape: int) -> Array:
    """Return different numbers of order one."""
    count = int(np.prod(shape))
    return (np.sin(np.arange(count)) + 0.1).astype(np.float32).reshape(shape)
