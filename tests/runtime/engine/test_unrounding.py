"""Quantised models without their rounding: the same function, and smooth."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.shape_inference
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
    """Return what the model and its exact form answer, whether or not it declares what is inside."""
    results = []
    for form in (proto, onnx.shape_inference.infer_shapes(proto)):
        original = open_original(form, wide=True)
        wide = original.run_wide(inputs)
        assert wide is not None
        results.append(wide["y"])
    np.testing.assert_array_equal(*results)
    return original.run(inputs)["y"], results[0]


PAIR = """g (float[2,4] x, float s, uint8 z) => (float[2,4] y)
{{ q = QuantizeLinear(x, s, z) {0} y = DequantizeLinear({1}, s, z) }}"""


@pytest.mark.parametrize(
    ("between", "last"),
    [
        ("", "q"),
        ("t = Transpose<perm=[1,0]>(q) u = Transpose<perm=[1,0]>(t)", "u"),
        ("t = Concat<axis=0>(q, c) r = Split<axis=0, num_outputs=2>(t)", "r"),
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
    plain = exact_form(proto)
    assert plain is not None
    # Beside a product, onnxruntime would make one operator of both, which loses digits.
    assert "DequantizeLinear" not in {node.op_type for node in plain.graph.node}


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


CHOSEN = np.array([[1, 0, 1, 0], [0, 0, 1, 1]], bool)
CARRIED = {
    # Beside what is quantised: places, truth values, operands left out and such of the same type.
    "Gather": ("u = Gather<axis=1>(q, places)", X[:, [3, 0, 0, 1]]),
    "Where": ("u = Where(chosen, q, filling)", np.where(CHOSEN, X, 0)),
    "Clip": ("u = Clip(q, , filler)", np.minimum(X, 0)),
    "Max": ("u = Max(filling, q)", np.maximum(X, 0)),
    "Pad": ("w = Pad(q, pads, filler) u = Gather<axis=1>(w, behind)", np.pad(X, 1)[1:3, 2:]),
}


@pytest.mark.parametrize(("body", "wanted"), CARRIED.values(), ids=CARRIED.keys())
def test_what_moves_quantised_numbers_moves_the_floats(body: str, wanted: np.ndarray) -> None:
    proto = model(
        f"""g (float[2,4] x, float s, uint8 z, int64[4] places, int64[4] behind, bool[2,4] chosen,
        uint8[2,4] filling, uint8 filler, int64[4] pads) => (float[2,4] y)
        {{ q = QuantizeLinear(x, s, z) {body} y = DequantizeLinear(u, s, z) }}""",
        s=SCALE, z=ZERO, places=np.array([3, 0, 0, 1]), behind=np.array([1, 2, 3, 4]),
        chosen=CHOSEN, filling=np.full((2, 4), ZERO), filler=ZERO, pads=np.array([0, 0, 0, 1]),
    )  # fmt: skip
    rounded, exact = answers(proto, x=X)
    np.testing.assert_allclose(exact, wanted, rtol=1e-5, atol=1e-6)
    assert np.abs(rounded - exact).max() > 1e-3


def test_places_beside_quantised_numbers_stay_whole() -> None:
    proto = model(
        """g (float[1,1,2,4] x, float s, uint8 z) => (float[1,1,2,2] y)
        { q = QuantizeLinear(x, s, z) m, places = MaxPool<kernel_shape=[1,2], strides=[1,2]>(q)
        d = DequantizeLinear(m, s, z) p = Cast<to=1>(places) y = Add(d, p) }""",
        s=SCALE, z=ZERO,
    )  # fmt: skip
    _, exact = answers(proto, x=X[None, None])
    pairs = X.reshape(2, 2, 2)
    places = np.array([[0, 2], [4, 6]]) + pairs.argmax(2)
    np.testing.assert_allclose(exact[0, 0], pairs.max(2) + places, rtol=1e-5)


N = GENERATOR.integers(-9, 9, (2, 4))
CUT = {
    # None of these is the sum of products of quantised numbers, which alone may be left unrounded.
    "a float": "i = Cast<to=7>(x) y = Cast<to=1>(i)",
    "a float of another width": "w = Cast<to=11>(x) i = Cast<to=7>(w) y = Cast<to=1>(i)",
    "a sum of floats": "a = Add(x, third) i = Cast<to=7>(a) y = Cast<to=1>(i)",
    "a whole number, scaled": "f = Cast<to=1>(n) a = Mul(f, third) i = Cast<to=7>(a) y = Cast<to=1>(i)",
    "a whole number and a float": "f = Cast<to=1>(n) a = Add(f, x) i = Cast<to=7>(a) y = Cast<to=1>(i)",
    "a shift without an end": "r = Round(x) y = Add(r, third)",
    "an end behind a scale": "r = Round(x) a = Mul(r, third) y = Clip(a, third)",
}


@pytest.mark.parametrize("body", CUT.values(), ids=CUT.keys())
def test_what_is_cut_off_for_another_end_is_cut_off(body: str) -> None:
    proto = model(
        f"""g (float[2,4] x, int64[2,4] n, float s, uint8 z, float third) => (float[2,4] y, float[2,4] d)
        {{ {body} q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) }}""",
        s=SCALE, z=ZERO, third=np.float32(1 / 3),
    )  # fmt: skip
    rounded, exact = answers(proto, x=X, n=N)
    np.testing.assert_array_equal(exact, rounded)


def test_a_product_of_whole_numbers_that_both_come_at_run_time_is_not_cut_off() -> None:
    proto = model(
        """g (float[2,4] x, int8[4,3] n, float s, float z, float low, float high) => (float[2,3] y)
        { a = Div(x, s) r = Round(a) b = Add(r, z) c = Clip(b, low, high) k = Sub(c, z)
        w = Cast<to=1>(n) m = MatMul(k, w) i = Cast<to=6>(m) f = Cast<to=1>(i) y = Mul(f, s) }""",
        s=SCALE, z=np.float32(100), low=np.float32(0), high=np.float32(255),
    )  # fmt: skip
    rounded, exact = answers(proto, x=X, n=WEIGHT)
    right = X @ WEIGHT.astype(np.float32)
    np.testing.assert_allclose(exact, right, atol=1e-5 * np.abs(right).max())
    assert np.abs(rounded - exact).max() > 0.1


def test_a_model_that_only_reads_quantised_numbers_rounds_nothing() -> None:
    """Their scales may even come in blocks, which no float is written with."""
    proto = model(
        "g (uint8[2,4] q, float[2,2] s, uint8[2,2] z) => (float[2,4] y) "
        "{ y = DequantizeLinear<axis=1, block_size=2>(q, s, z) }"
    )
    assert not needs_exact_form(proto)
    beside = onnx.ModelProto()
    beside.CopyFrom(proto)
    beside.graph.node.add(op_type="Round", input=["y"], output=["r"])
    assert needs_exact_form(beside)
    plain = exact_form(beside)
    assert plain is not None
    assert [node.op_type for node in plain.graph.node] == ["DequantizeLinear", "Round"]


BRANCH = (
    "y = If(c) <then_branch = t () => ({0}) {{ {1} }}, else_branch = n () => (float[2,4] o) "
    "{{ o = Neg(x) }}>"
)
INNER = "float[2,4] a", "b = DequantizeLinear(q, s, z) a = Add(b, x)"
READING = {
    "a node that others follow": BRANCH.format(*INNER),
    "what a branch returns": BRANCH.format("uint8[2,4] q", "a = Neg(x)"),
    "a branch of a branch": BRANCH.format(
        INNER[0], BRANCH.format(*INNER).replace("y =", "i =") + " a = Abs(i)"
    ),
}  # fmt: skip


@pytest.mark.parametrize("body", READING.values(), ids=READING.keys())
def test_quantised_numbers_that_a_branch_reads_have_no_exact_form(body: str) -> None:
    text = f"""g (float[2,4] x, bool c, float s, uint8 z) => (float[2,4] y)
    {{ q = QuantizeLinear(x, s, z) {body} }}"""
    assert exact_form(model(text, s=SCALE, z=ZERO)) is None
    others = text.replace("(q, s, z) a", "(p, s, z) a").replace("uint8[2,4] q", "uint8[2,4] p")
    others = others.replace("uint8 z)", "uint8 z, uint8[2,4] p)")
    assert exact_form(model(others, s=SCALE, z=ZERO)) is not None
