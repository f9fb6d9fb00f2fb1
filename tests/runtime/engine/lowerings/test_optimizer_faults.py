"""Graphs that onnxruntime's optimizer would change."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from samba_onnx.runtime.engine.lowerings.optimizer_faults import faulty_optimizers

ALWAYS = ["NoopElimination"]
"""What is disabled for every model."""


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
    assert faulty_optimizers(padded("AveragePool")) == ALWAYS


def product(text: str, shape: str = "A") -> onnx.ModelProto:
    """A product of some of a matrix, a vector and a second matrix."""
    return onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> '
        f"g (float[3,4] w, float[3] x, float[3,5] z) => (float[{shape}] y) {{ {text} }}"
    )


VECTORS = {
    "matrix": ("t = Transpose<perm=[1,0]>(w) y = MatMul(t, x)", lambda w, x: w.T @ x),
    "vector within": (
        "t = Transpose<perm=[1,0]>(w) n = Neg(x) y = MatMul(t, n)",
        lambda w, x: w.T @ -x,
    ),
}


@pytest.mark.parametrize(("text", "reference"), VECTORS.values(), ids=VECTORS.keys())
def test_a_vector_is_multiplied_by_the_transposed_matrix(text: str, reference: object) -> None:
    model = product(text)
    generator = np.random.default_rng(0)
    shapes = {"w": (3, 4), "x": (3,), "z": (3, 5)}
    values = {
        name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()
    }
    assert callable(reference)
    wanted = reference(values["w"], values["x"])
    results = []
    for disabled in ([], faulty_optimizers(model)):
        session = ort.InferenceSession(
            model.SerializeToString(), None, ["CPUExecutionProvider"], disabled_optimizers=disabled
        )
        results.append(session.run(None, values)[0])
    # The first is what is wrong with onnxruntime.
    assert not np.allclose(results[0], wanted)
    np.testing.assert_allclose(results[1], wanted, rtol=1e-5)


def test_products_of_matrices_are_optimized_as_usual() -> None:
    text = "t = Transpose<perm=[1,0]>(w) y = MatMul(t, z)"
    assert faulty_optimizers(product(text, "A,B")) == ALWAYS
    assert faulty_optimizers(product("y = MatMul(x, w)")) == ALWAYS


@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize(
    "text",
    [
        "y = OPERATOR(x, none)",
        "n = Neg(x) y = OPERATOR(n, none)",
        "a = OPERATOR(x, none) y = Neg(a)",
    ],
    ids=["alone", "behind", "before"],
)
def test_what_an_empty_operand_makes_empty_is_empty(operator: str, text: str) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[1,4] x) => (float[0,4] y)'
        f"<float[0,4] none = {{}}> {{ {text.replace('OPERATOR', operator)} }}"
    )
    session = ort.InferenceSession(
        model.SerializeToString(),
        None,
        ["CPUExecutionProvider"],
        disabled_optimizers=faulty_optimizers(model),
    )
    (result,) = session.run(None, {"x": np.ones((1, 4), np.float32)})
    assert result.shape == (0, 4)


def test_the_statistics_of_a_normalisation_of_a_sum_are_computed() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[3,2,4] x, float[3,2,4] z) => '
        "(float[3,2,4] y, float[3,2,1] m) <float[4] scale = {1,1,1,1}, float[4] bias = {0,0,0,0}>"
        "{ s = Add(x, z) y, mean, deviation = LayerNormalization(s, scale, bias) m = Neg(mean) }"
    )
    assert faulty_optimizers(model) == [*ALWAYS, "SkipLayerNormFusion"]
    session = ort.InferenceSession(
        model.SerializeToString(),
        None,
        ["CPUExecutionProvider"],
        disabled_optimizers=faulty_optimizers(model),
    )
    x = np.arange(24, dtype=np.float32).reshape(3, 2, 4)
    result = session.run(["m"], {"x": x, "z": x})[0]
    np.testing.assert_array_equal(result, -(2 * x).mean(-1, keepdims=True))
