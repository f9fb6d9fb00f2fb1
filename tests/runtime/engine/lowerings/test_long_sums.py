"""Long sums in stages: how near to float64 they are beside torch, the nodes, and what stays."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from onnx import helper, numpy_helper
from torch import Tensor

from samba_onnx.runtime.engine.lowerings.long_sums import REDUCTIONS, RUNNING, add_in_stages

EPS = 2.0**-23
FEW_ULPS = 8
"""Units of the last place that are always allowed: a block of 512 numbers that are added one after the other
in eight rows is off by so many where all are equal and torch, by luck, by none."""

TORCH: dict[str, Callable[[Tensor, tuple[int, ...]], Tensor]] = {
    "ReduceSum": lambda x, axes: x.sum(axes),
    "ReduceMean": lambda x, axes: x.mean(axes),
    "ReduceL1": lambda x, axes: x.abs().sum(axes),
    "ReduceL2": lambda x, axes: torch.linalg.vector_norm(x, 2, axes),
    "ReduceSumSquare": lambda x, axes: (x * x).sum(axes),
    "ReduceLogSum": lambda x, axes: x.sum(axes).log(),
    "ReduceLogSumExp": lambda x, axes: x.logsumexp(axes),
}
NUMBERS: dict[str, Callable[[tuple[int, ...]], Tensor]] = {
    "equal": lambda shape: torch.full(shape, 0.1),
    "random": lambda shape: torch.rand(shape),
    "far from zero": lambda shape: torch.randn(shape) + 100,
}
LAYOUTS = {
    "a row of a thousand": ((1000,), (0,)),
    "a row of four million": ((4_000_000,), (0,)),
    "a row of a prime number": ((99_991,), (0,)),
    "rows": ((20, 40_000), (1,)),
    "columns": ((40_000, 20), (0,)),
    "two columns": ((40_009, 2), (0,)),
    "batch and picture": ((32, 8, 31, 31), (0, 2, 3)),
    "batch and sequence": ((16, 128, 40), (0, 1)),
    "inner and outer axis": ((3000, 4, 2), (0, 2)),
    "middle axis": ((3, 5000, 7), (1,)),
}


def model(
    operator: str, shape: tuple[int, ...], axes: tuple[int, ...], *, keep: bool = False
) -> onnx.ModelProto:
    result = [
        1 if axis in axes else size for axis, size in enumerate(shape) if keep or axis not in axes
    ]
    return helper.make_model(
        helper.make_graph(
            [helper.make_node(operator, ["x", "axes"], ["y"], keepdims=int(keep))],
            "g",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, result)],
            [numpy_helper.from_array(np.array(axes, np.int64), "axes")],
        ),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )


def run(proto: onnx.ModelProto, value: np.ndarray) -> np.ndarray:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(proto.SerializeToString(), options)
    result: np.ndarray = session.run(None, {"x": value})[0]
    return result


def error(result: Tensor, exact: Tensor) -> float:
    return float((result.double() - exact).abs().max() / exact.abs().max())


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("operator", TORCH)
def test_a_long_sum_is_as_near_to_float64_as_torchs(operator: str, layout: str, kind: str) -> None:
    shape, axes = LAYOUTS[layout]
    torch.manual_seed(0)
    value = NUMBERS[kind](shape)
    proto = model(operator, shape, axes)
    assert add_in_stages(proto) == {}
    onnx.checker.check_model(proto, full_check=True)
    exact = TORCH[operator](value.double(), axes)
    result = torch.from_numpy(np.array(run(proto, value.numpy())))
    assert result.shape == exact.shape
    torchs = error(TORCH[operator](value, axes), exact)
    assert error(result, exact) <= max(2 * torchs, FEW_ULPS * EPS)


def test_onnxruntime_alone_is_not() -> None:
    """What the lowering is for: whoever finds this to fail may drop it."""
    value = np.full(200_000, 0.1, np.float32)
    exact = torch.from_numpy(value).double().sum()
    result = torch.from_numpy(np.array(run(model("ReduceSum", value.shape, (0,)), value)))
    assert error(result, exact) > 10 * FEW_ULPS * EPS


@pytest.mark.parametrize("operator", TORCH)
def test_axes_may_stay(operator: str) -> None:
    proto = model(operator, (5, 600, 7), (1,), keep=True)
    before = model(operator, (5, 600, 7), (1,), keep=True)
    assert add_in_stages(proto) == {}
    value = np.random.default_rng(0).random((5, 600, 7), np.float32)
    result = run(proto, value)
    assert result.shape == (5, 1, 7)
    np.testing.assert_allclose(result, run(before, value), rtol=2e-6)


def test_every_row_is_tested() -> None:
    assert REDUCTIONS.keys() == {*TORCH, "GlobalAveragePool"}


def whole(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 21]>\n' + text)


def test_a_pool_of_whole_planes_is_a_mean() -> None:
    proto = whole("g (float[2,3,100,50] x) => (float[2,3,1,1] y) { y = GlobalAveragePool(x) }")
    assert add_in_stages(proto) == {}
    value = torch.full((2, 3, 100, 50), 0.1)
    result = torch.from_numpy(np.array(run(proto, value.numpy())))
    exact = value.double().mean((2, 3), keepdim=True)
    assert result.shape == exact.shape
    assert error(result, exact) <= FEW_ULPS * EPS


@pytest.mark.parametrize("options", ["", "<exclusive=1>", "<reverse=1>"])
def test_a_running_sum_is_rounded_once(options: str) -> None:
    proto = whole(
        "g (float[2,100000] x) => (float[2,100000] y) <int64 axis = {1}> "
        f"{{ y = {RUNNING}{options}(x, axis) }}"
    )
    assert add_in_stages(proto) == {}
    value = np.full((2, 100_000), 0.1, np.float32)
    exact = np.cumsum(value.astype(np.float64), 1)
    if "exclusive" in options:
        exact -= value
    if "reverse" in options:
        exact = exact[:, ::-1]
    np.testing.assert_allclose(run(proto, value), exact, rtol=EPS / 2, atol=1e-9)


def test_float16_is_added_in_float32_and_rounded_once() -> None:
    proto = whole(
        "g (float16[3,5000] x) => (float16[3] y) <int64[1] axis = {1}> "
        "{ y = ReduceMean<keepdims=0>(x, axis) }"
    )
    assert add_in_stages(proto) == {}
    value = np.random.default_rng(0).random((3, 5000)).astype(np.float16)
    expected = value.astype(np.float64).mean(1).astype(np.float16)
    np.testing.assert_array_equal(run(proto, value), expected)


@pytest.mark.parametrize(("version", "operator"), [(11, "ReduceSum"), (13, "ReduceMean")])
def test_axes_may_be_attributes(version: int, operator: str) -> None:
    proto = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {version}]> g (float[4,9000] x) => (float[4] y) '
        f"{{ y = {operator}<axes=[1], keepdims=0>(x) }}"
    )
    assert add_in_stages(proto) == {}
    onnx.checker.check_model(proto, full_check=True)
    value = np.random.default_rng(0).random((4, 9000), np.float32)
    wide = value.astype(np.float64)
    expected = wide.sum(1) if operator == "ReduceSum" else wide.mean(1)
    np.testing.assert_allclose(run(proto, value), expected, rtol=2 * EPS)


def test_nothing_is_lost_where_numbers_are_infinite() -> None:
    value = np.zeros((3, 2000), np.float32)
    value[0, 3], value[1, 4], value[2, 5] = math.inf, -math.inf, math.nan
    for operator in ("ReduceSum", "ReduceLogSumExp"):
        proto = model(operator, (3, 2000), (1,))
        assert add_in_stages(proto) == {}
        expected = TORCH[operator](torch.from_numpy(value), (1,)).numpy()
        np.testing.assert_allclose(run(proto, value), expected, rtol=1e-6)


STAYS = {
    "few numbers": ("g (float[9,512] x) => (float[9] y) <int64[1] a = {1}>", "it adds few numbers"),
    "no axes": ("g (float[9000] x) => (float[9000] y) <int64[0] a = {}>", "it adds few numbers"),
    "whole numbers": (
        "g (int64[9000] x) => (int64 y) <int64[1] a = {0}>",
        "its numbers are neither float32 nor float16",
    ),
    "axes of the user": (
        "g (float[9000] x, int64[1] a) => (float[N] y)",
        "its axes are computed",
    ),
    "an unknown size": (
        "g (float[N] x) => (float y) <int64[1] a = {0}>",
        "shape or type of its operand are not declared",
    ),
    "nothing to add": ("g (float[0] x) => (float y) <int64[1] a = {0}>", "it adds few numbers"),
}


@pytest.mark.parametrize(("head", "reason"), STAYS.values(), ids=STAYS.keys())
def test_others_stay(head: str, reason: str) -> None:
    proto = whole(head + " { y = ReduceSum<keepdims=0, noop_with_empty_axes=1>(x, a) }")
    content = proto.SerializeToString(deterministic=True)
    assert add_in_stages(proto) == {"y": reason}
    assert proto.SerializeToString(deterministic=True) == content


def test_a_branch_is_lowered_too() -> None:
    proto = whole(
        "g (bool c, float[9000] x) => (float y) { y = If<then_branch = t () => (float a) "
        "{ v = Mul(x, x) a = ReduceSum<keepdims=0>(x) }, "
        "else_branch = e () => (float b) { b = ReduceMean<keepdims=0>(x) }>(c) }"
    )
    assert add_in_stages(proto) == {}
    value = np.full(9000, 0.1, np.float32)
    for condition, expected in ((True, value.astype(np.float64).sum()), (False, value[0])):
        session = ort.InferenceSession(proto.SerializeToString())
        result = session.run(None, {"c": np.array(condition), "x": value})[0]
        assert abs(result - expected) <= FEW_ULPS * EPS * expected
