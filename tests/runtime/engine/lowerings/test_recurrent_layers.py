"""Bodies of recurrent layers as onnxruntime's own kernels: the graph after it, the numbers, and what stays a Scan."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import parser

from samba_onnx.passes.rewrites.fix_names import FixNamesPass
from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.legalisation.legalise import LegalisePass
from samba_onnx.passes.rewrites.merge_linears import MergeLinearsPass
from samba_onnx.runtime.engine.lowerings.recurrent_layers import lower_recurrent_layers
from tests.backend_cases import run_onnxruntime
from tests.passes.rewrites.legalisation.legalising import Everything
from tests.passes.rewrites.legalisation.test_recurrent_layers import layer

ROUNDINGS = 2e-6
"""After five steps of numbers below one; both sides compute in float32."""


def repeated(operator: str, *, merges: bool = False, **options: Any) -> tuple[onnx.ModelProto, Any]:
    """Return a layer as the compiler writes it, and its inputs: all operands but sequences and lengths are initializers."""
    proto, inputs = layer(operator, **options)
    fed = []
    for value, array in list(zip(proto.graph.input, inputs, strict=True)):
        if value.name in ("x", "lengths"):
            fed.append(array)
            continue
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, value.name))
        proto.graph.input.remove(value)
    model = ir.from_proto(proto)
    InferShapesPass()(model)
    assert LegalisePass(Everything())(model).modified
    for rewrite in (MergeLinearsPass(),) if merges else ():
        for value in model.graph.initializers.values():
            value.meta["samba_onnx.weight"] = True
        assert rewrite(model).modified
    InferShapesPass()(model)
    FixNamesPass()(model)
    return ir.to_proto(model), fed


def operators(proto: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in proto.graph.node]


def check(proto: onnx.ModelProto, inputs: Any, kernel: str, count: int = 1) -> None:
    """Lower a model; it then has kernels and no Scan, and computes what it did."""
    before = run_onnxruntime(proto.SerializeToString(), inputs)
    assert lower_recurrent_layers(proto) == {}
    assert (operators(proto).count(kernel), operators(proto).count("Scan")) == (count, 0)
    assert operators(proto).count("MatMul") == 0, (
        "the kernel multiplies with the weights of the input"
    )
    onnx.checker.check_model(proto)
    for old, new in zip(before, run_onnxruntime(proto.SerializeToString(), inputs), strict=True):
        np.testing.assert_allclose(new, old, rtol=0, atol=ROUNDINGS)


FULL = ("lengths", "p")
"""Sequences of full length, without peepholes."""


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(
    ("operator", "options"),
    [
        ("RNN", {}),
        ("RNN", {"activations": ["Relu"]}),
        ("LSTM", {}),
        ("GRU", {}),
        ("GRU", {"linear_before_reset": 1}),
    ],
)
def test_layers_become_kernels(operator: str, options: dict[str, Any], direction: str) -> None:
    ways = 2 if direction == "bidirectional" else 1
    if "activations" in options:
        options = {"activations": options["activations"] * ways}
    check(*repeated(operator, without=FULL, direction=direction, **options), operator, ways)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("operator", ["RNN", "LSTM", "GRU"])
def test_sequences_of_several_lengths_become_kernels(operator: str, direction: str) -> None:
    ways = 2 if direction == "bidirectional" else 1
    check(*repeated(operator, without=("p",), direction=direction), operator, ways)


MASKED = """<ir_version: 10, opset_import: ["" : 21]>
g (float[4,2,3] x, float[3,2] w, float[2,2] r, float[2,2] s, int32[2] l) => (float[2,2] last, float[4,2,2] all)
<int32[4,1,1] n = {NUMBERS}, int64[1] one = {1}, float zero = {0.0}> {
  c = MatMul(x, w)
  q = Unsqueeze(l, one)
  k = Greater(q, n)
  last, all = Scan<num_scan_inputs = 2, body = b (float[2,2] h, float[2,2] e, bool[2,1] i) => (float[2,2] t, float[2,2] o) {
    m = MatMul(h, r)
    a = Add(m, e)
    u = Tanh(a)
    t = Where(i, u, h)
    o = Where(i, u, BEHIND)
  }>(s, c, k)
}"""


@pytest.mark.parametrize("lengths", [(4, 2), (0, 3)])
def test_an_empty_sequence_keeps_the_state_that_it_begins_with(lengths: tuple[int, ...]) -> None:
    text = MASKED.replace("NUMBERS", "0, 1, 2, 3").replace("BEHIND", "zero")
    model = onnx.shape_inference.infer_shapes(parser.parse_model(text))
    check(model, [*INPUTS[:4], np.array(lengths, np.int32)], "RNN")


@pytest.mark.parametrize(
    ("numbers", "behind", "reason"),
    [
        ("0, 2, 1, 3", "zero", "what its steps do not compute does not follow from lengths"),
        ("0, 1, 2, 3", "h", "its body is no step of a layer"),
    ],
)
def test_other_masks_stay(numbers: str, behind: str, reason: str) -> None:
    text = MASKED.replace("NUMBERS", numbers).replace("BEHIND", behind)
    model = onnx.shape_inference.infer_shapes(parser.parse_model(text))
    (why,) = lower_recurrent_layers(model).values()
    assert why.startswith(reason)


@pytest.mark.parametrize("operator", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("after", [0, 1])
def test_layers_without_biases_and_states(operator: str, after: int) -> None:
    more = {"linear_before_reset": after} if operator == "GRU" else {}
    check(*repeated(operator, without=(*FULL, "b", "h", "c"), **more), operator)


def test_directions_whose_products_were_merged_take_their_columns() -> None:
    for operator in ("RNN", "LSTM", "GRU"):
        model, inputs = repeated(operator, without=FULL, direction="bidirectional", merges=True)
        assert operators(model).count("MatMul") == 1
        check(model, inputs, operator, 2)


@pytest.mark.parametrize(
    ("operator", "options", "reason"),
    [
        ("LSTM", {}, "its body is no step of a layer"),
        ("LSTM", {"without": ("lengths",)}, "its body is no step of a layer"),  # peepholes
        ("LSTM", {"without": FULL, "clip": 0.3}, "its body is no step of a layer"),
        ("LSTM", {"without": FULL, "input_forget": 1}, "its body is no step of a layer"),
        ("GRU", {"without": FULL, "activations": ["Sigmoid", "Relu"]}, "its body is no step"),
        ("RNN", {"without": FULL, "activations": ["Softsign"]}, "its body is no step"),
    ],
)
def test_other_bodies_stay(operator: str, options: dict[str, Any], reason: str) -> None:
    model, _ = repeated(operator, **options)
    before = model.SerializeToString()
    (why,) = lower_recurrent_layers(model).values()
    assert why.startswith(reason)
    assert model.SerializeToString() == before


RNN = """<ir_version: 10, opset_import: ["" : 21]>
g (float[4,2,3] x, float[3,2] w, float[2,2] r, float[2,2] s, float[4,2,2] u) => (float[2,2] last, float[4,2,2] all) {
  c = MatMul(x, w)
  last, all = Scan<num_scan_inputs = 1, WAY body = b (float[2,2] h, float[2,2] e) => (float[2,2] t, float[2,2] o) {
    m = MatMul(h, r)
    a = Add(m, e)
    t = Tanh(a)
    o = Identity(t)
  }>(s, FROM)
}"""


def scan(
    way: str = "", read: str = "c", body: tuple[str, str] = ("", ""), opset: int = 21
) -> onnx.ModelProto:
    """Return an RNN as a Scan that was written by hand, with the shapes that a stage states."""
    text = RNN.replace("WAY ", f"{way}, " if way else "").replace("FROM", read)
    text = text.replace(": 21", f": {opset}")
    return onnx.shape_inference.infer_shapes(parser.parse_model(text.replace(*body)))


INPUTS = [
    np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for shape in ((4, 2, 3), (3, 2), (2, 2), (2, 2), (4, 2, 2))
]


@pytest.mark.parametrize("way", ["", "scan_input_directions = [1], scan_output_directions = [1]"])
def test_a_body_that_somebody_else_wrote_is_a_layer_all_the_same(way: str) -> None:
    check(scan(way), INPUTS, "RNN")


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (scan("scan_input_directions = [1]"), "it reads and writes in different directions"),
        (scan("scan_output_directions = [1]"), "it reads and writes in different directions"),
        (scan("scan_output_axes = [1]"), "it reads or writes along another axis"),
        (scan(read="u"), "what it reads step by step is no product"),
        (scan(body=("o = Identity(t)", "o = Tanh(t)")), "its body is no step"),
        (scan(body=("MatMul(h, r)", "MatMul(e, r)")), "its body is no step"),
        (scan(body=("Add(m, e)", "Sub(m, e)")), "its body is no step"),
    ],
)
def test_scans_that_are_not_quite_layers_stay(model: onnx.ModelProto, reason: str) -> None:
    before = run_onnxruntime(model.SerializeToString(), INPUTS)
    (why,) = lower_recurrent_layers(model).values()
    assert why.startswith(reason)
    assert "Scan" in operators(model)
    for old, new in zip(before, run_onnxruntime(model.SerializeToString(), INPUTS), strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_product_that_others_read_stays() -> None:
    model = scan(body=("all) {", "all, float[4,2,2] c) {"))
    assert lower_recurrent_layers(model) == {}
    assert operators(model).count("MatMul") == 1


def test_models_of_an_old_version_stay() -> None:
    model = scan(opset=12)
    assert lower_recurrent_layers(model) == {}
    assert "Scan" in operators(model)
