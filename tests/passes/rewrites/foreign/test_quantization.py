from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.foreign.drafting import Draft
from samba_onnx.passes.rewrites.foreign.quantization import dequantized, quantized
from tests.passes.rewrites.applying import numbers, parse
from tests.passes.rewrites.foreign.expanding import MICROSOFT, assert_expands, one_node
from tests.passes.rewrites.foreign.quantities import ONE_STEP, point, scale, signed


@pytest.mark.parametrize("value", [numbers(3, 8), abs(numbers(3, 8)), -abs(numbers(3, 8))])
def test_quantisation_by_range(value: Any) -> None:
    proto = one_node("", "DynamicQuantizeLinear", [value], ["y", "scale", "point"])
    assert_expands(proto, [value], rtol=1e-6, atol=0)


def test_a_value_without_a_range_is_quantised_as_onnxruntime_does() -> None:
    value = np.zeros((2, 3), np.float32)
    proto = one_node("", "DynamicQuantizeLinear", [value], ["y", "scale", "point"])
    assert_expands(proto, [value], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("zero", "attributes"),
    [
        (point(100), {}),
        (point(-3, np.int8), {}),
        (point(1000, np.uint16), {}),
        (point(-1000, np.int16), {}),
        (point([1, 2, 3, 4], np.int8), {"axis": 1}),
    ],
)
def test_quantisation_in_onnxruntimes_domain(zero: Any, attributes: dict[str, int]) -> None:
    scales = scale(0.1) if zero.ndim == 0 else scale(0.1, 0.2, 0.3, 0.4)
    operands = [numbers(3, 4), scales, zero]
    proto = one_node(MICROSOFT, "QuantizeLinear", operands, ["y"], (1, 2), **attributes)
    assert_expands(proto, operands, **ONE_STEP)
    whole = np.random.default_rng(0).integers(0, 100, (3, 4)).astype(zero.dtype)
    operands = [whole, scales, zero]
    proto = one_node(MICROSOFT, "DequantizeLinear", operands, ["y"], (1, 2), **attributes)
    assert_expands(proto, operands, rtol=1e-6, atol=0)


def test_one_zero_point_for_several_scales() -> None:
    # a form of ONNX's QLinearConv that DequantizeLinear does not have
    operands = [
        np.random.default_rng(0).integers(0, 256, (1, 3, 5, 5)).astype(np.uint8),
        scale(0.1), point(120), signed(2, 3, 3, 3), scale(0.01, 0.02), point(0, np.int8),
        scale(0.5), point(128),
    ]  # fmt: skip
    proto = one_node("", "QLinearConv", operands, ["y"], tuple(range(1, 8)))
    assert_expands(proto, operands, **ONE_STEP)


@pytest.mark.parametrize(
    ("scales", "points", "written"),
    [
        ("float[2]", "int8", ["Reshape", "Expand", "DequantizeLinear"]),
        ("float[2]", "int8[1]", ["Reshape", "Expand", "DequantizeLinear"]),
        ("float[2]", "int8[2]", ["DequantizeLinear"]),
        ("float[2]", "int8[3]", ["DequantizeLinear"]),
        ("float", "int8[1]", ["Reshape", "DequantizeLinear"]),
        ("float", "int8", ["DequantizeLinear"]),
    ],
)
def test_zero_points_have_the_shape_of_the_scales(
    scales: str, points: str, written: list[str]
) -> None:
    (node,) = parse(f"g (int8[3,2] x, {scales} s, {points} z) => (y) {{ y = Own(x, s, z) }}").graph
    draft = Draft(node)
    dequantized(draft, (0, 1, 2), 1)
    operators = [each.op_type for each in draft.nodes if each.op_type != "Constant"]
    assert operators == written


@pytest.mark.parametrize("kind", ["uint8", "int8", "uint16"])
def test_a_zero_point_that_is_left_out_is_zero_of_the_type_of_the_integers(kind: str) -> None:
    text = f"g ({kind}[3] x, float s) => (y) {{ y = Own(x, s) }}"
    (node,) = parse(text).graph
    draft = Draft(node)
    quantized(draft, draft.operand(0), (1, 2), 0)
    zero = draft.nodes[0].attributes["value"].as_tensor()
    assert (zero.dtype, zero.shape.numpy()) == (ir.DataType[kind.upper()], ())
    assert zero.numpy() == 0
    assert [each.op_type for each in draft.nodes] == ["Constant", "QuantizeLinear"]
