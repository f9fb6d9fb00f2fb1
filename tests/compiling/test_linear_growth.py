"""Analysis takes work in proportion to the layers of a model, counted in calls of functions, not in time."""

from __future__ import annotations

import functools

import numpy as np
import onnx
import pytest

from samba_onnx.compiling.compiler import analyze
from tests.call_counts import calls_of, growth

TOLERANCE = 1.0003
"""Of calls per layer, which are the same today to the last one. A pass that removes one node of every layer by itself,
for which onnx_ir looks through all outputs of the graph, makes 0.0006 of it."""

LAYER = """
    two_{n} = Constant <value = float {{2.0}}> ()
    half_{n} = Constant <value = float {{0.5}}> ()
    four_{n} = Mul (two_{n}, two_{n})
    product_{n} = MatMul (h_{n}, w)
    scaled_{n} = Mul (product_{n}, four_{n})
    one_{n} = Relu (scaled_{n})
    same_{n} = Relu (scaled_{n})
    back_{n} = MatMul (one_{n}, w)
    sum_{n} = Add (back_{n}, same_{n})
    still_{n} = Identity (sum_{n})
    unread_{n} = Tanh (still_{n})
    out_{n} = Mul (still_{n}, half_{n})
    h_{next} = Add (out_{n}, h_{n})
"""


def model(layers: int) -> onnx.ModelProto:
    """Return layers with constants to fold, equal and unread nodes, and an output each."""
    body = "".join(LAYER.format(n=n, next=n + 1) for n in range(layers))
    outputs = ", ".join(f"float[8, 8] out_{n}" for n in range(layers))
    result = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float[8, 8] h_0) => ({outputs}) {{ {body} }}""")
    weight = onnx.numpy_helper.from_array(np.ones((8, 8), np.float32), "w")
    result.graph.initializer.append(weight)
    return result


@pytest.mark.parametrize(
    ("level", "chips"),
    # At o3 on one RDU a handful of layers is one section, more are two, which is a step and no slope.
    [("o0", 1), ("o3", 2)],
    ids=["a section per operator", "sections between the exchanges of two RDUs"],
)
def test_analysis_is_linear_in_the_layers(level: str, chips: int) -> None:
    for _ in range(2):  # what is imported, and what Python keeps of classes that it was asked for
        analyze(model(4), level=level, n_chips=chips)
    counts = [
        calls_of(functools.partial(analyze, model(layers), level=level, n_chips=chips))
        for layers in (4, 8, 16)
    ]
    ratio, worst = growth(*counts)
    assert ratio < TOLERANCE, worst
