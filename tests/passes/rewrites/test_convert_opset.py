"""Conversions are held against onnxruntime on the model as it was, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from samba_onnx.facts.versions import NEWEST_IR_VERSION, NEWEST_OPSET, OPSET
from samba_onnx.passes.rewrites.convert_opset import ConvertOpsetPass
from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.opset_adapters import ADAPTERS
from samba_onnx.runtime.engine.onnxruntime.versions import newest_opset
from tests.passes.rewrites.applying import TRACE, check, numbers, operators, parse
from tests.versions import needs

X = numbers(2, 3, 4, 5)

CASES: dict[str, tuple[int, str, list[Any]]] = {
    "clip": (7, "(float[2,3,4,5] x) => (float[a,b,c,d] y) { y = Clip<min=-0.5, max=0.25>(x) }", [X]),
    "clip_max": (9, "(float[2,3,4,5] x) => (float[a,b,c,d] y) { y = Clip<max=0.25>(x) }", [X]),
    "dropout": (7, "(float[2,3,4,5] x) => (float[a,b,c,d] y) { y = Dropout<ratio=0.3>(x) }", [X]),
    "hardmax": (12, "(float[2,3,4,5] x) => (float[a,b,c,d] y) { y = Hardmax<axis=2>(x) }", [X]),
    "softmax": (11, "(float[2,3,4,5] x) => (float[a,b,c,d] y) { y = Softmax(x) }", [X]),
    "softmax_0": (8, "(float[2,3,4,5] x) => (float[a,b,c,d] y) { y = Softmax<axis=0>(x) }", [X]),
    "softmax_last": (11, "(float[2,3,4,5] x) => (float[a,b,c,d] y) { y = Softmax<axis=3>(x) }", [X]),
    "log_softmax": (11, "(float[2,3,4,5] x) => (float[a,b,c,d] y) { y = LogSoftmax<axis=-3>(x) }", [X]),
    "pad": (10, "(float[2,3,4,5] x) => (float[a,b,c,d] y) { y = Pad<pads=[0,0,1,2,0,0,0,1], value=2.0>(x) }", [X]),
    "reduce_mean": (13, "(float[2,3,4,5] x) => (float[a,b,c] y) { y = ReduceMean<axes=[1], keepdims=0>(x) }", [X]),
    "reduce_all": (11, "(float[2,3,4,5] x) => (float[a,b,c,d] y) { y = ReduceSum(x) }", [X]),
    "reduce_sum": (11, "(float[2,3,4,5] x) => (float[a,b,c,d] y) { y = ReduceSum<axes=[-1]>(x) }", [X]),
    "resize": (10, "(float[2,3,4,5] x) => (float[a,b,c,d] y) <float[4] s = {1.0, 1.0, 2.0, 3.0}> { y = Resize<mode=\"nearest\">(x, s) }", [X]),
    "resize_linear": (10, "(float[2,3,4,5] x) => (float[a,b,c,d] y) <float[4] s = {1.0, 1.0, 2.5, 1.5}> { y = Resize<mode=\"linear\">(x, s) }", [X]),
    "resize_down": (10, "(float[2,3,4,5] x) => (float[a,b,c,d] y) <float[4] s = {1.0, 1.0, 0.6, 0.6}> { y = Resize<mode=\"nearest\">(x, s) }", [X]),
    "upsample_7": (7, "(float[2,3,4,5] x) => (float[a,b,c,d] y) { y = Upsample<scales=[1.0,1.0,2.0,2.0]>(x) }", [X]),
    "upsample_9": (9, "(float[2,3,4,5] x) => (float[a,b,c,d] y) <float[4] s = {1.0, 1.0, 1.5, 2.0}> { y = Upsample<mode=\"linear\">(x, s) }", [X]),
    "scatter": (9, "(float[3,2] x, int64[1,2] i, float[1,2] u) => (float[a,b] y) { y = Scatter(x, i, u) }", [numbers(3, 2), np.array([[1, 2]]), numbers(1, 2, seed=1)]),
    "slice": (9, "(float[2,3,4,5] x) => (float[a,b,c,d] y) { y = Slice<axes=[1,3], starts=[0,-3], ends=[2,9]>(x) }", [X]),
    "split": (11, "(float[2,3,4,5] x) => (float[a,b,c,d] y, float[e,f,g,h] z) { y, z = Split<axis=3, split=[2,3]>(x) }", [X]),
    "split_even": (13, "(float[2,3,4,6] x) => (float[a,b,c,d] y, float[e,f,g,h] z) { y, z = Split<axis=3>(x) }", [numbers(2, 3, 4, 6)]),
    "squeeze": (11, "(float[1,3,1,2] x) => (float[a,b] y) { y = Squeeze<axes=[0,2]>(x) }", [numbers(1, 3, 1, 2)]),
    "squeeze_all": (11, "(float[1,3,1,2] x) => (float[a,b] y) { y = Squeeze(x) }", [numbers(1, 3, 1, 2)]),
    "unsqueeze": (11, "(float[3,2] x) => (float[a,b,c,d] y) { y = Unsqueeze<axes=[0,2]>(x) }", [numbers(3, 2)]),
    "top_k": (9, "(float[3,7] x) => (float[a,b] y, int64[c,d] i) { y, i = TopK<k=3>(x) }", [numbers(3, 7)]),
    "roi_align": (11, "(float[1,2,8,8] x, float[1,4] r, int64[1] b) => (float[i,j,k,l] y) { y = RoiAlign<output_height=3, output_width=3>(x, r, b) }", [numbers(1, 2, 8, 8), np.array([[1, 1, 6, 5]], np.float32), np.array([0])]),
    "grid_sample": (16, "(float[1,2,4,4] x, float[1,3,3,2] g) => (float[i,j,k,l] y) { y = GridSample<mode=\"bicubic\">(x, g) }", [numbers(1, 2, 4, 4), np.tanh(numbers(1, 3, 3, 2))]),
    "dft": (17, "(float[1,6,2] x) => (float[i,j,k] y) { y = DFT(x) }", [numbers(1, 6, 2)]),
    "group_normalization": (18, "(float[2,6,4] x, float[3] s, float[3] b) => (float[i,j,k] y) { y = GroupNormalization<num_groups=3>(x, s, b) }", [numbers(2, 6, 4), numbers(3, seed=1), numbers(3, seed=2)]),
    "batch_normalization": (8, "(float[2,3,4,5] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float[i,j,k,l] y) { y = BatchNormalization(x, s, b, m, v) }", [X, *(numbers(3, seed=i) ** 2 for i in range(4))]),
    "clip_nothing": (7, "(float[3] x) => (float[a] y) { y = Clip(x) }", [numbers(3)]),
    "dropout_mask": (7, "(float[3] x) => (float[a] y) { y, m = Dropout(x) }", [numbers(3)]),
    "dropout_masks_of_numbers": (7, "(float[3] x) => (float[a] y, float[b] m) { y, m = Dropout<ratio=0.3>(x) }", [numbers(3)]),
    "dropout_mask_of_doubles": (9, "(double[3] x) => (double[a] y, double[b] z) { y, m = Dropout(x)\n z = Exp(m) }", [numbers(3).astype(np.float64)]),
    "dropout_mask_10": (10, "(float[3] x) => (float[a] y, bool[b] m) { y, m = Dropout<ratio=0.3>(x) }", [numbers(3)]),
    "dropout_mask_11": (11, "(float[n,3] x) => (float[a,b] y, bool[c,d] z) { y, m = Dropout(x)\n z = Not(m) }", [numbers(2, 3)]),
    "dropout_mask_12": (12, "(float[3] x) => (float[a] y, bool[b] m) { y, m = Dropout(x) }", [numbers(3)]),
    "dropout_mask_alone": (11, "(float[3] x) => (bool[b] m) { y, m = Dropout(x) }", [numbers(3)]),
    "dropout_mask_of_softmax": (10, "(float[2,3,4] x) => (float[a,b,c] y, bool[d,e,f] m) { z = Softmax(x)\n y, m = Dropout(z) }", [numbers(2, 3, 4)]),
    "split_sized": (13, "(float[2,5] x) => (float[a,b] y, float[c,d] z) <int64[2] s = {2, 3}> { y, z = Split<axis=1>(x, s) }", [numbers(2, 5)]),
    "upsample_linear": (7, "(float[1,1,3,2] x) => (float[a,b,c,d] y) { y = Upsample<mode=\"linear\", scales=[1.0,1.0,2.0,3.0]>(x) }", [numbers(1, 1, 3, 2)]),
    "upsample_down": (9, "(float[1,1,4,4] x) => (float[a,b,c,d] y) <float[4] s = {1.0, 1.0, 1.0, 1.0}> { y = Upsample(x, s) }", [numbers(1, 1, 4, 4)]),
    "resize_both_linear": (10, "(float[1,1,4,4] x) => (float[a,b,c,d] y) <float[4] s = {1.0, 1.0, 0.5, 2.0}> { y = Resize<mode=\"linear\">(x, s) }", [numbers(1, 1, 4, 4)]),
    "resize_11": (11, "(float[1,1,4,4] x) => (float[a,b,c,d] y) <float[0] r = {}, float[4] s = {1.0, 1.0, 2.0, 2.0}> { y = Resize<mode=\"linear\">(x, r, s) }", [numbers(1, 1, 4, 4)]),
    "resize_11_asymmetric": (12, "(float[1,1,4,4] x) => (float[a,b,c,d] y) <float[0] r = {}, float[4] s = {1.0, 1.0, 2.0, 2.0}> { y = Resize<mode=\"linear\", coordinate_transformation_mode=\"asymmetric\">(x, r, s) }", [numbers(1, 1, 4, 4)]),
    "grid_sample_bilinear": (16, "(float[1,2,4,4] x, float[1,3,3,2] g) => (float[i,j,k,l] y) { y = GridSample<mode=\"bilinear\">(x, g) }", [numbers(1, 2, 4, 4), np.tanh(numbers(1, 3, 3, 2))]),
    "softmax_first_of_one": (11, "(float[4] x) => (float[a] y) { y = Softmax<axis=0>(x) }", [numbers(4)]),
    "hardmax_ties": (12, "(float[2,2,2] x) => (float[a,b,c] y) { y = Hardmax<axis=1>(x) }", [np.ones((2, 2, 2), np.float32)]),
    "grid_sample_default": (16, "(float[1,2,4,4] x, float[1,3,3,2] g) => (float[i,j,k,l] y) { y = GridSample(x, g) }", [numbers(1, 2, 4, 4), np.tanh(numbers(1, 3, 3, 2))]),
    "grid_sample_nearest": (16, "(float[1,2,4,4] x, float[1,3,3,2] g) => (float[i,j,k,l] y) { y = GridSample<mode=\"nearest\">(x, g) }", [numbers(1, 2, 4, 4), np.tanh(numbers(1, 3, 3, 2))]),
    "dft_2": (17, "(float[1,4,6,2] x) => (float[i,j,k,l] y) { y = DFT<axis=2>(x) }", [numbers(1, 4, 6, 2)]),
    "group_normalization_each": (18, "(float[2,3,4] x, float[3] s, float[3] b) => (float[i,j,k] y) { y = GroupNormalization<num_groups=3>(x, s, b) }", [numbers(2, 3, 4), numbers(3, seed=1), numbers(3, seed=2)]),
    "group_normalization_one": (18, "(float[2,6] x, float[1] s, float[1] b) => (float[i,j] y) { y = GroupNormalization<num_groups=1>(x, s, b) }", [numbers(2, 6), numbers(1, seed=1), numbers(1, seed=2)]),
    "batch_normalization_spatial": (8, "(float[2,3,4] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float[i,j,k] y) { y = BatchNormalization<spatial=1>(x, s, b, m, v) }", [numbers(2, 3, 4), *(numbers(3, seed=i) ** 2 for i in range(4))]),
    "lstm": (11, "(float[2,1,3] x, float[1,8,3] w, float[1,8,2] r) => (float[i,j,k,l] y) { y = LSTM<hidden_size=2>(x, w, r) }", [numbers(2, 1, 3), numbers(1, 8, 3), numbers(1, 8, 2)]),
    "batch_normalization_each": (8, "(float[2,3,4] x, float[3,4] s, float[3,4] b, float[3,4] m, float[3,4] v) => (float[i,j,k] y) { y = BatchNormalization<spatial=0, epsilon=0.25>(x, s, b, m, v) }", [numbers(2, 3, 4), *(numbers(3, 4, seed=i) ** 2 for i in range(4))]),
    "upsample_computed": (9, "(float[1,1,3,2] x, float[4] s) => (float[a,b,c,d] y) { y = Upsample(x, s) }", [numbers(1, 1, 3, 2), np.array([1, 1, 2, 1.5], np.float32)]),
    "upsample_computed_linear": (9, "(float[1,1,3,2] x, float[4] s) => (float[a,b,c,d] y) { y = Upsample<mode=\"linear\">(x, s) }", [numbers(1, 1, 3, 2), np.array([1, 1, 2, 1.5], np.float32)]),
    "resize_both_nearest": (10, "(float[1,1,4,4] x) => (float[a,b,c,d] y) <float[4] s = {1.0, 1.0, 0.5, 2.0}> { y = Resize(x, s) }", [numbers(1, 1, 4, 4)]),
    "resize_computed_up": (10, "(float[1,1,3,3] x, float[4] s) => (float[a,b,c,d] y) { y = Resize(x, s) }", [numbers(1, 1, 3, 3), np.array([1, 1, 1.7, 2], np.float32)]),
    "resize_computed_down": (10, "(float[1,1,7,7] x, float[4] s) => (float[a,b,c,d] y) { y = Resize(x, s) }", [numbers(1, 1, 7, 7), np.array([1, 1, 0.6, 0.4], np.float32)]),
    "resize_computed_both": (10, "(float[1,1,7,5] x, float[4] s) => (float[a,b,c,d] y) { y = Resize(x, s) }", [numbers(1, 1, 7, 5), np.array([1, 1, 0.6, 1.4], np.float32)]),
    "resize_computed_linear": (10, "(float[1,1,4,4] x, float[4] s) => (float[a,b,c,d] y) { y = Resize<mode=\"linear\">(x, s) }", [numbers(1, 1, 4, 4), np.array([1, 1, 0.5, 2.5], np.float32)]),
    "softmax_unknown_rank": (11, "(float[2,3,4] x, int64[n] p) => (float[a,b,c] y) { z = Reshape(x, p)\n y = Softmax<axis=1>(z) }", [numbers(2, 3, 4), np.array([3, 2, 4])]),
    "branch": (11, """(bool c, float[1,4] x) => (float[p,q] y) {
 y = If (c) <then_branch = t () => (float[1,1] a) { a = ReduceMean<axes=[1]>(x) },
             else_branch = e () => (float[1,4] b) { b = Softmax<axis=0>(x) }> }""", [np.array(False), numbers(1, 4)]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_same_results_in_the_internal_operator_set(name: str) -> None:
    opset, graph, inputs = CASES[name]
    model = parse(f"g {graph}", opset=opset, ir_version=8)
    InferShapesPass()(model)
    # Weights per channel, statistics per element and flattened rows: another order of rounding
    tolerance = (
        1e-6
        if name.startswith(
            (
                "group_normalization",
                "batch_normalization_each",
                "softmax_",
                "branch",
                "dropout_mask_of_softmax",
            )
        )
        else 0.0
    )
    check(model, ConvertOpsetPass(), inputs=inputs, atol=tolerance)
    assert model.graph.opset_imports[""] == OPSET


def test_every_adapter_has_a_case_or_refuses() -> None:
    tested = {
        node.op_type
        for opset, graph, _ in CASES.values()
        for node in parse(f"g {graph}", opset=opset).graph.all_nodes()
    }
    reduces = {name for name in ADAPTERS if name.startswith("Reduce")}  # one function for all
    assert set(ADAPTERS) - tested - reduces == {"Scan"}


@pytest.mark.parametrize(
    ("opset", "graph", "reason"),
    [
        (9, "(float[4] x) => (float[i] y, float[j] m) { z = my.Op(x)\n y, m = Dropout(z) }", "mask"),
        (11, "(float[1,1,4,4] x, float[8] r, float[4] s) => (float[i,j,k,l] y) { y = Resize<coordinate_transformation_mode=\"tf_half_pixel_for_nn\">(x, r, s) }", "tf_half_pixel_for_nn"),
        (8, "(float[2,3] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float[i,j] y, float[3] n) { y, n, o, p, q = BatchNormalization(x, s, b, m, v) }", "training mode"),
        (8, "(float[2,3] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float[i,j] y, float[3] z) { y, n, o, p, q = BatchNormalization(x, s, b, m, v)\n z = Neg(n) }", "training mode"),
        (9, "(float[4] x) => (float[i] y, bool[j] z) { w = my.Op(x)\n y, m = Dropout(w)\n z = Cast<to=9>(m) }", "mask"),
        (18, "(float[3] x, float[3] s, float[3] b) => (float[i] y) { y = GroupNormalization<num_groups=3>(x, s, b) }", "channels"),
        (18, "(float[c] x, float[3] s, float[3] b) => (float[i] y) { z = my.Op(x)\n y = GroupNormalization<num_groups=3>(z, s, b) }", "channels"),
        (8, "(float[2] x) => (float[2] y) { y = NoSuch(x)\n z = Scan<num_scan_inputs=1>(x) }", "batch dimension"),
        (18, "(float[2,c,4] x, float[3] s, float[3] b) => (float[i,j,k] y) { y = GroupNormalization<num_groups=3>(x, s, b) }", "channels"),
    ],
)  # fmt: skip
def test_impossible_conversions_change_nothing_and_are_noted(
    opset: int, graph: str, reason: str
) -> None:
    model = parse(f"g {graph}", opset=opset, ir_version=8, imports=', "my": 1')
    before = ir.to_proto(model)
    rewrite = ConvertOpsetPass()
    assert not rewrite(model).modified
    assert ir.to_proto(model) == before
    (note,) = rewrite.notes
    assert note.startswith(f"the model keeps opset {opset}, not {OPSET}: node ")
    assert reason in note


def test_newer_models_are_lowered_when_nothing_of_them_is_new() -> None:
    graph = "g (float[2,3] x) => (float[2,3] y) { z = Softplus(x)\n y = Softmax(z) }"
    model = parse(graph, opset=newest_opset())
    InferShapesPass()(model)
    check(model, ConvertOpsetPass(), inputs=[numbers(2, 3)], rtol=1e-6)
    assert model.graph.opset_imports[""] == OPSET


@needs("onnx", "1.22")  # the first that knows operator set 27
def test_new_operators_and_types_keep_the_newest_version() -> None:
    model = parse("g (float[3] x) => (float[3] y) { y = CumProd(x, a) }".replace(
        "{", "<int64 a = {0}> {"), opset=27)  # fmt: skip
    InferShapesPass()(model)
    assert ConvertOpsetPass()(model).modified
    assert model.graph.opset_imports[""] == NEWEST_OPSET
    bfloat = parse("g (bfloat16[3] x) => (bfloat16[3] y) { y = Softplus(x) }", opset=22)
    rewrite = ConvertOpsetPass()
    assert not rewrite(bfloat).modified
    assert "its type tensor(bfloat16) is new" in rewrite.notes[0]


@pytest.mark.parametrize(
    ("opset", "target", "graph", "obstacle"),
    [
        (21, 18, "(float[2] x) => (float[2] y) { y = Gelu(x) }", "version 18 does not have it"),
        (21, 18, "(float[2] x) => (float[2] y) { y = NoSuch(x) }", "onnx does not know the operator"),
        (21, 18, "(float[2,3,4] x, float[3] s) => (float[2,3,4] y) { y = GroupNormalization<num_groups=3>(x, s, s) }", "meaning changed in version 21"),
        (20, 19, "(float[1,2,4,4] x, float[1,3,3,2] g) => (float[1,2,3,3] y) { y = GridSample(x, g) }", "meaning changed in version 20"),
        (22, 20, "(float[1,2,4,4] x, float[1,3,3,2] g) => (float[1,2,3,3] y) { y = GridSample(x, g) }", None),
        (22, 21, "(float[2,3,4] x, float[3] s) => (float[2,3,4] y) { y = GroupNormalization<num_groups=3>(x, s, s) }", None),
        (14, 13, "(float[2] x) => (int32[2] y) { i = Cast<to=6>(x)\n y = Add(i, i) }", None),
        (21, 21, "(float[2] x) => (float[2] y) { y = NoSuch(x) }", None),
        (22, 21, "(float[2] x) => (float[2] y) { z = my.Op(x)\n y = Identity(z) }", None),
        (13, 12, "(float[2] x) => (bfloat16[2] y) { y = Cast<to=16>(x) }", "its type tensor(bfloat16) is new"),
        (13, 12, "(float[2] x) => (float[2] y, bool[2] m) { y, m = Dropout(x) }", None),
        (13, 12, "(float[4] x, bfloat16 h) => (float[4] y) { y = Clip(x, , h) }", "its type tensor(bfloat16) is new"),
        (13, 12, "(float[2] x, bfloat16[1] h) => (float[4] y) { y = Concat<axis=0>(x, x, x, h) }", "its type tensor(bfloat16) is new"),
        (14, 13, "(float[2] x) => (int32[2] y) { i = Cast<to=6>(x)\n y = Relu(i) }", "its type tensor(int32) is new"),
        (21, 20, "(float[1,2,4,4] x, float[1,3,3,2] g) => (float[1,2,3,3] y) { y = GridSample(x, g) }", None),
        (19, 18, "(float[2] x) => (float16[2] y) { y = Cast<to=10, saturate=0>(x) }", "attribute saturate is new since version 18"),
        (19, 18, "(float[2] x) => (float16[2] y) { y = Cast<to=10>(x) }", None),
        (18, 17, "(float[2,3] x) => (float[2,1] y) <int64[1] a = {1}> { y = ReduceMean(x, a) }", "inputs or outputs that are new since version 17"),
        (14, 12, "(float[2,3] x, float[3] s) => (float[2,3] y) { y, m, v = BatchNormalization<training_mode=1>(x, s, s, s, s) }", "attribute training_mode is new"),
        (14, 13, "(int32[2] x) => (int32[2] y) { y = Relu(x) }", "its type tensor(int32) is new"),
        (14, 13, "(float[2] x) => (float[2] y) { y = Relu(x) }", None),
        (13, 12, "(float[2] x) => (float[6] y) { y = Concat<axis=0>(x, x, x) }", None),
        (13, 12, "(bfloat16[2] x) => (bfloat16[6] y) { y = Sum(x, x, x) }", "its type tensor(bfloat16) is new"),
        (13, 12, "(float[2] x, float h) => (float[2] y) { y = Clip(x, , h) }", None),
        (14, 13, "(float[2,1,3] x, float[1,8,3] w, float[1,8,2] r) => (float[1,1,2] h) { _, h = LSTM<hidden_size=2>(x, w, r) }", None),
        (14, 13, "(float[2] x) => (float[2] y) { z = my.Op(x)\n y = Relu(z) }", "its type is not known is new"),
    ],
)  # fmt: skip
def test_a_node_is_lowered_when_the_older_operator_means_the_same(
    opset: int, target: int, graph: str, obstacle: str | None
) -> None:
    model = parse(f"g {graph}".replace("_, h", '"", h'), opset=opset, imports=', "my": 1')
    InferShapesPass()(model)
    rewrite = ConvertOpsetPass(target)
    assert rewrite(model).modified == (obstacle is None and opset != target)
    assert model.graph.opset_imports[""] == (opset if obstacle else target)
    if obstacle is None:
        assert not rewrite.notes
    else:
        assert obstacle in rewrite.notes[0]
        assert f"keeps opset {opset}, not {target}: node '" in rewrite.notes[0]


@pytest.mark.parametrize(
    ("imports", "version"),
    [
        ({"ai.onnx": 13}, 13),
        ({"": 11, "ai.onnx": 13}, 13),
        ({"": 13, "ai.onnx": 11}, 13),
        ({"": OPSET, "ai.onnx": 11}, OPSET),
        ({}, OPSET),
    ],
)
def test_the_default_domain_has_one_name(imports: dict[str, int], version: int) -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    model.graph.opset_imports.clear()
    model.graph.opset_imports.update(imports)
    assert ConvertOpsetPass()(model).modified == (version != OPSET)
    assert dict(model.graph.opset_imports) == {"": OPSET}


def test_what_is_of_the_version_already_stays() -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    assert not ConvertOpsetPass()(model).modified


@pytest.mark.parametrize(
    ("ir_version", "result"),
    [(8, 8), (NEWEST_IR_VERSION, NEWEST_IR_VERSION), (99, NEWEST_IR_VERSION)],
)
def test_the_file_format_is_one_that_can_be_run(ir_version: int, result: int) -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    model.ir_version = ir_version
    ConvertOpsetPass()(model)
    assert model.ir_version == result


def test_stamped_nodes_are_converted_from_their_own_version() -> None:
    """As inlining leaves them: a function may be written for another version than its model."""
    text = "g (float[2,3] x) => (float[2,3] y) { a = Softmax<axis=0>(x)\n y = my.Op(a) }"
    model = parse(text, imports=', "my": 1')
    model.graph[0].version, model.graph[1].version = 11, 1
    model.graph[0].outputs[0].shape = ir.Shape([2, 3])
    assert ConvertOpsetPass()(model).modified
    assert "Flatten" in operators(model)
    assert [node.version for node in model.graph if node.domain == ""] == [None] * 4
    assert model.graph[-1].version == 1


def test_a_stamp_alone_is_dropped_and_graphs_and_functions_follow() -> None:
    model = parse(
        """g (bool c, float[2] x) => (float[2] y) {
 y = If (c) <then_branch = t () => (float[2] a) { a = Neg(x) },
             else_branch = e () => (float[2] b) { b = Abs(x) }> }""",
        opset=13,
    )
    for graph in model.graph.subgraphs():
        graph.opset_imports[""] = 13
    body = ir.Function("my", "f", graph=ir.Graph([], [], nodes=[]), attributes=[])
    body.opset_imports.clear()
    model.functions[body.identifier()] = body
    assert ConvertOpsetPass()(model).modified
    assert [graph.opset_imports[""] for graph in (model.graph, *model.graph.subgraphs())] == [
        OPSET
    ] * 3
    assert body.opset_imports[""] == OPSET


def test_values_between_new_nodes_are_named_after_what_they_replace() -> None:
    model = parse("g (float[2,3,4] x) => (float[2,3,4] y) { y = Softmax<axis=1>(x) }", opset=11)
    ConvertOpsetPass()(model)
    names = [node.outputs[0].name for node in model.graph]
    assert names == ["y_Shape", "y_Flatten", "y_Softmax", "y"]
    grown = parse("g (float[2,3] x) => (float[2,1] y) { y = ReduceMean<axes=[1]>(x) }", opset=13)
    ConvertOpsetPass()(grown)
    assert list(grown.graph.initializers) == ["y_axes"]


def test_new_constants_are_named_after_what_reads_them() -> None:
    graph, inputs = CASES["group_normalization"][1:]
    model = parse(f"g {graph}", opset=18, ir_version=8)
    check(model, ConvertOpsetPass(), inputs=inputs, atol=1e-6)
    assert set(model.graph.initializers) == {
        f"y_{position}_{name}" for position in (1, 2) for name in ("column", "size", "flat")
    }


@pytest.mark.parametrize(
    ("call", "opset"),
    [("Dropout<ratio=0.5>(x)", 7), ("BatchNormalization<spatial=1>(x, s, s, s, s)", 8)],
)
def test_outputs_and_attributes_that_are_no_more_are_gone(call: str, opset: int) -> None:
    graph = f"g (float[2,3] x, float[3] s) => (float[2,3] y) {{ y = {call} }}"
    model = parse(graph, opset=opset)
    node = model.graph[0]
    node.resize_outputs(2)
    node.outputs[1].name = "unread"
    ConvertOpsetPass()(model)
    assert (len(node.outputs), dict(node.attributes)) == (1, {})


def test_a_region_keeps_the_half_pixel_that_it_was_measured_by() -> None:
    model = parse(f"g {CASES['roi_align'][1]}", opset=11)
    ConvertOpsetPass()(model)
    mode = model.graph[0].attributes["coordinate_transformation_mode"]
    assert mode.as_string() == "output_half_pixel"


def test_a_split_that_says_its_parts_is_left_alone() -> None:
    model = parse("g (float[4] x) => (float[2] y, float[2] z) { y, z = Split<num_outputs=2>(x) }", opset=18)  # fmt: skip
    ConvertOpsetPass()(model)
    assert len(model.graph[0].inputs) == 1


def test_a_softmax_over_the_last_axis_needs_no_rank() -> None:
    model = parse("g (float[2] x) => (y) { z = my.Op(x)\n y = Softmax<axis=-1>(z) }", opset=11, imports=', "my": 1')  # fmt: skip
    assert ConvertOpsetPass()(model).modified
    assert operators(model) == ["Op", "Softmax"]
    known = parse("g (float[2,3] x) => (float[2,3] y) { y = Softmax(x) }", opset=11)
    assert ConvertOpsetPass()(known).modified
    assert operators(known) == ["Softmax"]


def test_bounds_have_the_type_of_what_they_bound() -> None:
    model = parse("g (double[2] x) => (double[2] y) { y = Clip<min=0.5>(x) }", opset=7)
    ConvertOpsetPass()(model)
    assert model.graph.initializers["y_min"].dtype == ir.DataType.DOUBLE
    assert len(model.graph[0].inputs) == 2
    assert model.graph[0].inputs[1] is model.graph.initializers["y_min"]
    untyped = parse("g (float[2] x) => (y) { z = my.Op(x)\n y = Clip<max=0.5>(z) }", opset=7, imports=', "my": 1')  # fmt: skip
    ConvertOpsetPass()(untyped)
    assert untyped.graph.initializers["y_max"].dtype == ir.DataType.FLOAT


def test_new_nodes_inherit_the_trace() -> None:
    model = parse("g (float[2,3,4] x) => (float[2,3,4] y) { y = Softmax<axis=1>(x) }", opset=11)
    ConvertOpsetPass()(model)
    assert operators(model) == ["Shape", "Flatten", "Softmax", "Reshape"]
    assert len({node.metadata_props[TRACE] for node in model.graph}) == 1


def test_no_axes_are_integers_too() -> None:
    model = parse("g (float[2,3] x) => (float[1,1] y) { y = ReduceSum<axes=[0]>(x) }", opset=11)
    model.graph[0].attributes.add(ir.AttrInt64s("axes", []))
    ConvertOpsetPass()(model)
    assert model.graph.initializers["y_axes"].dtype == ir.DataType.INT64


@pytest.mark.parametrize(("axis", "waits"), [(1, True), (2, True), (-1, False)])
def test_a_conversion_may_wait_for_the_rank_that_an_adapter_asks_for(
    axis: int, waits: bool
) -> None:
    """A Softmax over the last axis stays one node then, as soon as its operand is known to have three."""
    text = f"g (float[a,b,c] x, int64[n] p) => (float[d,e,f] y) {{ z = Reshape(x, p)\n y = Softmax<axis={axis}>(z) }}"
    model = parse(text, opset=11)
    first = ConvertOpsetPass(waits_for_ranks=True)
    first(model)
    assert (model.graph.opset_imports[""] == 11) is waits
    assert any("rank" in note for note in first.notes) is waits
    reshaped = model.graph.node(0).outputs[0]
    reshaped.shape = ir.Shape(["d", "e", "f"])
    ConvertOpsetPass(waits_for_ranks=True)(model)
    assert model.graph.opset_imports[""] == OPSET
    assert ("Flatten" in operators(model)) is (axis == 1)
