from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.expand_quantization import ExpandQuantizationPass
from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.rewriting import WEIGHT
from tests.passes.rewrites.applying import (
    Knows,
    add_weights,
    check,
    numbers,
    operators,
    parse,
)
from tests.versions import needs

ARITHMETIC = ("Add", "Cast", "Clip", "Div", "Round", "Mul", "Sub", "Transpose", "MaxPool", "Concat")
SCALE = np.float32(0.03).reshape(())
PER_ROW = np.array([0.02, 0.5], np.float32)
X = numbers(2, 6) * 3
X[0, :3] = [0.015, 0.045, 1e30]  # two halfway between whole numbers, and one far out of range


def expanded(
    text: str, weights: dict[str, np.ndarray], inputs: list[np.ndarray], *, modified: bool = True
) -> ir.Model:
    """Expand, and compare with onnxruntime to the last bit."""
    model = InferShapesPass()(add_weights(parse(text), weights)).model
    return check(
        model, ExpandQuantizationPass(Knows(*ARITHMETIC)), inputs=inputs, modified=modified
    )


@pytest.mark.parametrize(
    ("kind", "zero"),
    [
        ("int8", 0), ("int8", -128), ("int8", 5), ("uint8", 0), ("uint8", 128),
        ("int16", -300), ("uint16", 40000), ("int4", 3), ("uint4", 9),
    ],
)  # fmt: skip
def test_quantisation_and_back_are_arithmetic(kind: str, zero: int) -> None:
    point = np.array(zero, np.dtype(getattr(ml_dtypes, kind, kind)))
    model = expanded(
        f"""g (float[2,6] x, float s, {kind} z) => (float[2,6] y)
        {{ q = QuantizeLinear(x, s, z)\n y = DequantizeLinear(q, s, z) }}""",
        {"s": SCALE, "z": point},
        [X],
    )
    added = ["Add"] if zero else []
    assert [op for op in operators(model) if op != "Cast"] == [
        "Div",
        "Round",
        "Clip",
        *added,
        "Mul",
    ]


@pytest.mark.parametrize("zero", [None, [3, -7], [4, 4]])
def test_scales_of_an_axis(zero: list[int] | None) -> None:
    points = {} if zero is None else {"z": np.array(zero, np.int8)}
    declared, operand = ("", "") if zero is None else (", int8[2] z", ", z")
    model = expanded(
        f"""g (float[2,6] x, float[2] s{declared}) => (float[2,6] y)
        {{ q = QuantizeLinear<axis=0, output_dtype=3>(x, s{operand})
        y = DequantizeLinear<axis=-2>(q, s{operand}) }}""",
        {"s": PER_ROW} | points,
        [X],
    )
    assert "QuantizeLinear" not in operators(model)


def test_scales_of_blocks() -> None:
    model = expanded(
        """g (float[2,6] x, float[2,3] s) => (float[2,6] y)
        { q = QuantizeLinear<axis=1, block_size=2, output_dtype=3>(x, s)
        y = DequantizeLinear<axis=1, block_size=2>(q, s) }""",
        {"s": np.abs(numbers(2, 3)) + 0.1},
        [X],
    )
    assert "DequantizeLinear" not in operators(model)


def test_scales_that_are_computed() -> None:
    expanded(
        """g (float[2,6] x, float[2] s, uint8[2] z) => (float[2,6] y)
        { q = QuantizeLinear<axis=0>(x, s, z)\n y = DequantizeLinear<axis=0>(q, s, z) }""",
        {},
        [X, PER_ROW, np.array([3, 200], np.uint8)],
    )


@pytest.mark.parametrize(
    ("shape", "scale", "attributes"),
    [
        ((2, 3, 4), (3,), ""),
        ((2, 3, 4), (2,), "<axis=0>"),
        ((2, 3, 4), (4,), "<axis=-1>"),
        ((2, 3, 4), (1,), ""),
        ((), (1,), ""),
        ((), (), ""),
    ],
)
@pytest.mark.parametrize(
    "kind",
    # Of older ones, some results are off by one.
    ["float", pytest.param("float16", marks=needs("onnxruntime", "1.30"))],
)
@pytest.mark.parametrize("computed", [True, False])
def test_scales_of_every_form(
    shape: tuple[int, ...], scale: tuple[int, ...], attributes: str, kind: str, computed: bool
) -> None:
    dtype = np.float16 if kind == "float16" else np.float32
    sizes, scales = (",".join(map(str, each)) for each in (shape, scale))
    value = numbers(*shape).astype(dtype)
    steps = (
        np.asarray(0.01 * (1 + np.arange(np.prod(scale, dtype=int)))).reshape(scale).astype(dtype)
    )
    points = np.full(scale, 5, np.int8)
    operands = f"{kind}[{scales}] s, int8[{scales}] z" if scale else f"{kind} s, int8 z"
    text = f"""g ({kind}{f"[{sizes}]" if shape else ""} x, {operands}) => (int8{f"[{sizes}]" if shape else ""} y)
    {{ y = QuantizeLinear{attributes}(x, s, z) }}"""
    weights = {} if computed else {"s": steps, "z": points}
    expanded(text, weights, [value, steps, points] if computed else [value])


@pytest.mark.parametrize("weight", [True, False])
def test_a_weight_stays_one_when_it_is_quantised(weight: bool) -> None:
    model = add_weights(
        parse(
            "g (float[4] w, float s) => (int8[4] y) { y = QuantizeLinear<output_dtype=3>(w, s) }"
        ),
        {"w": numbers(4), "s": SCALE},
    )
    if weight:
        model.graph.initializers["w"].meta[WEIGHT] = True
    model = InferShapesPass()(model).model
    assert ExpandQuantizationPass(Knows(*ARITHMETIC))(model).modified
    value = model.graph[0].inputs[0]
    assert value is not None
    assert bool(value.meta.get(WEIGHT)) is weight


def test_what_moves_or_chooses_quantised_numbers_does_so_with_floats() -> None:
    model = expanded(
        """g (float[1,2,4,4] x, float s, uint8 z, uint8[1,1,2,2] w) => (float[1,2,2,3] y)
        { q = QuantizeLinear(x, s, z)
        p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(q)
        j = Concat<axis=1>(p, w)
        t = Transpose<perm=[0,2,3,1]>(j)
        y = DequantizeLinear(t, s, z) }""",
        {"s": SCALE, "z": np.uint8(100).reshape(()), "w": np.full((1, 1, 2, 2), 90, np.uint8)},
        [numbers(1, 2, 4, 4)],
    )
    floats = [node.op_type for node in model.graph if node.outputs[0].dtype == ir.DataType.FLOAT]
    assert floats[-1] == "Mul"
    read = {value for node in model.graph for value in node.inputs}
    assert not any(
        node.op_type == "Cast" and node.outputs[0].dtype == ir.DataType.FLOAT
        for node in model.graph
    )
    assert {node.op_type for node in model.graph if node.outputs[0] in read} >= {
        "MaxPool",
        "Concat",
    }


def test_integers_of_the_interface_stay_integers() -> None:
    expanded(
        """g (uint8[2,6] x, float s, uint8 z) => (int8[2,6] y)
        { d = DequantizeLinear(x, s, z)\n y = QuantizeLinear<output_dtype=3>(d, s) }""",
        {"s": SCALE, "z": np.uint8(7).reshape(())},
        [np.arange(12, dtype=np.uint8).reshape(2, 6) * 20],
    )


def test_sums_of_32_bits_are_scaled_as_integers() -> None:
    values = np.random.default_rng(0).integers(-(2**31), 2**31, (2, 6)).astype(np.int32)
    expanded(
        "g (int32[2,6] x, float s) => (float[2,6] y) { y = DequantizeLinear(x, s) }",
        {"s": np.float32(1e-9).reshape(())},
        [values],
    )


def test_a_weight_that_is_quantised_when_the_model_runs_is_so_when_it_is_written() -> None:
    weight, scales = numbers(6, 4), np.abs(numbers(4)) / 50 + 0.01
    model = expanded(
        """g (float[2,6] x, float[6,4] w, float[4] s, int8[4] z) => (int8[6,4] q)
        { q = QuantizeLinear(w, s, z) }""",
        {"w": weight, "s": scales, "z": np.array([0, 1, -5, 100], np.int8)},
        [X],
    )
    assert operators(model) == ["Identity"]
    assert model.graph[0].inputs[0] is not None
    assert WEIGHT not in model.graph[0].inputs[0].meta


@pytest.mark.parametrize(
    ("scale", "attributes"),
    [((), ""), ((6,), "<axis=0>"), ((4,), ""), ((3, 4), "<axis=0, block_size=2>")],
)
def test_a_weight_is_quantised_as_onnxruntime_does_halfway_numbers_included(
    scale: tuple[int, ...], attributes: str
) -> None:
    """Quotients of float32 are rounded to float32 before they are rounded to whole numbers."""
    weight = (np.arange(-12, 12, dtype=np.float32) * np.float32(0.05)).reshape(6, 4)
    scales = np.full(scale, 0.1, np.float32)
    declared = ",".join(map(str, scale))
    model = expanded(
        f"""g (float[2,6] x, float[6,4] w, float[{declared}] s) => (int8[6,4] q)
        {{ q = QuantizeLinear{attributes or "<output_dtype=3>"}(w, s) }}""".replace(
            ">(", ", output_dtype=3>(" if attributes else ">("
        ),
        {"w": weight, "s": scales},
        [X],
    )
    assert operators(model) == ["Identity"]


@pytest.mark.parametrize("zero", [None, 7])
@pytest.mark.parametrize("kind", ["uint8", "int32"])
def test_numbers_that_become_halves_are_computed_in_float32(kind: str, zero: int | None) -> None:
    values = np.random.default_rng(1).integers(0, 255, (2, 6)).astype(kind)
    point, declared = (", z", f", {kind} z") if zero is not None else ("", "")
    weights: dict[str, np.ndarray] = {"s": np.float16(0.03).reshape(())}
    if zero is not None:
        weights["z"] = np.array(zero, kind)
    expanded(
        f"""g ({kind}[2,6] x, float16 s{declared}) => (float16[2,6] y)
        {{ y = DequantizeLinear(x, s{point}) }}""",
        weights,
        [values],
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "g (float[2,6] x, float s) => (y) { y = QuantizeLinear<output_dtype=17>(x, s) }",
            "it makes FLOAT8E4M3FN of FLOAT",
        ),
        (
            "g (float[2,6] x, float s) => (y) { y = QuantizeLinear<precision=10, output_dtype=3>(x, s) }",
            "its attribute precision asks for a division that is not of float32",
        ),
        (
            "g (x, float s) => (y) { y = QuantizeLinear<output_dtype=3>(x, s) }",
            "its types or shapes are not known",
        ),
        (
            "g (int8[2,6] x, float[2,3] s) => (y) { y = DequantizeLinear<block_size=2>(x, s) }",
            "its scales do not fit, or those of its blocks are computed",
        ),
    ],
)
def test_what_it_is_not_made_of_stays(text: str, reason: str) -> None:
    model = InferShapesPass()(parse(text)).model
    rewrite = ExpandQuantizationPass(Knows(*ARITHMETIC))
    assert not rewrite(model).modified
    assert reason in rewrite.refusals.lines()[0]


def test_a_target_that_quantises_keeps_the_nodes() -> None:
    text = "g (float[2,6] x, float s) => (int8[2,6] y) { y = QuantizeLinear<output_dtype=3>(x, s) }"
    model = InferShapesPass()(parse(text)).model
    assert not ExpandQuantizationPass(Knows(*ARITHMETIC, "QuantizeLinear"))(model).modified
    assert not ExpandQuantizationPass(Knows("Div", "Clip"))(model).modified


def test_rounding_is_what_the_table_says_that_it_is_composed_of() -> None:
    """Floor, Sub, comparison and Add, on numbers of all magnitudes and around every half."""
    halves = np.arange(-300, 300, dtype=np.float32) / 2
    values = np.concatenate(
        [halves, np.nextafter(halves, 9e9), np.nextafter(halves, -9e9), [2.0**23 + 1, -(2.0**24), 1e30]]
    ).astype(np.float32)  # fmt: skip
    whole = np.floor(values)
    part = values - whole
    odd = whole - 2 * np.floor(whole / 2)
    composed = whole + ((part > 0.5) | ((part == 0.5) & (odd == 1))).astype(np.float32)
    (rounded,) = check_round(values)
    np.testing.assert_array_equal(composed, rounded)


def check_round(values: np.ndarray) -> list[np.ndarray]:
    from tests.passes.rewrites.applying import run

    return run(
        parse(f"g (float[{values.size}] x) => (float[{values.size}] y) {{ y = Round(x) }}"),
        [values],
    )


def test_floats_are_not_cast_to_what_they_are() -> None:
    model = expanded(
        "g (float[2,6] x, float s) => (int8[2,6] y) { t = Abs(s)\n y = QuantizeLinear<output_dtype=3>(x, t) }",
        {},
        [X, np.array(SCALE)],
    )
    assert operators(model) == ["Abs", "Div", "Round", "Clip", "Cast"]


def test_zero_points_that_are_moved_on_the_way_are_moved_as_floats() -> None:
    model = expanded(
        """g (float[2,6] x, float[2] s, int8[1,2] z) => (int8[2,6] y)
        { p = Transpose<perm=[1,0]>(z)\n f = Reshape(p, two)\n y = QuantizeLinear<axis=0>(x, s, f) }""".replace(
            "(int8[2,6] y)", "(int8[2,6] y) <int64[1] two = {2}>"
        ),
        {},
        [X, PER_ROW, np.array([[3, -7]], np.int8)],
    )
    read = {
        value.dtype
        for node in model.graph
        for value in node.inputs
        if node.op_type == "Transpose" and value
    }
    assert ir.DataType.FLOAT in read
