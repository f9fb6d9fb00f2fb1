"""Quantised operators in every type and form that onnxruntime has kernels for, against these kernels."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from samba_onnx.facts.domains import is_default
from tests.backend_cases import run_onnxruntime
from tests.passes.rewrites.foreign.expanding import MICROSOFT, Operand, expanded, one_node
from tests.passes.rewrites.foreign.quantities import in_integers, is_integer_product, point, scale

pytestmark = pytest.mark.slow

UNSIGNED, SIGNED = np.uint8, np.int8
SEVERAL = scale(0.011, 0.02, 0.013, 0.017)
ROUNDED_OTHERWISE = 0.02
"""Share of results that may be one step apart: numbers that lie between two integers, to the last bit."""

Case = tuple[str, str, list[Operand], dict[str, Any]]


def _draw(kind: Any, *shape: int, seed: int = 0) -> Any:
    low, high = np.iinfo(kind).min, np.iinfo(kind).max + 1
    return np.random.default_rng(seed).integers(low, high, shape).astype(kind)


def _middle(kind: Any) -> Any:
    return point(131 if kind == UNSIGNED else -5, kind)


def convolutions() -> Iterator[Case]:
    """Types of data and weight, one scale or several, a bias, and forms of the window."""
    forms = (
        {},
        {"pads": [1, 0, 2, 1]},
        {"strides": [2, 1], "auto_pad": "SAME_LOWER"},
        {"dilations": [2, 1]},
        {"group": 2},
    )
    kinds = ((UNSIGNED, UNSIGNED), (UNSIGNED, SIGNED), (SIGNED, SIGNED))
    for (data, weight), several, bias, form in itertools.product(
        kinds, (False, True), (False, True), forms
    ):
        zeros = point([0] * 4, weight) if several else _middle(weight)
        operands: list[Operand] = [
            _draw(data, 1, 4, 7, 6), scale(0.1), _middle(data),
            _draw(weight, 4, 4 // form.get("group", 1), 3, 2, seed=1),
            SEVERAL if several else scale(0.01), zeros, scale(0.5), _middle(data),
        ]  # fmt: skip
        if bias:
            operands.append(np.array([100, -3, 40, -900], np.int32))
        yield "", "QLinearConv", operands, form
        if not several and data == UNSIGNED and not bias:
            integers = [operands[0], operands[3], operands[2], operands[5]]
            yield "", "ConvInteger", integers, form


def products() -> Iterator[Case]:
    """Types of both factors, one scale or several, batches, and what is added."""
    bias = np.array([0.5, -1, 2, 3], np.float32)
    shapes = (((3, 8), (8, 4)), ((2, 3, 8), (8, 4)), ((2, 3, 8), (2, 8, 4)))
    kinds = itertools.product((UNSIGNED, SIGNED), repeat=2)
    for (left, right), several, (rows, columns) in itertools.product(kinds, (False, True), shapes):
        first, second = _draw(left, *rows), _draw(right, *columns, seed=1)
        scales = SEVERAL if several else scale(0.01)
        zeros = point([0] * 4, right) if several else _middle(right)
        if len(columns) == 2 or not several:
            yield "", "MatMulInteger", [first, second, _middle(left), zeros], {}
        operands: list[Operand] = [first, second, scale(0.1), scales, _middle(left), zeros]
        if (len(columns) == 2 or not several) and (left == UNSIGNED or right == SIGNED):
            yield MICROSOFT, "MatMulIntegerToFloat", [*operands, bias], {}
            numbers = (first.astype(np.float32) / 100).astype(np.float32)
            if left == UNSIGNED:
                yield MICROSOFT, "DynamicQuantizeMatMul", [numbers, second, scales, zeros, bias], {}
        if (len(columns) == 2 or not several) and (left == UNSIGNED or right == SIGNED):
            rounded = [first, scale(0.1), _middle(left), second, scales, zeros, scale(0.3), _middle(left)]  # fmt: skip
            yield "", "QLinearMatMul", rounded, {}
            if len(rows) == 2:
                yield MICROSOFT, "QGemm", [*rounded[:6], None, scale(0.3), _middle(left)], {"alpha": 0.5}  # fmt: skip


def elements() -> Iterator[Case]:
    """Operators of one value or two, in both types and layouts."""
    for kind in (UNSIGNED, SIGNED):
        # Ratios of scales are no simple fractions: few results lie between two integers.
        factors: list[Operand] = [scale(0.05131), _middle(kind), scale(0.04177), _middle(kind)]
        value = _draw(kind, 2, 6, 5, 4)
        for last, counted, ceiling in itertools.product((0, 1), repeat=3):
            form = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1],
                    "channels_last": last, "count_include_pad": counted, "ceil_mode": ceiling}  # fmt: skip
            if not (last and counted and ceiling):
                yield MICROSOFT, "QLinearAveragePool", [value, *factors], form
        for last in (0, 1):
            yield MICROSOFT, "QLinearGlobalAveragePool", [value, *factors], {"channels_last": last}
        yield MICROSOFT, "QLinearSigmoid", [value, *factors[:2], scale(1 / 250), factors[3]], {}
        for alpha in (0.01, 0.3):
            yield MICROSOFT, "QLinearLeakyRelu", [value, *factors], {"alpha": alpha}
        for shape in ((2, 6, 5, 4), (4,), (1, 6, 1, 1), ()):
            other = _draw(kind, *shape, seed=1)
            pair: list[Operand] = [value, *factors[:2], other, scale(0.01873), _middle(kind), scale(0.2031), factors[3]]  # fmt: skip
            yield MICROSOFT, "QLinearAdd", pair, {}
            yield MICROSOFT, "QLinearMul", pair, {}
        for axis in (0, -1):
            beside: list[Operand] = [scale(0.05131), _middle(kind), value, scale(0.01873), _middle(kind), value, *factors[2:]]  # fmt: skip
            yield MICROSOFT, "QLinearConcat", beside, {"axis": axis}
        yield MICROSOFT, "NhwcMaxPool", [value], {"kernel_shape": [2, 2], "dilations": [2, 1]}


CASES = [*convolutions(), *products(), *elements()]


def _constants(operands: list[Operand]) -> tuple[int, ...]:
    """Scales, zero points and weights: what no model computes."""
    return tuple(
        at for at, array in enumerate(operands) if at and array is not None and array.ndim < 2
    )


def _run(proto: onnx.ModelProto, operands: list[Operand]) -> tuple[Any, Any, ir.Model]:
    names = {value.name for value in proto.graph.input}
    inputs = [array for at, array in enumerate(operands) if f"x{at}" in names]
    model, notes = expanded(proto)
    assert all(is_default(node.domain) for node in model.graph), notes
    before = run_onnxruntime(proto.SerializeToString(), inputs)[0]
    if is_integer_product(proto):
        np.testing.assert_array_equal(before, in_integers(proto, operands))
    return before, run_onnxruntime(ir.to_proto(model).SerializeToString(), inputs)[0], model


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda at: f"{CASES[at][1]}-{at}")
def test_a_form_of_an_operator(number: int) -> None:
    domain, operator, operands, attributes = CASES[number]
    proto = one_node(domain, operator, operands, ["y"], _constants(operands), **attributes)
    before, after, model = _run(proto, operands)
    assert (after.dtype, after.shape) == (before.dtype, before.shape)
    assert not {"QuantizeLinear", "DequantizeLinear", operator} & {n.op_type for n in model.graph}
    if before.dtype == np.float32:
        # numbers up to 1000, of sums of 8 products
        np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-3)
        return
    apart = np.abs(after.astype(np.int64) - before.astype(np.int64))
    exact = operator in ("ConvInteger", "MatMulInteger", "NhwcMaxPool")
    assert apart.max() <= (0 if exact else 1)
    assert (apart != 0).mean() <= ROUNDED_OTHERWISE
