from __future__ import annotations

import numpy as np
import onnx
import pytest

from samba_onnx.passes.pipeline import run_pipeline
from samba_onnx.passes.rewrites import expand_functions
from samba_onnx.passes.rewrites.expand_functions import ExpandFunctionsPass
from tests.passes.rewrites.applying import TRACE, Knows, numbers, operators, parse, run
from tests.versions import needs

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
        ("Elu(x)", 14),
        ("HardSigmoid<alpha=0.3>(x)", 14),
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


@needs("onnx", "1.22")  # the first that knows operator set 27
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


class KnowsOthers:
    """A target that has every operator but some."""

    repeats_bodies = False

    def __init__(self, *lacking: str) -> None:
        self.lacking = lacking

    def knows(self, domain: str, op_type: str) -> bool:
        return op_type not in self.lacking


def expanded(body: str, *lacking: str, opset: int = 21, deepest: int = 4) -> list[str]:
    """Return the operators after one run of the pass for a target that lacks some."""
    model = parse(f"g (float[2] x, int64 n) => (y) {{ {body} }}", opset=opset)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expand_functions, "DEEPEST", deepest)
        rewrite = ExpandFunctionsPass(KnowsOthers(*lacking))
        assert rewrite(model).modified == (not rewrite.refusals.lines())
    return operators(model)


def test_bodies_within_bodies_are_looked_into_so_deep_and_no_deeper() -> None:
    mish, window = ("y = Mish(x)", "Mish", "Softplus"), ("y = HannWindow(n)", "HannWindow", "Range", "Relu")  # fmt: skip
    assert expanded(*mish, deepest=0) == ["Mish"]
    assert "Softplus" in expanded(*mish, deepest=1)
    assert "Softplus" in expanded(*mish)
    assert expanded(*mish, "Exp") == ["Mish"]
    assert expanded(*window, deepest=1) == ["HannWindow"]
    assert "Range" in expanded(*window, deepest=2)


def test_a_body_of_a_newer_operator_set_is_not_used() -> None:
    assert expanded("y = Elu(x)", "Elu", opset=17) == ["Elu"]
    assert "Elu" not in expanded("y = Elu(x)", "Elu", opset=18)


def test_nodes_that_stay_do_not_keep_those_behind_them_from_being_expanded() -> None:
    model = parse("g (float[2] x) => (float[2] y) { a = Neg(x)\n b = Cos(a)\n y = Elu(b) }")
    assert ExpandFunctionsPass(KnowsOthers("Cos", "Elu"))(model).modified
    assert operators(model)[:2] == ["Neg", "Cos"]
    assert "Elu" not in operators(model)


def test_nodes_of_a_body_carry_the_version_that_it_is_written_for() -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Elu<alpha=0.5>(x) }", opset=21)
    ExpandFunctionsPass(KnowsOthers("Elu"))(model)
    assert {node.version for node in model.graph if node.op_type != "Constant"} == {18}
    model = parse("g (float[2] x) => (float[2] y) { y = Elu(x) }", opset=18)
    ExpandFunctionsPass(KnowsOthers("Elu"))(model)
    assert {node.version for node in model.graph} == {None}


def test_other_functions_of_the_model_stay() -> None:
    model = parse("""g (float[2] x) => (float[2] y) { a = Elu(x)
 y = my.kept(a) }
<domain: "my", opset_import: ["": 21]>
kept (a) => (b) { b = Neg(a) }""", imports=', "my": 1')  # fmt: skip
    before = dict(model.functions)
    ExpandFunctionsPass(KnowsOthers("Elu", "kept"))(model)
    assert dict(model.functions) == before
    assert operators(model)[-1] == "kept"


def inner(op_type: str) -> onnx.FunctionProto:
    body = onnx.FunctionProto()
    body.node.add(op_type="Relu")
    body.node.add(op_type=op_type)
    return body


@pytest.mark.parametrize(
    ("op_type", "written_for", "version", "fits"),
    [
        ("Relu", 13, 13, True),
        ("Relu", 14, 13, False),
        ("ReduceMax", 13, 21, True),  # its axes become an operand whatever they are
        ("Softmax", 12, 13, False),  # of an unknown rank it cannot be converted
        ("Softmax", 11, 12, True),
        ("Softmax", 13, 21, True),
    ],
)
def test_a_body_is_used_when_its_operators_can_be_brought_to_the_version_of_the_model(
    op_type: str, written_for: int, version: int, fits: bool
) -> None:
    assert expand_functions.fits(inner(op_type), written_for, version) == fits


@pytest.mark.parametrize(
    ("call", "kind", "stays"),
    [
        ("Shrink<bias=0.5, lambd=1.0>(x)", "int32", True),
        ("Shrink<bias=1.0, lambd=1.5>(x)", "int32", True),
        ("Shrink(x)", "int32", True),
        ("Shrink<lambd=2.0>(x)", "int32", False),
        ("Shrink<bias=1.0, lambd=2.0>(x)", "int32", False),
        ("Shrink<bias=0.5, lambd=1.5>(x)", "float", False),
        ("AffineGrid<align_corners=1>(t, s)", "float", True),
        ("AffineGrid<align_corners=1>(t, r)", "float", True),
        ("AffineGrid<align_corners=1>(t, q)", "float", False),
        ("AffineGrid<align_corners=1>(t, n)", "float", True),
        ("AffineGrid(t, s)", "float", False),
        ("Elu(x)", "float", False),
    ],
)
def test_a_body_that_computes_other_numbers_than_runtimes_is_not_used(
    call: str, kind: str, stays: bool
) -> None:
    """AffineGrid divides by one less than each size of the image; Shrink cuts its attributes off."""
    model = parse(f"""g ({kind}[4] x, float[1,2,3] t, int64[4] n) => (y)
 <int64[4] s = {{1, 1, 1, 3}}, int64[4] r = {{1, 1, 2, 1}}, int64[4] q = {{1, 1, 2, 3}}> {{ y = {call} }}""")
    (node,) = model.graph
    assert ExpandFunctionsPass(KnowsOthers(node.op_type))(model).modified == (not stays)
