"""Products of uint8 and int8 with unsigned weights: every operator against integer arithmetic, and what stays."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from samba_onnx.runtime.engine.lowerings.unsigned_weights import (
    PRODUCTS,
    make_weights_unsigned,
    signed_products,
)
from samba_onnx.runtime.engine.onnxruntime.sessions import SIGNS

MICROSOFT = "com.microsoft"
Array = NDArray[Any]
RANDOM = np.random.default_rng(0)
DATA = RANDOM.integers(0, 256, (5, 64)).astype(np.uint8)
WEIGHT = RANDOM.integers(-128, 128, (64, 6)).astype(np.int8)
PICTURE = RANDOM.integers(0, 256, (1, 8, 6, 6)).astype(np.uint8)
FILTER = RANDOM.integers(-128, 128, (3, 8, 3, 3)).astype(np.int8)
ZERO, OTHER = np.array(131, np.uint8), np.array(-7, np.int8)
SCALE, FINE, ROUGH = (np.array(x, np.float32) for x in (0.1, 0.01, 20.0))
NUMBERS = RANDOM.uniform(-3, 5, (5, 64)).astype(np.float32)

SUM = (DATA.astype(np.int64) - 131) @ (WEIGHT.astype(np.int64) + 7)
WITHOUT = DATA.astype(np.int64) @ WEIGHT.astype(np.int64)


def convolved(zero: int, other: int) -> Array:
    """A convolution in int64, position by position."""
    data, weight = PICTURE.astype(np.int64) - zero, FILTER.astype(np.int64) - other
    windows = np.lib.stride_tricks.sliding_window_view(data, (3, 3), axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, weight)


def requantised(total: Array) -> Array:
    """What a product of integers is as uint8, by the scales of this file."""
    factor = np.float32(SCALE * FINE) / ROUGH
    return np.clip(np.rint(total.astype(np.float32) * factor) + 131, 0, 255).astype(np.uint8)


def dynamic(weight: Array) -> Array:
    """What DynamicQuantizeMatMul makes of NUMBERS, with the zero point -7 of the weight."""
    low, high = min(float(NUMBERS.min()), 0.0), max(float(NUMBERS.max()), 0.0)
    step = np.float32((high - low) / 255)
    point = np.rint(-low / step)
    data = np.clip(np.rint(NUMBERS / step) + point, 0, 255).astype(np.int64) - int(point)
    return (data @ (weight.astype(np.int64) + 7)).astype(np.float32) * (step * FINE)


Case = tuple[str, list[Array | None], Array]
QUANTISED = [DATA, SCALE, ZERO, WEIGHT, FINE, OTHER]
CASES: dict[str, Case] = {
    "MatMulInteger": ("", [DATA, WEIGHT, ZERO, OTHER], SUM.astype(np.int32)),
    "MatMulInteger without zero points": ("", [DATA, WEIGHT], WITHOUT.astype(np.int32)),
    "ConvInteger": ("", [PICTURE, FILTER, ZERO, OTHER], convolved(131, -7).astype(np.int32)),
    "ConvInteger without zero points": ("", [PICTURE, FILTER], convolved(0, 0).astype(np.int32)),
    "QLinearMatMul": ("", [*QUANTISED, ROUGH, ZERO], requantised(SUM)),
    "QLinearConv": (
        "",
        [PICTURE, SCALE, ZERO, FILTER, FINE, OTHER, ROUGH, ZERO],
        requantised(convolved(131, -7)),
    ),
    "MatMulIntegerToFloat": (
        MICROSOFT,
        [DATA, WEIGHT, SCALE, FINE, ZERO, OTHER],
        SUM.astype(np.float32) * (SCALE * FINE),
    ),
    "QGemm": (MICROSOFT, [*QUANTISED, None, ROUGH, ZERO], requantised(SUM)),
    "DynamicQuantizeMatMul": (MICROSOFT, [NUMBERS, WEIGHT, FINE, OTHER], dynamic(WEIGHT)),
}
"""Operator (and form): its domain, its operands, and what integer arithmetic makes of them."""
BY_ORT = frozenset({"DynamicQuantizeLSTM", "QAttention"})
"""Layers of several products, whose weights this test moves by itself."""


def model(name: str, constants: frozenset[int]) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return a model of one node, and what it reads."""
    domain, operands, expected = CASES[name]
    names = ["" if array is None else f"x{place}" for place, array in enumerate(operands)]
    tensors = {f"x{place}": array for place, array in enumerate(operands) if array is not None}
    kept = [name for name in tensors if int(name[1:]) in constants]
    kinds = {
        name: (helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in (*tensors.items(), ("y", expected))
    }
    graph = helper.make_graph(
        [helper.make_node(name.split(maxsplit=1)[0], names, ["y"], domain=domain)],
        "g",
        [helper.make_tensor_value_info(n, *kinds[n]) for n in tensors if n not in kept],
        [helper.make_tensor_value_info("y", *kinds["y"])],
        [numpy_helper.from_array(tensors[name], name) for name in kept],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return proto, {name: array for name, array in tensors.items() if name not in kept}


def run(proto: onnx.ModelProto, feeds: dict[str, Array], *, optimised: bool = False) -> Array:
    options = ort.SessionOptions()
    if not optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(proto.SerializeToString(), options)
    (result,) = session.run(None, feeds)
    return np.asarray(result)


def types_read(proto: onnx.ModelProto, product: str) -> set[int]:
    """Return the types of the weights of an operator, and of their zero points."""
    inferred = onnx.shape_inference.infer_shapes(proto).graph
    types = {v.name: v.type.tensor_type.elem_type for v in (*inferred.input, *inferred.value_info)}
    types |= {tensor.name: tensor.data_type for tensor in inferred.initializer}
    (node,) = (node for node in proto.graph.node if node.op_type == product)
    return {types[node.input[at]] for pair in PRODUCTS[product].weights for at in pair}


@pytest.mark.parametrize("optimised", [False, True])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_products_are_those_of_integer_arithmetic(
    name: str, constant: bool, optimised: bool
) -> None:
    """On every processor: what no VNNI would make wrong is no product of uint8 and int8 any more."""
    scalars = {at for at, x in enumerate(CASES[name][1]) if x is not None and x.ndim == 0}
    weights = (
        {place for place, _ in PRODUCTS[name.split(maxsplit=1)[0]].weights} if constant else set()
    )
    proto, feeds = model(name, frozenset(scalars | weights))
    assert signed_products(proto) == 1
    assert make_weights_unsigned(proto) == {}
    assert types_read(proto, name.split(maxsplit=1)[0]) == {TensorProto.UINT8}
    assert (len(proto.graph.node) == 1) is constant  # a constant is moved before it runs
    actual, expected = run(proto, feeds, optimised=optimised), CASES[name][2]
    assert actual.dtype == expected.dtype
    if expected.dtype == np.float32:
        # sums of up to 64 products, each exact, times one factor
        np.testing.assert_allclose(actual, expected, rtol=1e-6)
    else:
        np.testing.assert_array_equal(actual, expected)
    assert signed_products(proto) == 0


def test_every_operator_of_the_table_is_tried_and_found_in_files() -> None:
    assert {name.split(maxsplit=1)[0] for name in CASES} | BY_ORT == set(PRODUCTS)
    assert [name for name in PRODUCTS if not any(sign in name for sign in SIGNS)] == []


def layer(kind: str) -> tuple[onnx.ModelProto, dict[str, Array], dict[int, int]]:
    """Return a model of a layer with weights of int8, its inputs, and the zero points of its weights."""
    random = np.random.default_rng(1)
    # Small enough that the products do not saturate anywhere, so that both forms must be equal.
    if kind == "QAttention":
        arrays = {
            "x": random.integers(0, 100, (1, 4, 8)).astype(np.uint8),
            "w": random.integers(-60, 60, (8, 24)).astype(np.int8),
            "b": random.normal(size=24).astype(np.float32),
            "xs": np.array(0.02, np.float32), "ws": np.array(0.01, np.float32),
            "xz": np.array(50, np.uint8), "wz": np.array(3, np.int8),
        }  # fmt: skip
        inputs = ["x", "w", "b", "xs", "ws", "", "xz", "wz"]
        node = helper.make_node(kind, inputs, ["y"], domain=MICROSOFT, num_heads=2)
    else:
        arrays = {
            "x": random.normal(size=(3, 1, 4)).astype(np.float32),
            "w": random.integers(-60, 60, (1, 4, 20)).astype(np.int8),
            "r": random.integers(-60, 60, (1, 5, 20)).astype(np.int8),
            "ws": np.array([0.01], np.float32), "wz": np.array([3], np.int8),
            "rs": np.array([0.02], np.float32), "rz": np.array([0], np.int8),
        }  # fmt: skip
        inputs = ["x", "w", "r", "", "", "", "", "", "ws", "wz", "rs", "rz"]
        node = helper.make_node(kind, inputs, ["y"], domain=MICROSOFT, hidden_size=5)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(arrays["x"].dtype), None)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in arrays.items() if name != "x"],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    return (
        helper.make_model(graph, opset_imports=opsets, ir_version=8),
        {"x": arrays["x"]},
        dict(PRODUCTS[kind].weights),
    )


@pytest.mark.parametrize("kind", sorted(BY_ORT))
def test_layers_of_several_products_compute_the_same(kind: str) -> None:
    proto, feeds, _ = layer(kind)
    before = run(proto, feeds)
    assert signed_products(proto) == 1
    make_weights_unsigned(proto)
    kinds = {tensor.name: tensor.data_type for tensor in proto.graph.initializer}
    (node,) = proto.graph.node
    read = {kinds[node.input[at]] for pair in PRODUCTS[kind].weights for at in pair}
    assert read == {TensorProto.UINT8}
    np.testing.assert_allclose(run(proto, feeds), before, rtol=1e-6, atol=1e-7)


def test_int8_on_both_sides_and_uint8_on_both_sides_stay() -> None:
    for left, right in ((np.int8, np.int8), (np.uint8, np.uint8), (np.int8, np.uint8)):
        kinds = [helper.np_dtype_to_tensor_dtype(np.dtype(kind)) for kind in (left, right)]
        graph = helper.make_graph(
            [helper.make_node("MatMulInteger", ["a", "b"], ["y"])],
            "g",
            [helper.make_tensor_value_info(n, k, [4, 4]) for n, k in zip("ab", kinds, strict=True)],
            [helper.make_tensor_value_info("y", TensorProto.INT32, [4, 4])],
        )
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        before = proto.SerializeToString()
        make_weights_unsigned(proto)
        assert proto.SerializeToString() == before


def test_a_weight_of_a_type_that_nobody_declares_stays_and_is_told() -> None:
    text = (
        '<ir_version: 8, opset_import: ["": 17, "other": 1]> g (uint8[4,4] a) => (int32[4,4] y) {'
    )
    proto = onnx.parser.parse_model(text + " b = other.Strange(a) y = MatMulInteger(a, b) }")
    assert make_weights_unsigned(proto) == {"y": "the type of its weight is not declared"}


def test_products_in_subgraphs_and_functions_are_found() -> None:
    text = (
        '<ir_version: 8, opset_import: ["": 17, "own": 1]> '
        "g (bool c, uint8[2,4] a, int8[4,3] b) => (int32[2,3] y, int32[2,3] z) {"
        " y = If(c) <then_branch = t () => (int32[2,3] t) { t = MatMulInteger(a, b) },"
        " else_branch = e () => (int32[2,3] e) { n = MatMulInteger(a, b) e = Neg(n) }>"
        " z = own.product(a, b) }"
        ' <domain: "own", opset_import: ["": 17]> product (p, q) => (r) { r = MatMulInteger(p, q) }'
    )
    proto = onnx.parser.parse_model(text)
    assert signed_products(proto) == 3
    make_weights_unsigned(proto)
    assert signed_products(proto) == 0
    feeds = {"c": np.array(False), "a": DATA[:2, :4], "b": WEIGHT[:4, :3]}
    expected = feeds["a"].astype(np.int64) @ feeds["b"].astype(np.int64)
    session = ort.InferenceSession(proto.SerializeToString())
    y, z = session.run(None, feeds)
    np.testing.assert_array_equal(y, -expected)
    np.testing.assert_array_equal(z, expected)


@pytest.mark.parametrize(
    ("domain", "seed"), list(itertools.product(("initializer", "input"), range(2)))
)
def test_two_products_share_the_moved_weight(domain: str, seed: int) -> None:
    weight = np.random.default_rng(seed).integers(-128, 128, (4, 3)).astype(np.int8)
    inputs = [helper.make_tensor_value_info("a", TensorProto.UINT8, [2, 4])]
    if domain == "input":
        inputs.append(helper.make_tensor_value_info("b", TensorProto.INT8, [4, 3]))
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "b"], [name]) for name in "yz"],
        "g",
        inputs,
        [helper.make_tensor_value_info(name, TensorProto.INT32, [2, 3]) for name in "yz"],
        [numpy_helper.from_array(weight, "b")] if domain == "initializer" else [],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    make_weights_unsigned(proto)
    products = [node for node in proto.graph.node if node.op_type == "MatMulInteger"]
    assert products[0].input[1] == products[1].input[1] != "b"
    feeds = {"a": DATA[:2, :4], "b": weight} if domain == "input" else {"a": DATA[:2, :4]}
    for result in ort.InferenceSession(proto.SerializeToString()).run(None, feeds):
        np.testing.assert_array_equal(result, DATA[:2, :4].astype(np.int64) @ weight)
