from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import samba_onnx
from samba_onnx.passes.rewrites.expand_foreign import ExpandForeignPass
from samba_onnx.passes.rewrites.expand_quantization import DEQUANTIZING
from samba_onnx.passes.rewrites.foreign.whole import operators_that_stay
from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.refusals import UNEXPANDED
from tests.backend_cases import run_onnxruntime
from tests.passes.rewrites.applying import TRACE, Knows, check, numbers, operators, parse, run

IMPORTS = ', "com.microsoft": 1'


FUSED = """g (float[2,3] x, float[3] b) => (float[2,3] y) {
        a = com.microsoft.BiasGelu(x, b)
        y = com.microsoft.QuickGelu<alpha=1.0>(a)
    }"""


def test_nodes_before_and_after() -> None:
    model = parse(FUSED, imports=IMPORTS)
    rewrite = ExpandForeignPass(Knows("Add", "Gelu", "Mul", "Sigmoid"))
    inputs = [numbers(2, 3), numbers(3, seed=1)]
    # another order of float32 operations
    check(model, rewrite, inputs=inputs, rtol=1e-6, atol=1e-6)
    assert operators(model) == ["Add", "Gelu", "Sigmoid", "Mul"]
    assert [output.name for output in model.graph.outputs] == ["y"]
    assert rewrite.notes == []
    assert not rewrite(model).modified


def test_what_the_target_lacks_keeps_a_node_whole_and_a_note_says_so() -> None:
    model = parse(FUSED, imports=IMPORTS)
    rewrite = ExpandForeignPass(Knows("Add", "Mul", "Sigmoid"))
    check(model, rewrite, inputs=[numbers(2, 3), numbers(3)], rtol=1e-6, atol=1e-6)
    assert operators(model) == ["BiasGelu", "Sigmoid", "Mul"]
    assert rewrite.notes == [
        "com.microsoft::BiasGelu is not expanded: the target lacks Gelu, which it is made of"
    ]


def test_a_target_that_has_the_operator_keeps_it() -> None:
    class KnowsGelu(Knows):
        def knows(self, domain: str, op_type: str) -> bool:
            return op_type == "BiasGelu" or super().knows(domain, op_type)

    model = parse(FUSED, imports=IMPORTS)
    ExpandForeignPass(KnowsGelu("Add", "Gelu", "Mul", "Sigmoid"))(model)
    assert operators(model) == ["BiasGelu", "Sigmoid", "Mul"]


def test_a_model_that_keeps_an_old_version_is_not_touched() -> None:
    model = parse(FUSED, imports=IMPORTS, opset=17)
    rewrite = ExpandForeignPass(Knows("Add", "Gelu", "Mul", "Sigmoid"))
    assert not rewrite(model).modified
    assert "the model keeps opset 17" in rewrite.notes[0]


def test_branches_stay_whole() -> None:
    text = """g (bool c, float[2] x) => (float[2] y) {
        y = If (c) <then_branch = t () => (float[2] a) { a = com.microsoft.Gelu(x) },
                    else_branch = e () => (float[2] b) { b = Neg(x) }> }"""
    model = parse(text, imports=IMPORTS)
    assert not ExpandForeignPass(Knows("Gelu"))(model).modified


def test_an_input_that_is_also_a_result_gets_a_node_of_its_own() -> None:
    # keys by heads are what the cache holds already
    text = """g (float[1,2,4] q, float[1,1,3,4] k, float[1,1,3,4] v) => (float[1,2,4] y, float[1,1,3,4] p, float[1,1,3,4] r)
        { y, p, r = com.microsoft.MultiHeadAttention<num_heads=1>(q, k, v) }"""
    model = parse(text, imports=IMPORTS)
    inputs = [numbers(1, 2, 4), numbers(1, 1, 3, 4, seed=1), numbers(1, 1, 3, 4, seed=2)]
    names = ["Reshape", "Transpose", "Mul", "MatMul", "Softmax"]
    ExpandForeignPass(Knows(*names))(model)
    assert [value.name for value in model.graph.inputs] == ["q", "k", "v"]
    y, keys, values = run(model, inputs)
    np.testing.assert_array_equal(keys, inputs[1])
    np.testing.assert_array_equal(values, inputs[2])
    weights = np.exp(inputs[0] @ inputs[1][:, 0].swapaxes(1, 2) / 2)
    expected = weights / weights.sum(-1, keepdims=True) @ inputs[2][:, 0]
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("opset", [11, 13, 21])
def test_operators_that_onnxruntime_has_in_every_version(opset: int, tmp_path: Path) -> None:
    text = f"""<ir_version: 6, opset_import: ["": {opset}]>
    g (float[2,8] x, float[8,8] w, float[8] s, float[8] z) => (float[2,8] y) {{
        a = MatMul(x, w)
        b = LayerNormalization<axis=-1>(a, s, z)
        c = SimplifiedLayerNormalization<axis=-1, epsilon=0.001, stash_type=1>(b, s)
        d = com.microsoft.FastGelu(c)
        y = Relu(d)
    }}"""
    proto = onnx.parser.parse_model(text)
    inputs = {
        "x": numbers(2, 8),
        "w": numbers(8, 8, seed=1),
        "s": numbers(8, seed=2),
        "z": numbers(8, seed=3),
    }
    pef = samba_onnx.convert(proto, tmp_path / "m.pef", sample=False, trial=False)
    with pef, samba_onnx.Device(pef, threads=1) as device:
        outputs = device.run(inputs)
    assert not pef.manifest.graphs[0].boundaries  # nothing runs on the CPU
    expected = run_onnxruntime(proto.SerializeToString(), list(inputs.values()))
    np.testing.assert_allclose(outputs["y"], expected[0], rtol=1e-5, atol=1e-6)


def test_new_nodes_have_the_trace_of_the_old_one() -> None:
    model = parse(FUSED, imports=IMPORTS)
    traces = [node.metadata_props[TRACE] for node in model.graph]
    ExpandForeignPass(Knows("Add", "Gelu", "Mul", "Sigmoid"))(model)
    assert [node.metadata_props[TRACE] for node in model.graph] == [traces[0]] * 2 + [traces[1]] * 2


def test_why_a_node_stays_is_written_down_and_what_comes_behind_is_expanded() -> None:
    model = parse(
        """g (float[2,2] x) => (float[2,2] y) {
        a = com.microsoft.Inverse(x)
        b = Sin(a)
        y = com.microsoft.QuickGelu<alpha=1.0>(b)
    }""",
        imports=IMPORTS,
    )
    assert ExpandForeignPass(Knows("Mul", "Sigmoid"))(model).modified
    assert operators(model) == ["Inverse", "Sin", "Sigmoid", "Mul"]
    reasons = [node.meta.get(UNEXPANDED) for node in model.graph]
    assert reasons[0] == operators_that_stay()["com.microsoft::Inverse"]
    assert reasons[1:] == [None] * 3


def test_an_unknown_rank_is_a_reason() -> None:
    text = "g (float[2,2] x, float[2,2] b) => (y) { y = com.microsoft.BiasSoftmax<axis=1>(x, b) }"
    model = parse(text, imports=IMPORTS)
    model.graph.inputs[0].shape = None
    rewrite = ExpandForeignPass(Knows("Add", "Softmax"))
    assert not rewrite(model).modified
    assert rewrite.notes == [
        "com.microsoft::BiasSoftmax is not expanded: the rank of 'x' is unknown"
    ]


def test_quantisation_that_another_pass_expands_may_be_written() -> None:
    text = """g (uint8[2] x) => (float[2] y) <float s = {0.5}, uint8 z = {3}>
        { y = com.microsoft.DequantizeLinear(x, s, z) }"""
    for known, modified in ((DEQUANTIZING, True), (DEQUANTIZING[1:], False)):
        model = parse(text, imports=IMPORTS)
        assert ExpandForeignPass(Knows(*known))(model).modified == modified
    model = parse(text, imports=IMPORTS)
    ExpandForeignPass(Knows(*DEQUANTIZING))(model)
    assert [(node.domain, node.op_type) for node in model.graph] == [("", "DequantizeLinear")]


def test_what_is_only_computed_from_constants_need_not_be_known() -> None:
    text = """g (float[2,16] x) => (float[2,3] y)
        <uint8[3,1,8] w = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}, float[3] s = {0.5,1.0,2.0}>
        { y = com.microsoft.MatMulNBits<K=16, N=3, bits=4, block_size=16>(x, w, s) }"""
    model = parse(text, imports=IMPORTS)
    # float32 sums in another order
    check(model, ExpandForeignPass(Knows("MatMul")), inputs=[numbers(2, 16)], rtol=1e-5, atol=1e-5)
    assert [node.op_type for node in model.graph if model.graph.inputs[0] in node.inputs] == [
        "MatMul"
    ]


def test_types_that_follow_from_an_expansion_are_known_to_the_next() -> None:
    text = """g (float[2,4] x, float[4] b) => (float[2,4] y, float[2,4] c) {
        a = com.microsoft.BiasGelu(x, b)
        c = com.microsoft.QuickGelu<alpha=1.0>(x)
        d = Add(a, a)
        y = com.microsoft.BiasSoftmax<axis=1>(d, x)
    }"""
    for known in (("Add", "Gelu", "Softmax"), ("Add", "Mul", "Sigmoid", "Gelu", "Softmax")):
        model = parse(text, imports=IMPORTS)
        InferShapesPass()(model)
        assert model.graph[2].outputs[0].shape is None
        rewrite = ExpandForeignPass(Knows(*known))
        assert rewrite(model).modified
        assert operators(model)[-2:] == ["Add", "Softmax"]
        assert len(rewrite.notes) == ("Mul" not in known)
