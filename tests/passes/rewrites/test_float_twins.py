"""For each value of integers floats of the same numbers, by the operator that made it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.float_twins import Twins
from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.rewriting import WEIGHT
from tests.passes.rewrites.applying import TRACE, add_weights, parse, run

FLOAT = ir.DataType.FLOAT


def twinned(text: str, weights: dict[str, np.ndarray] | None = None) -> tuple[ir.Model, ir.Value]:
    """Return a model of which output y has become an output of floats, and that."""
    model = InferShapesPass()(add_weights(parse(text), weights or {})).model
    (value,) = (v for n in model.graph for v in n.outputs if v.name == "y")
    twin = Twins(model).of(value, model.graph[-1])
    model.graph.outputs.append(twin)
    assert twin.dtype is FLOAT
    assert twin.shape == value.shape
    assert all(TRACE in node.metadata_props for node in model.graph)
    return model, twin


def held(model: ir.Model, *inputs: np.ndarray) -> None:
    """The twin has the numbers of the value, as onnxruntime computes both."""
    *_, value, twin = run(model, list(inputs))
    np.testing.assert_array_equal(twin, value.astype(np.float32))


@pytest.mark.parametrize(("reduction", "carried"), [("none", True), ("add", False)])
def test_what_is_written_over_has_a_twin_and_what_is_added_is_cast(
    reduction: str, carried: bool
) -> None:
    model, twin = twinned(
        f"""g (int8[4] x, int64[2] i, int8[2] u) => (int8[4] y)
        {{ y = ScatterElements<reduction="{reduction}">(x, i, u) }}"""
    )
    assert (twin.producer().op_type == "ScatterElements") is carried  # type: ignore[union-attr]
    held(model, np.array([1, 2, 3, 4], np.int8), np.array([1, 3]), np.array([-5, 7], np.int8))


def test_what_computes_is_cast() -> None:
    model, twin = twinned("g (int8[4] x) => (int8[4] y) { y = Neg(x) }")
    assert twin.producer().op_type == "Cast"  # type: ignore[union-attr]
    held(model, np.array([1, -128, 3, 4], np.int8))


def test_several_results_have_a_twin_each_and_places_keep_their_type() -> None:
    model, twin = twinned(
        "g (int8[4,2] x) => (int8[2,2] y) { a, y = Split<axis = 0, num_outputs = 2>(x) }"
    )
    split = twin.producer()
    assert split is not None
    assert [value.dtype for value in split.outputs] == [FLOAT, FLOAT]
    held(model, np.arange(8, dtype=np.int8).reshape(4, 2))
    model, twin = twinned(
        """g (int8[1,1,4] x) => (int8[1,1,2] y, int64[1,1,2] i)
        { y, i = MaxPool<kernel_shape = [2], strides = [2]>(x) }"""
    )
    pool = twin.producer()
    assert pool is not None
    assert [value.dtype for value in pool.outputs] == [FLOAT, ir.DataType.INT64]


@pytest.mark.parametrize("weight", [True, False])
def test_what_is_made_of_a_weight_is_one(weight: bool) -> None:
    model = add_weights(
        parse("g (int8[4] w) => (int8[4] y) { y = Identity(w) }"),
        {"w": np.array([1, 2, 3, -4], np.int8)},
    )
    value = model.graph.initializers["w"]
    if weight:
        value.meta[WEIGHT] = True
    twin = Twins(model).of(value, model.graph[0])
    assert twin.is_initializer()
    assert bool(twin.meta.get(WEIGHT)) is weight
    np.testing.assert_array_equal(twin.const_value.numpy(), [1, 2, 3, -4])  # type: ignore[union-attr]
