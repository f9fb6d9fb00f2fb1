"""Makes models of the texts in ``graphs``, which have no weights."""

from __future__ import annotations

import math
from importlib import resources

import numpy as np
import onnx
from onnx import numpy_helper

__all__ = ["about", "build"]


def about(name: str) -> str:
    """Return what a model shows: the first line of its text, a comment.

    Args:
        name: Its name.
    """
    return _text(name).partition("\n")[0].removeprefix("//").strip()


def build(name: str, seed: int) -> onnx.ModelProto:
    """Return a model with random weights.

    Args:
        name: Its name.
        seed: The seed of the weights.
    """
    text = _text(name).partition("\n")[2]
    model = onnx.parser.parse_model(text)
    graph, random = model.graph, np.random.default_rng(seed)
    computed = {output for node in graph.node for output in node.output}
    weights = [info for info in graph.value_info if info.name not in computed]
    for info in weights:
        shape = tuple(dim.dim_value for dim in info.type.tensor_type.shape.dim)
        array = random.standard_normal(shape) / np.sqrt(_terms(shape))
        # A scale of a normalisation keeps what it scales, as one that was trained.
        array = array + 1 if info.name.endswith(("scale", "scale_2")) else array
        graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), info.name))
        graph.value_info.remove(info)
    onnx.checker.check_model(model)
    return model


def _terms(shape: tuple[int, ...]) -> int:
    """Return of how many terms the sums are that a weight goes into, so that results keep the size of operands."""
    if len(shape) == 1:
        return 100  # a bias or a shift, which is small
    # A matrix has a row for each term, a kernel and the gates of an LSTM have a row for each result.
    return shape[0] if len(shape) == 2 else math.prod(shape[1:]) if len(shape) == 4 else shape[2]


def _text(name: str) -> str:
    return (resources.files(__package__) / "graphs" / f"{name}.txt").read_text(encoding="utf-8")
