"""bfloat16 sections against numpy: float32 arithmetic, rounded once per operator."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import parser

from samba_onnx.runtime.device import Device
from samba_onnx.runtime.engine.hazards import unsafe_outputs
from samba_onnx.runtime.engine.lowerings.bfloat16 import lower_bfloat16, uses_bfloat16
from tests.runtime.building import (
    FALLBACK,
    FROM,
    HEADER,
    INPUT,
    OUTPUT,
    TO,
    Plan,
    build,
    fallback,
    planned,
    section,
)

BF16 = ml_dtypes.bfloat16
BFLOAT16 = onnx.TensorProto.BFLOAT16
RNG = np.random.default_rng(1)


def random(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32).astype(BF16)


def f32(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32)


def tensor_number(element: str) -> int:
    return int(onnx.TensorProto.DataType.Value(element.upper()))


def assert_same_bits(actual: np.ndarray, expected: np.ndarray) -> None:
    assert actual.dtype == BF16
    np.testing.assert_array_equal(actual.view(np.uint16), expected.view(np.uint16))


@pytest.mark.parametrize("prepack", [True, False])
def test_elementwise_is_rounded_after_every_operator(tmp_path: Path, prepack: bool) -> None:
    plan = Plan(
        [
            section(
                "s (bfloat16[64] x, bfloat16[64] k) => (bfloat16[64] y, bfloat16[64] m) "
                "<bfloat16[64] m, bfloat16[64] a, bfloat16[64] n> "
                "{ m = Mul(x, k) a = Add(m, x) n = Neg(a) y = Sub(n, k) }"
            )
        ],
        ["x", "k"],
        ["y", "m"],
        [("x", TO, INPUT, 0), ("k", TO, INPUT, 0), ("y", FROM, OUTPUT, 0), ("m", FROM, OUTPUT, 0)],
    )
    x, k = random(64), random(64)
    with build(tmp_path, plan) as pef, Device(pef, prepack=prepack) as device:
        result = device.run({"x": x, "k": k})
        m = (f32(x) * f32(k)).astype(BF16)
        n = (-f32((f32(m) + f32(x)).astype(BF16))).astype(BF16)
        y = (f32(n) - f32(k)).astype(BF16)
        assert_same_bits(result["m"], m)
        assert_same_bits(result["y"], y)
        # Rounding only at the end gives other numbers: the test can tell.
        late = (-(f32(x) * f32(k) + f32(x)) - f32(k)).astype(BF16)
        assert (late.view(np.uint16) != y.view(np.uint16)).any()
        assert device.ledger.run() == planned(plan, pef)
        assert {t.bytes for t in device.ledger.run()} == {128}


def test_matmul_accumulates_in_float32(tmp_path: Path) -> None:
    plan = Plan(
        [
            section(
                "s (bfloat16[8,256] x, bfloat16[256,16] w) => (bfloat16[8,16] y) { y = MatMul(x, w) }"
            )
        ],
        ["x"],
        ["y"],
        weights={"w": random(256, 16)},
    )
    x = random(8, 256)
    with build(tmp_path, plan) as pef, Device(pef, prepack=False) as device:
        y = device.run({"x": x})["y"]
    exact = x.astype(np.float64) @ plan.weights["w"].astype(np.float64)
    # float32 sums are off by about 256 x 6e-8 x 16; rounding to 8 bits by at most 2^-8 of the value.
    np.testing.assert_allclose(y.astype(np.float64), exact, rtol=2**-8, atol=1e-3)
    errors = np.abs(y.astype(np.float64) - exact) / np.abs(exact)
    assert np.median(errors) < 2**-9


def test_sections_and_fallbacks_exchange_bfloat16(tmp_path: Path) -> None:
    plan = Plan(
        [
            section("a (bfloat16[4] x) => (bfloat16[4] a) { a = Mul(x, x) }"),
            fallback(
                "b (bfloat16[4] a) => (bfloat16[4] b, float[4] f) { b = Exp(a) f = Cast<to=1>(a) }"
            ),
            fallback("b (bfloat16[4] b) => (bfloat16[4] i) { i = Identity(b) }"),
            section(
                "c (bfloat16[4] i, float[4] f) => (bfloat16[4] c) "
                "{ g = Cast<to=16>(f) c = Add(i, g) }"
            ),
        ],
        ["x"],
        ["c"],
        [
            ("x", TO, INPUT, 0),
            ("a", FROM, FALLBACK, 1),
            ("i", TO, FALLBACK, 3),
            ("f", TO, FALLBACK, 3),
            ("c", FROM, OUTPUT, 3),
        ],
    )
    x = random(4)
    with build(tmp_path, plan) as pef, Device(pef) as device:
        result = device.run({"x": x})["c"]
        a = (f32(x) * f32(x)).astype(BF16)
        b = np.exp(f32(a)).astype(BF16)
        assert_same_bits(result, (f32(b) + f32(a)).astype(BF16))
        assert device.ledger.run() == planned(plan, pef)
        assert_same_bits(device.read("x"), x)


@pytest.mark.parametrize("element", ["float8e4m3fn", "int4", "uint4"])
def test_other_types_that_numpy_lacks(tmp_path: Path, element: str) -> None:
    """They are packed in device memory and in the ledger."""
    dtype = {
        "float8e4m3fn": ml_dtypes.float8_e4m3fn,
        "int4": ml_dtypes.int4,
        "uint4": ml_dtypes.uint4,
    }[element]
    number = tensor_number(element)
    plan = Plan(
        [
            section(
                f"s ({element}[3,1] x) => ({element}[3,1] y) "
                f"{{ a = Cast<to=1>(x) b = Neg(a) c = Neg(b) y = Cast<to={number}>(c) }}"
            ),
            fallback(
                f"c ({element}[3,1] y) => (float[3,1] z, {element}[3,1] u) "
                f"{{ z = Cast<to=1>(y) u = Cast<to={number}>(z) }}"
            ),
        ],
        ["x"],
        ["z", "y", "u"],
        [("x", TO, INPUT, 0), ("y", FROM, FALLBACK, 1)],
    )
    x = np.array([[1], [3], [2]], np.float32).astype(dtype)
    with build(tmp_path, plan) as pef, Device(pef) as device:
        result = device.run({"x": x})
        assert result["z"].tolist() == [[1], [3], [2]]
        for name in ("y", "u"):
            assert result[name].dtype == dtype
            assert result[name].shape == (3, 1)
            assert result[name].astype(np.float32).reshape(-1).tolist() == [1, 3, 2]
        assert device.ledger.run() == planned(plan, pef)
        assert device.ledger.run()[0].bytes == (3 if element.startswith("float8") else 2)


def lowered(text: str) -> ort.InferenceSession:
    model = parser.parse_model(HEADER + text)
    assert uses_bfloat16(model)
    lower_bfloat16(model)
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def test_subgraphs_are_lowered() -> None:
    # Constants are written as bits: 16320 is 1.5.
    session = lowered(
        "g (float[4] start, int64 n, bool c) => (float[4] y) {"
        " x = Cast<to=16>(start)"
        " k = Constant<value = bfloat16[1] {16320}>()"
        " last = Loop(n, c, x) <body = step (int64 i, bool more, bfloat16[4] carried)"
        "   => (bool again, bfloat16[4] next) { again = Identity(more)"
        "      r = Mul(carried, k) next = If(again) <"
        "        then_branch = t () => (bfloat16[4] p) { p = Add(r, x) },"
        "        else_branch = e () => (bfloat16[4] q) { q = Identity(r) }> }>"
        " y = Cast<to=1>(last) }"
    )
    start = f32(random(4))
    (result,) = session.run(None, {"start": start, "n": np.array(3), "c": np.array(True)})
    x = start.astype(BF16)
    value = x
    for _ in range(3):
        value = (f32((f32(value) * np.float32(1.5)).astype(BF16)) + f32(x)).astype(BF16)
    np.testing.assert_array_equal(result, f32(value))


def test_casts_constants_and_attributes() -> None:
    # 15821 are the bits of bfloat16's 0.1.
    session = lowered(
        "g (float[3] x, int32[3] n) => (float[3] y, float[2] s, int32[3] t) {"
        " a = Cast<to=16>(x) b = Cast<to=16>(n) d = Add(a, b) e = CastLike(x, d)"
        " f = Sub(d, e) y = Cast<to=1>(f) t = Cast<to=6>(d)"
        " h = Constant<value_ints=[2]>() o = ConstantOfShape<value = bfloat16[1] {15821}>(h)"
        " s = Cast<to=1>(o) }"
    )
    x, n = np.array([1.001, 200.7, -3.3], np.float32), np.array([1, 301, 7], np.int32)
    y, s, t = session.run(None, {"x": x, "n": n})
    a, b = x.astype(BF16), n.astype(BF16)
    d = (f32(a) + f32(b)).astype(BF16)
    np.testing.assert_array_equal(y, f32((f32(d) - f32(a)).astype(BF16)))
    np.testing.assert_array_equal(s, f32(np.full(2, 0.1, BF16)))
    np.testing.assert_array_equal(t, d.astype(np.int32))


def test_float32_models_are_left_alone() -> None:
    model = parser.parse_model(HEADER + "g (float[4] x) => (float[4] y) { y = Add(x, x) }")
    assert not uses_bfloat16(model)


@pytest.mark.parametrize(
    ("scatter", "places"),
    [("ScatterND(old, at, new)", [[2]]), ("ScatterElements<axis = 0>(old, at, new)", [[2, 2]])],
    ids=["ScatterND", "ScatterElements"],
)
def test_elements_are_overwritten_where_they_lie(scatter: str, places: list[list[int]]) -> None:
    at = np.array(places)
    model = parser.parse_model(
        f"{HEADER} g (bfloat16[4, 2] old, int64[1, {at.shape[1]}] at, bfloat16[1, 2] x) "
        "=> (bfloat16[4, 2] y, bfloat16[4] z) <bfloat16[1, 2] new> "
        f"{{ new = Mul(x, x) y = {scatter} z = ReduceMax<axes = [1], keepdims = 0>(y) }}"
    )
    model.opset_import[0].version = 17  # axes as an attribute
    lower_bfloat16(model)
    assert unsafe_outputs(model, {"y": ["old"]}) == frozenset()
    cache, x, highest = random(4, 2), random(1, 2), random(4)
    expected = cache.copy()
    expected[2] = x * x
    session = ort.InferenceSession(model.SerializeToString())
    binding = session.io_binding()
    for name, value in {"old": cache, "x": x}.items():
        binding.bind_input(name, "cpu", 0, BFLOAT16, value.shape, value.ctypes.data)
    binding.bind_cpu_input("at", at)
    for name, value in {"y": cache, "z": highest}.items():
        binding.bind_output(name, "cpu", 0, BFLOAT16, value.shape, value.ctypes.data)
    session.run_with_iobinding(binding)
    assert_same_bits(cache, expected)
    assert_same_bits(highest, expected.max(1))
