from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from samba_onnx.passes.planning.costs import cost, node_dtype, value_bytes
from tests.passes.planning.plan_samples import figures, parse

FLOAT = ir.TensorType(ir.DataType.FLOAT)


def value(kind: ir.TypeProtocol | None, shape: list[int | str | None] | None) -> ir.Value:
    return ir.Value(name="v", type=kind, shape=None if shape is None else ir.Shape(shape))


@pytest.mark.parametrize(
    ("kind", "shape", "expected"),
    [
        (FLOAT, [2, 3], 24),
        (FLOAT, [], 4),
        (FLOAT, [0, 3], 0),
        (FLOAT, [2, "n"], None),
        (FLOAT, [2, None], None),
        (FLOAT, None, None),
        (None, [2], None),
        (ir.TensorType(ir.DataType.UNDEFINED), [2], None),
        (ir.TensorType(ir.DataType.STRING), [2], None),
        (ir.TensorType(ir.DataType.BOOL), [3], 3),
        (ir.TensorType(ir.DataType.BFLOAT16), [3], 6),
        (ir.TensorType(ir.DataType.INT4), [3], 2),
        (ir.TensorType(ir.DataType.UINT4), [2, 2], 2),
        (ir.TensorType(ir.DataType.INT2), [5], 2),
        (ir.TensorType(ir.DataType.COMPLEX128), [2], 32),
        (ir.SequenceType(FLOAT), [2], None),
        (ir.OptionalType(FLOAT), [2], None),
        (ir.SparseTensorType(ir.DataType.FLOAT), [2], None),
    ],
)
def test_value_bytes(
    kind: ir.TypeProtocol | None, shape: list[int | str | None] | None, expected: int | None
) -> None:
    assert value_bytes(value(kind, shape)) == expected


def test_an_initializers_content_tells_type_and_shape_and_is_not_read() -> None:
    def refuse() -> ir.TensorProtocol:
        raise AssertionError("the content was read")

    lazy = ir.LazyTensor(refuse, dtype=ir.DataType.INT4, shape=ir.Shape([5]))
    assert value_bytes(ir.Value(name="w", const_value=lazy)) == 3
    packed = ir.tensor(np.zeros(5, ml_dtypes.int4))
    assert value_bytes(ir.Value(name="w", const_value=packed)) == packed.nbytes


def test_nodes_compute_in_their_first_floating_point_type() -> None:
    gather, cast, odd, logic = parse("""
        g (bfloat16[4] t, int64[2] i, int32[2] j) => (float[2] y, int32[2] z, bool[2] b) {
            g = Gather (t, i)
            y = Cast <to = 1> (j)
            z = Add (j, j)
            b = Not (q)
        }""").graph
    assert [node_dtype(n) for n in (gather, cast, odd, logic)] == [
        "bfloat16",
        "float32",
        "int32",
        "bool",
    ]


# 2**20 multiply-adds on a device of 2**40 operations a second.
PRODUCT = "g (float[64,256] a, float[256,64] b) => (float[64,64] y) { y = MatMul (a, b) }"


def test_seconds_are_the_longer_of_arithmetic_and_traffic() -> None:
    nodes = list(parse(PRODUCT).graph)
    busy = cost(nodes, {"hbm": [2**20]}, figures())
    assert (busy.flops, busy.bytes, busy.seconds) == (2**21, 2**20, 2.0**-19)
    waiting = cost(nodes, {"hbm": [2**22], "ddr": [2**20]}, figures())
    assert waiting.bytes == 5 * 2**20
    assert waiting.seconds == 2.0**-18 + 2.0**-10


def test_each_data_type_has_its_own_peak() -> None:
    half = list(parse(PRODUCT.replace("float[", "bfloat16[")).graph)
    assert cost(half, {}, figures()).seconds == 2.0**-20
    # No figure for int32: the slowest one counts.
    whole = list(parse(PRODUCT.replace("float[", "int32[")).graph)
    assert cost(whole, {}, figures()).seconds == 2.0**-19
    assert cost([], {}, figures()).seconds == 0


def test_arithmetic_in_several_data_types_adds_up() -> None:
    nodes = [*parse(PRODUCT).graph, *parse(PRODUCT.replace("float[", "bfloat16[")).graph]
    assert cost(nodes, {}, figures()).seconds == 2.0**-19 + 2.0**-20


def test_arithmetic_takes_no_time_on_a_device_without_a_peak_and_long_on_a_slow_one() -> None:
    nodes = list(parse(PRODUCT).graph)
    for peaks in ({}, {"float32": 0.0}):
        assert cost(nodes, {}, dataclasses.replace(figures(), peak_flops=peaks)).seconds == 0
    slow = dataclasses.replace(figures(), peak_flops={"float32": 1.0})
    assert cost(nodes, {}, slow).seconds == 2**21


def test_a_node_of_unknown_types_computes_in_none() -> None:
    assert node_dtype(ir.node("Neg", [ir.Value(name="x")])) == ""


def test_a_product_of_widened_bfloat16_counts_as_bfloat16() -> None:
    def value(dtype: ir.DataType) -> ir.Value:
        return ir.Value(name="v", type=ir.TensorType(dtype), shape=ir.Shape((4, 4)))

    def widened(operand: ir.Value) -> ir.Value:
        cast = ir.node("Cast", [operand], {"to": 1})
        cast.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
        return cast.outputs[0]

    narrow, wide = value(ir.DataType.BFLOAT16), value(ir.DataType.FLOAT)
    operands = [(narrow, narrow), (narrow, wide), (value(ir.DataType.FLOAT16), narrow)]
    products = [ir.node("MatMul", [widened(one), widened(other)]) for one, other in operands]
    assert [node_dtype(node) for node in products] == ["bfloat16", "float32", "float32"]
    assert node_dtype(ir.node("Add", [widened(narrow), widened(narrow)])) == "float32"
