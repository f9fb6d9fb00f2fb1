"""Outputs without their last reshape: the graph before and after, the numbers, and what stays."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import parser

from samba_onnx.runtime.engine.lowerings.final_reshapes import shed_final_reshapes

HEADER = '<ir_version: 10, opset_import: ["" : 20]>\n'
SHAPE = "shape = Constant<value_ints=[6]>()\n"


def model(graph: str) -> onnx.ModelProto:
    return parser.parse_model(HEADER + graph)


def run(proto: onnx.ModelProto) -> list[np.ndarray]:
    feed = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, feed))


def outputs(proto: onnx.ModelProto) -> dict[str, list[int]]:
    return {
        value.name: [size.dim_value for size in value.type.tensor_type.shape.dim]
        for value in proto.graph.output
    }


def shed(
    graph: str, fixed_outputs: tuple[str, ...] = ()
) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    before, after = model(graph), model(graph)
    shed_final_reshapes(after, fixed_outputs)
    onnx.checker.check_model(after, full_check=True)
    return before, after


def test_an_output_has_the_bytes_of_what_was_reshaped() -> None:
    before, after = shed(
        "g (float[2, 3] x) => (float[6] y) <float[2, 3] a> {"
        f"a = Neg(x)\n{SHAPE} y = Reshape(a, shape) }}"
    )
    assert [node.op_type for node in after.graph.node] == ["Neg", "Constant"]
    assert outputs(after) == {"y": [2, 3]}
    np.testing.assert_array_equal(run(after)[0].reshape(6), run(before)[0])


def test_others_that_read_the_value_still_do() -> None:
    before, after = shed(
        "g (float[2, 3] x) => (float[6] y, float[2, 3] z) <float[2, 3] a> {"
        f"a = Neg(x)\n{SHAPE} y = Reshape(a, shape)\n z = Exp(a) }}"
    )
    assert [node.op_type for node in after.graph.node] == ["Neg", "Constant", "Exp"]
    assert outputs(after) == {"y": [2, 3], "z": [2, 3]}
    for got, expected in zip(run(after), run(before), strict=True):
        np.testing.assert_array_equal(got.reshape(expected.shape), expected)


def test_only_one_of_two_outputs_gets_a_value() -> None:
    before, after = shed(
        "g (float[2, 3] x) => (float[6] y, float[6] z) <float[2, 3] a> {"
        f"a = Neg(x)\n{SHAPE} y = Reshape(a, shape)\n z = Reshape(a, shape) }}"
    )
    assert outputs(after) == {"y": [2, 3], "z": [6]}
    for got, expected in zip(run(after), run(before), strict=True):
        np.testing.assert_array_equal(got.reshape(expected.shape), expected)


def test_a_shape_that_nothing_reads_goes_too() -> None:
    graph = """g (float[2, 3] x) => (float[6] y) <int64[1] shape = {6}, float[2, 3] a>
        { a = Neg(x)\n y = Reshape(a, shape) }"""
    before, after = shed(graph)
    assert not after.graph.initializer
    for proto in (before, after):
        proto.ir_version = 4
    np.testing.assert_array_equal(run(after)[0].reshape(6), run(before)[0])


INPUT_RESHAPED = f"g (float[2, 3] x) => (float[6] y) {{ {SHAPE} y = Reshape(x, shape) }}"
READ_ON = (
    "g (float[2, 3] x) => (float[6] y, float[6] z) <float[2, 3] a> {"
    f"a = Neg(x)\n{SHAPE} y = Reshape(a, shape)\n z = Exp(y) }}"
)
SIZE_UNKNOWN = f"g (float[2, 3] x) => (float[6] y) {{ a = Neg(x)\n{SHAPE} y = Reshape(a, shape) }}"
BOTH_WANTED = (
    "g (float[2, 3] x) => (float[6] y, float[2, 3] a) {"
    f"a = Neg(x)\n{SHAPE} y = Reshape(a, shape) }}"
)


@pytest.mark.parametrize("graph", [INPUT_RESHAPED, READ_ON, SIZE_UNKNOWN, BOTH_WANTED])
def test_other_reshapes_stay(graph: str) -> None:
    before, after = shed(graph)
    assert after == before


def test_an_output_that_is_to_stay_does() -> None:
    before, after = shed(
        "g (float[2, 3] x) => (float[6] y) <float[2, 3] a> {"
        f"a = Neg(x)\n{SHAPE} y = Reshape(a, shape) }}",
        fixed_outputs=("y",),
    )
    assert after == before
