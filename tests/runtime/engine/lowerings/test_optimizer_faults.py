"""Graphs that onnxruntime's optimizer would change."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from samba_onnx.runtime.engine.lowerings.optimizer_faults import faulty_optimizers


def padded(pooling: str, between: str = "", value: float = 0.0) -> onnx.ModelProto:
    """A pooling of what a Pad made."""
    return onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 18]>
        padded (float[1, 1, 6, 6] x) => (float[1, 1, rows, columns] y)
        <int64[8] pads = {{0, 0, 1, 1, 0, 0, 1, 1}}, float value = {{{value}}}> {{
            wide = Pad (x, pads, value)
            {between}
            y = {pooling} <kernel_shape = [3, 3], strides = [2, 2]> ({"cast" if between else "wide"})
        }}
    """)


def run(model: onnx.ModelProto, level: ort.GraphOptimizationLevel) -> np.ndarray:
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    session = ort.InferenceSession(
        model.SerializeToString(),
        options,
        ["CPUExecutionProvider"],
        disabled_optimizers=faulty_optimizers(model),
    )
    negative = -1 - np.arange(36, dtype=np.float32).reshape(1, 1, 6, 6)
    return session.run(None, {"x": negative})[0]


@pytest.mark.parametrize("between", ["", "cast = Cast <to = 1> (wide)"])
@pytest.mark.parametrize("value", [0.0, 0.5])
def test_padding_with_numbers_takes_part_in_a_maximum(between: str, value: float) -> None:
    model = padded("MaxPool", between, value)
    plain = run(model, ort.GraphOptimizationLevel.ORT_DISABLE_ALL)
    assert plain[0, 0, 0, 0] == value
    np.testing.assert_array_equal(run(model, ort.GraphOptimizationLevel.ORT_ENABLE_ALL), plain)


def test_other_poolings_are_optimized_as_usual() -> None:
    assert not faulty_optimizers(padded("AveragePool"))
