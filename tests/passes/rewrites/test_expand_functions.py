from __future__ import annotations

import numpy as np
import pytest

from samba_onnx.passes.pipeline import run_pipeline
from tests.passes.rewrites.applying import TRACE, Knows, numbers, operators, parse, run

BASIC = ("Abs", "Add", "Cast", "Clip", "Div", "Erf", "Exp", "Less", "Log", "Max", "Min", "Mul", "Neg",
         "Pow", "Range", "Sigmoid", "Reciprocal", "ReduceMax", "ReduceMean", "ReduceSum", "Relu", "Reshape", "Shape",
         "Flatten", "Sqrt", "Sub", "Sum", "Tanh", "Where", "Slice", "Concat", "Size", "Unsqueeze",
         "Softmax", "Expand", "Squeeze", "ConstantOfShape", "Transpose", "MatMul", "GatherElements")  # fmt: skip


@pytest.mark.parametrize(
    ("call", "opset"),
    [
        ("Gelu(x)", 20),
        ('Gelu<approximate="tanh">(x)', 21),
        ("Elu<alpha=0.5>(x)", 14),
        ("HardSwish(x)", 14),
        ("Softplus(x)", 22),
        ("LogSoftmax<axis=1>(x)", 13),
        ("LayerNormalization<axis=-1>(x, s)", 17),
        ("RMSNormalization(x, s)", 23),
        ("ReduceL2<keepdims=1>(x)", 18),
        ("Swish<alpha=1.5>(x)", 24),
        ("MeanVarianceNormalization<axes=[0,2]>(x)", 13),
    ],
)
def test_unknown_operators_are_written_with_known_ones(call: str, opset: int) -> None:
    text = f"g (float[2,3,4] x, float[4] s) => (float[?,?,?] y) {{ y = {call} }}"
    inputs = [numbers(2, 3, 4), numbers(4, seed=1)]
    # what onnxruntime lacks a kernel for, it runs by the same function body
    expected = run(parse(text, opset=opset), inputs)[0]
    result = run_pipeline(parse(text, opset=opset), Knows(*BASIC))
    assert set(operators(result.model)) <= set(BASIC)
    assert all(TRACE in node.metadata_props for node in result.model.graph)
    # another order of float32 operations
    np.testing.assert_allclose(run(result.model, inputs)[0], expected, rtol=1e-5, atol=1e-6)


def test_nothing_is_expanded_that_would_not_fit_either() -> None:
    text = "g (float[2,3,4] x) => (float[2,3,4] y) { y = Gelu(x) }"
    result = run_pipeline(parse(text), Knows("Mul", "Div", "Sqrt", "Sum", "Cast"))
    assert operators(result.model) == ["Gelu"]


def test_branches_stay_whole() -> None:
    text = """g (bool c, float[2,3] x) => (float[2,3] y) {
 y = If (c) <then_branch = t () => (float[2,3] a) { a = Gelu(x) },
             else_branch = e () => (float[2,3] b) { b = Elu(x) }> }"""
    result = run_pipeline(parse(text), Knows(*BASIC))
    assert [n.op_type for n in result.model.graph.all_nodes()] == ["If", "Gelu", "Elu"]


def test_operators_that_are_too_new_are_expanded_and_lowered() -> None:
    text = """g (float[1,2,4] x, float[2,1,3] w) => (float[1,2,4] y, float[1,2,2] s) {
 y, s = CausalConvWithState(x, w) }"""
    result = run_pipeline(
        parse(text, opset=27),
        Knows(*BASIC, "Conv", "Pad", "CastLike", "Gather", "Split", "Sigmoid", "Identity"),
    )
    assert "CausalConvWithState" not in operators(result.model)
    assert result.model.graph.opset_imports[""] == 21
    x, w = numbers(1, 2, 4), numbers(2, 1, 3, seed=1)
    padded = np.pad(x, ((0, 0), (0, 0), (2, 0)))
    expected = sum(padded[:, :, k : k + 4] * w[None, :, 0, k : k + 1] for k in range(3))
    np.testing.assert_allclose(run(result.model, [x, w])[0], expected, rtol=1e-5, atol=1e-6)
