"""Small models, from the text form of ONNX."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import numpy as np
import onnx
import onnx.parser
import torch
from onnx import numpy_helper
from torch import Tensor, nn

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


def exported(module: nn.Module, value: Tensor, **options: Any) -> onnx.ModelProto:
    """Return a module as torch's own exporter writes it."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(module.eval(), (value,), dynamo=True, verbose=False, **options)
    assert program is not None
    return program.model_proto
