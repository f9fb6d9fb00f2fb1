"""Large weights are rearranged as onnxruntime would, when they are read."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.fold_constants import FoldConstantsPass
from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.lazy_weights import lazy_tensor
from samba_onnx.passes.rewrites.rewriting import WEIGHT
from tests.passes.rewrites.applying import add_weights, check, numbers, operators, parse

CONSTANTS = """int64[2] flat = {-1, 128}, int64[3] cube = {64, -1, 8}, int64[1] first = {0}, int64[1] second = {1},
int64[1] ten = {10}, int64[1] last = {-1}, int64[1] most = {9223372036854775807},
int64[1] least = {-9223372036854775807}, int64[1] step = {3}, int64[2] lows = {8, 2},
int64[2] highs = {-5, 100}, int64[2] axes = {1, 0}, int64[2] turned = {-1, 0}, int64[2] steps = {7, 2}"""


@pytest.mark.parametrize(
    "body",
    [
        "t = Transpose(w)",
        "t = Transpose<perm=[1,0]>(w)",
        "r = Reshape(w, cube)\n t = Transpose<perm=[1,2,0]>(r)",
        "r = Reshape(w, cube)\n t = Transpose(r)",
        "t = Reshape(w, flat)",
        "t = Flatten<axis=0>(w)",
        "t = Unsqueeze(w, second)",
        "t = Concat<axis=0>(w, w2)",
        "t = Concat<axis=-1>(w, w2)",
        "t = Slice(w, ten, most)",
        "t = Slice(w, ten, last)",
        "t = Slice(w, first, ten, second)",
        "t = Slice(w, first, last, second, step)",
        "t = Slice(w, lows, highs)",
        "t = Slice(w, lows, highs, axes)",
        "t = Slice(w, lows, highs, turned, steps)",
        "t = Slice(w, lows, highs, , steps)",
    ],
)
def test_a_weight_is_arranged_as_its_operator_says(body: str) -> None:
    # Over the limit up to which results are computed at once.
    weights = {"w": numbers(1024, 512), "w2": numbers(1024, 512, seed=1)}
    model = parse(
        "g (float[1] x, float[1024,512] w, float[1024,512] w2) => (y) "
        f"<{CONSTANTS}> {{ {body}\n y = Mul(t, x) }}"
    )
    if "w2)" not in body:
        del weights["w2"]
        model.graph.inputs.pop()
    add_weights(model, weights)
    for name in weights:
        model.graph.initializers[name].meta[WEIGHT] = True
    InferShapesPass()(model)
    check(model, FoldConstantsPass(), inputs=[np.ones(1, np.float32)])
    assert operators(model) == ["Mul"]
    arranged = model.graph.initializers["t"]
    assert isinstance(arranged.const_value, ir.LazyTensor)
    assert arranged.meta[WEIGHT]
    assert not set(weights) & set(model.graph.initializers), "the weight would be stored twice"


@pytest.mark.parametrize(
    "body",
    [
        "t = Slice(w, last, least, first, last)",  # it turns the rows round
        "t = Slice(w, start, most)",
        "t = Neg(w)",
    ],
)
def test_what_is_no_rearrangement_stays(body: str) -> None:
    model = parse(
        "g (float[1] x, int64[1] start, float[1024,512] w) => (y) "
        f"<{CONSTANTS}> {{ {body}\n y = Mul(t, x) }}"
    )
    add_weights(model, {"w": numbers(1024, 512)})
    InferShapesPass()(model)
    check(
        model, FoldConstantsPass(),
        inputs=[np.ones(1, np.float32), np.array([3])], modified=False,
    )  # fmt: skip


def test_a_lazy_tensor_says_what_it_will_be_and_keeps_odd_types() -> None:
    source = ir.tensor(np.arange(6, dtype=np.float32).astype(ir.DataType.BFLOAT16.numpy()))
    source = ir.Tensor(source.numpy().reshape(2, 3), dtype=ir.DataType.BFLOAT16)
    lazy = lazy_tensor(lambda arrays: arrays[0].T, [source], (3, 2))
    assert (lazy.dtype, lazy.shape) == (ir.DataType.BFLOAT16, ir.Shape((3, 2)))
    assert lazy.numpy().flags.c_contiguous
    assert lazy.numpy().astype(np.float32).tolist() == [[0, 3], [1, 4], [2, 5]]
