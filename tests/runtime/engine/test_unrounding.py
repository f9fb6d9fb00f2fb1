"""Quantised models without their rounding: the same function, and smooth."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper, parser

from samba_onnx.runtime.engine.evaluation import open_original
from samba_onnx.runtime.engine.unrounding import exact_form, needs_exact_form
from tests.versions import needs

HEADER = '<ir_version: 10, opset_import: ["": 21]>'
SCALE, ZERO = np.float32(0.05), np.uint8(100)
GENERATOR = np.random.default_rng(0)
X = GENERATOR.standard_normal((2, 4)).astype(np.float32)
WEIGHT = GENERATOR.integers(-100, 100, (4, 3)).astype(np.int8)
FINE = np.full(3, 0.01, np.float32)
ONE = np.float32(0.02)


def model(graph: str, **weights: Any) -> onnx.ModelProto:
    """Return a model whose inputs of these names are weights."""
    proto = parser.parse_model(f"{HEADER}\n{graph}")
    kept = [value for value in proto.graph.input if value.name not in weights]
    del proto.graph.input[:]
    proto.graph.input.extend(kept)
    proto.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()
    )
    return proto


def answers(proto: onnx.ModelProto, **inputs: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return what the model and its exact form answer."""
    original = open_original(proto, wide=True)
    wide = original.run_wide(inputs)
    assert wide is not None
    return original.run(inputs)["y"], wide["y"]


PAIR = """g (float[2,4] x, float s, uint8 z) => (float[2,4] y)
{{ q = QuantizeLinear(x, s, z) {0} y = DequantizeLinear({1}, s, z) }}"""


@pytest.mark.parametrize(
    ("between", "last"),
    [
        ("", "q"),
        ("t = Transpose<perm=[1,0]>(q) u = Transpose<perm=[1,0]>(t)", "u"),
        ("t = Concat<axis=0>(q, c) r = Split<axis=0, num_outputs=2>(t)", "q"),
    ],
)
def test_quantising_and_back_is_clipping_only(between: str, last: str) -> None:
    constants = {"c": np.zeros((2, 4), np.uint8)} if "(q, c)" in between else {}
    text = PAIR.format(between.replace("r = Split", "r, r2 = Split"), last)
    declared = text.replace("uint8 z)", "uint8 z, uint8[2,4] c)") if constants else text
    proto = model(declared, s=SCALE, z=ZERO, **constants)
    far = X.copy()
    far[0, :2] = [1e3, -1e3]
    rounded, exact = answers(proto, x=far)
    ends = -float(ZERO) * SCALE, (255 - float(ZERO)) * SCALE
    np.testing.assert_allclose(exact, np.clip(far, *ends), rtol=1e-5)
    assert 0 < np.abs(rounded - exact).max() <= SCALE / 2 * 1.001


def float_product(left: np.ndarray) -> np.ndarray:
    """Of the unquantised input and the quantised weight."""
    return np.asarray(left @ (WEIGHT.astype(np.float32) * FINE))


PRODUCTS = {
    "QDQ": (
        """g (float[2,4] x, float s, uint8 z, int8[4,3] w, float[3] ws) => (float[2,3] y)
        { q = QuantizeLinear(x, s, z) a = DequantizeLinear(q, s, z)
        b = DequantizeLinear<axis=1>(w, ws) y = MatMul(a, b) }""",
        {"s": SCALE, "z": ZERO, "w": WEIGHT, "ws": FINE},
        1e-5,
    ),
    "integers": (
        """g (float[2,4] x, float s, uint8 z, int8[4,3] w, int8[3] wz, float[3] ws) => (float[2,3] y)
        { q = QuantizeLinear(x, s, z) i = MatMulInteger(q, w, z, wz) f = Cast<to=1>(i)
        k = Mul(f, ws) y = Mul(k, s) }""",
        {"s": SCALE, "z": ZERO, "w": WEIGHT, "ws": FINE, "wz": np.zeros(3, np.int8)},
        1e-5,
    ),
    "dynamic": (
        """g (float[2,4] x, int8[4,3] w, float[3] ws) => (float[2,3] y)
        { q, s, z = DynamicQuantizeLinear(x) i = MatMulInteger(q, w, z) f = Cast<to=1>(i)
        k = Mul(f, ws) y = Mul(k, s) }""",
        {"w": WEIGHT, "ws": FINE},
        1e-5,
    ),
    "scaled": (
        """g (float[2,4] x, float s, uint8 z, int8[4,3] w, int8 wz, float ws, float o, uint8 oz) => (float[2,3] y)
        { q = QuantizeLinear(x, s, z) p = QLinearMatMul(q, s, z, w, ws, wz, o, oz)
        y = DequantizeLinear(p, o, oz) }""",
        {"s": SCALE, "z": ZERO, "w": WEIGHT, "ws": np.float32(0.01), "wz": np.int8(0), "o": ONE * 4, "oz": np.uint8(120)},
        1e-5,
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(form, marks=[needs("onnxruntime", "1.31")] * (form == "scaled"))
        for form in PRODUCTS  # older ones compute QLinearMatMul with no output of 64 bits
    ],
)
def test_products_of_quantised_numbers_are_those_of_the_floats(form: str) -> None:
    text, weights, tolerance = PRODUCTS[form]
    rounded, exact = answers(model(text, **weights), x=X)
    right = float_product(X)
    np.testing.assert_allclose(exact, right, atol=tolerance * float(np.abs(right).max()))
    assert np.abs(rounded - exact).max() > 1e-4


@pytest.mark.parametrize("form", ["ConvInteger", "QLinearConv"])
def test_convolutions_of_quantised_numbers_are_those_of_the_floats(form: str) -> None:
    image = GENERATOR.standard_normal((1, 2, 4, 4)).astype(np.float32)
    weight = GENERATOR.integers(-90, 90, (3, 2, 3, 3)).astype(np.int8)
    end = {
        "ConvInteger": """i = ConvInteger<pads=[1,1,1,1]>(q, w, z) f = Cast<to=1>(i)
        k = Mul(f, ws) y = Mul(k, s)""",
        "QLinearConv": """p = QLinearConv<pads=[1,1,1,1]>(q, s, z, w, ws, wz, o, oz, bias)
        y = DequantizeLinear(p, o, oz)""",
    }[form]
    declared = (
        "float s, uint8 z, int8[3,2,3,3] w, float ws, int8 wz, float o, uint8 oz, int32[3] bias"
    )
    weights: dict[str, Any] = {
        "s": SCALE, "z": ZERO, "w": weight, "ws": np.float32(0.01), "wz": np.int8(0),
        "o": np.float32(0.2), "oz": np.uint8(120), "bias": np.array([40, -900, 0], np.int32),
    }  # fmt: skip
    text = f"g (float[1,2,4,4] x, {declared}) => (float[1,3,4,4] y) {{ q = QuantizeLinear(x, s, z) {end} }}"
    rounded, exact = answers(model(text, **weights), x=image)
    bias = weights["bias"] * SCALE * 0.01 if form == "QLinearConv" else np.zeros(3)
    plain = model(
        "g (float[1,2,4,4] x, float[3,2,3,3] w, float[3] b) => (float[1,3,4,4] y) "
        "{ y = Conv<pads=[1,1,1,1]>(x, w, b) }",
        w=weight.astype(np.float32) * np.float32(0.01),
        b=bias.astype(np.float32),
    )
    right = open_original(plain).run({"x": image})["y"]
    np.testing.assert_allclose(exact, right, atol=1e-4)
    assert np.abs(rounded - exact).max() > 1e-3


def test_the_arithmetic_that_quantisation_is_made_of_loses_its_rounding_too() -> None:
    proto = model(
        """g (float[2,4] x, float s, float z, float low, float high) => (uint8[2,4] y)
        { a = Div(x, s) r = Round(a) b = Add(r, z) c = Clip(b, low, high) y = Cast<to=2>(c) }""",
        s=SCALE, z=np.float32(100), low=np.float32(0), high=np.float32(255),
    )  # fmt: skip
    rounded, exact = answers(proto, x=X)
    assert (rounded.dtype, exact.dtype) == (np.uint8, np.float32)
    np.testing.assert_allclose(exact, X / SCALE + 100, rtol=1e-6)


def test_numbers_that_are_rounded_for_another_end_are_rounded() -> None:
    proto = model(
        """g (float[2,4] x) => (float[2,4] y, int64[2,4] i) { y = Round(x) i = Cast<to=7>(y) }"""
    )
    assert needs_exact_form(proto)
    _, exact = answers(proto, x=X * 3)
    np.testing.assert_array_equal(exact, np.round(X * 3))


def test_weights_that_are_quantised_stay_quantised() -> None:
    proto = model(
        """g (float[2,4] x, float[4,4] w, float s, int8 z) => (float[2,4] y)
        { q = QuantizeLinear(w, s, z) d = DequantizeLinear(q, s, z) r = Round(x) c = Clip(r)
        y = MatMul(c, d) }""",
        w=GENERATOR.standard_normal((4, 4)).astype(np.float32), s=SCALE, z=np.int8(0),
    )  # fmt: skip
    _, exact = answers(proto, x=X)
    weight = np.round(numpy_helper.to_array(proto.graph.initializer[0]) / SCALE) * SCALE
    np.testing.assert_allclose(exact, X @ weight, rtol=1e-4, atol=1e-5)


def test_operators_that_take_no_floats_have_no_exact_form() -> None:
    proto = model(
        """g (float[2,4] x, float s, uint8 z) => (uint8[2,4] y)
        { q = QuantizeLinear(x, s, z) y = BitwiseNot(q) }""",
        s=SCALE, z=ZERO,
    )  # fmt: skip
    assert needs_exact_form(proto)
    assert exact_form(proto) is None
    plain = model("g (float[2,4] x) => (float[2,4] y) { y = Relu(x) }")
    assert not needs_exact_form(plain)
    assert plain.graph.output[0].type.tensor_type.elem_type == TensorProto.FLOAT
