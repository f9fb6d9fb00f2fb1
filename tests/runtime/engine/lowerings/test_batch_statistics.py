"""Copies of running statistics: what onnxruntime does without them, the numbers, and what stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import parser

from samba_onnx.runtime.engine.lowerings.batch_statistics import copy_running_statistics

Array = np.ndarray
HEADER = '<ir_version: 10, opset_import: ["" : 21]>\n'
INPUTS = "g (float[4,3] x, float[3] s, float[3] b, float[3] m, float[3] v)"


def model(momentum: float = 0.0) -> onnx.ModelProto:
    """Return a normalisation by the batch whose running mean is read afterwards, too."""
    return parser.parse_model(
        HEADER + INPUTS + " => (float[4,3] y, float[3] mean, float[3] negated) "
        f"{{ y, c, d = BatchNormalization<training_mode=1, momentum={momentum}>(x, s, b, m, v) "
        "e = Mul(c, s) mean = Add(e, b) negated = Neg(m) }"
    )


def feeds() -> dict[str, Array]:
    x = np.arange(12, dtype=np.float32).reshape(4, 3) ** 2
    return {
        "x": x,
        "s": np.ones(3, np.float32),
        "b": np.zeros(3, np.float32),
        "m": np.array([7, 8, np.nan], np.float32),
        "v": np.array([2, 3, 4], np.float32),
    }


def run_twice(proto: onnx.ModelProto) -> tuple[dict[str, Array], list[Any]]:
    """Return what is left of the inputs, and the outputs of the second run."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(proto.SerializeToString(), options)
    values = feeds()
    session.run(None, values)
    return values, list(session.run(None, values))


def test_running_statistics_survive() -> None:
    before = feeds()
    values, _ = run_twice(model())
    # This is what is wrong with onnxruntime: its caller's own array holds other numbers.
    assert not np.array_equal(values["m"], before["m"], equal_nan=True)
    proto = model(momentum=0.5)
    assert copy_running_statistics(proto) == {}
    onnx.checker.check_model(proto, full_check=True)
    values, (y, mean, negated) = run_twice(proto)
    for name, array in before.items():
        np.testing.assert_array_equal(values[name], array)
    np.testing.assert_array_equal(negated, -before["m"])
    batch = before["x"].mean(0)
    np.testing.assert_allclose(mean, before["m"] / 2 + batch / 2, rtol=1e-6)
    deviation = np.sqrt(before["x"].var(0) + 1e-5)
    np.testing.assert_allclose(y, (before["x"] - batch) / deviation, rtol=1e-5, atol=1e-6)


def test_a_node_reads_copies() -> None:
    proto = model()
    copy_running_statistics(proto)
    operators = [node.op_type for node in proto.graph.node]
    assert operators == ["Max", "Max", "BatchNormalization", "Mul", "Add", "Neg"]
    assert [*proto.graph.node[0].input] == ["m", "m"]
    assert [*proto.graph.node[2].input[3:]] == [node.output[0] for node in proto.graph.node[:2]]


def test_every_normalisation_of_a_graph_has_copies_of_its_own() -> None:
    """Two of them, of which one returns its result alone, with other attributes before the one that counts."""
    proto = parser.parse_model(
        HEADER + INPUTS + " => (float[4,3] y, float[3] negated) {"
        "u, c, d = BatchNormalization<training_mode=1>(x, s, b, m, v)"
        "w, f, e = BatchNormalization<epsilon=0.5, momentum=0.25, training_mode=1>(u, s, c, m, v)"
        "y = Add(w, f) negated = Neg(m) }"
    )
    plain = parser.parse_model(
        HEADER
        + INPUTS
        + " => (float[4,3] y) { y = BatchNormalization<epsilon=0.5>(x, s, b, m, v) }"
    )
    assert copy_running_statistics(plain) == {"y": "it only reads the running statistics"}
    assert copy_running_statistics(proto) == {}
    onnx.checker.check_model(proto, full_check=True)
    operators = [node.op_type for node in proto.graph.node]
    assert operators.count("Max") == 4
    before = feeds()
    values, (y, negated) = run_twice(proto)
    for name, array in before.items():
        np.testing.assert_array_equal(values[name], array)
    np.testing.assert_array_equal(negated, -before["m"])

    def normal(x: Array, epsilon: float) -> Array:
        return (x - x.mean(0)) / np.sqrt(x.var(0) + epsilon)

    first = normal(before["x"], 1e-5)
    running = before["m"] * 0.9 + before["x"].mean(0) * 0.1
    second = normal(first, 0.5) + running
    expected = second + before["m"] * 0.25 + first.mean(0) * 0.75
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def test_a_normalisation_by_running_statistics_stays() -> None:
    proto = parser.parse_model(
        HEADER + INPUTS + " => (float[4,3] y) { y = BatchNormalization(x, s, b, m, v) }"
    )
    before = proto.SerializeToString(deterministic=True)
    assert copy_running_statistics(proto) == {"y": "it only reads the running statistics"}
    assert proto.SerializeToString(deterministic=True) == before


def test_a_normalisation_that_returns_its_result_alone_reads_copies_too() -> None:
    """In training mode or not, as its attribute says."""
    text = (
        HEADER
        + INPUTS
        + " => (float[4,3] y) {{ y = BatchNormalization<training_mode={}>(x, s, b, m, v) }}"
    )
    training, plain = (parser.parse_model(text.format(mode)) for mode in (1, 0))
    assert copy_running_statistics(training) == {}
    assert [node.op_type for node in training.graph.node] == ["Max", "Max", "BatchNormalization"]
    assert copy_running_statistics(plain) == {"y": "it only reads the running statistics"}
    assert [node.op_type for node in plain.graph.node] == ["BatchNormalization"]
