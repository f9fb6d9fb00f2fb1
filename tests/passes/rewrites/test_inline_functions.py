from __future__ import annotations

import onnx_ir as ir

from samba_onnx.passes.rewrites.convert_opset import ConvertOpsetPass
from samba_onnx.passes.rewrites.inline_functions import InlineFunctionsPass
from samba_onnx.passes.rewrites.lift_constants import LiftConstantsPass
from tests.passes.rewrites.applying import TRACE, check, numbers, operators, parse, run

FUNCTIONS = """
<domain: "my", opset_import: ["": 21, "my": 1]>
twice <factor> (a) => (b) { s = Constant<value_float: float = @factor>()
 c = my.outer(a)
 b = Mul(c, s) }
<domain: "my", opset_import: ["": 21]>
outer (a) => (b) { t = Relu(a)
 b = Add(t, a) }
"""


def model(graph: str) -> ir.Model:
    parsed = parse(graph + FUNCTIONS, imports=', "my": 1')
    for function in parsed.functions.values():
        for node in function.all_nodes():
            node.metadata_props.pop(TRACE, None)
    return parsed


def test_nested_calls_are_inlined_with_attributes_and_the_callers_trace() -> None:
    graph = "g (float[3] x) => (float[3] y) { u = my.twice<factor=2.0>(x)\n y = my.twice<factor=3.0>(u) }"
    result = check(model(graph), InlineFunctionsPass(), inputs=[numbers(3)])
    assert operators(result) == ["Constant", "Relu", "Add", "Mul"] * 2
    assert not result.functions
    lines = [node.metadata_props[TRACE].split(",")[1] for node in result.graph]
    assert lines == [" line 1"] * 4 + [" line 2"] * 4


def test_calls_in_branches_are_inlined() -> None:
    graph = """g (bool c, float[3] x) => (float[3] y) {
 y = If (c) <then_branch = t () => (float[3] a) { a = my.twice<factor=2.0>(x) },
             else_branch = e () => (float[3] b) { b = Neg(x) }> }"""
    import numpy as np

    result = check(model(graph), InlineFunctionsPass(), inputs=[np.array(True), numbers(3)])
    assert [node.op_type for node in result.graph.all_nodes()].count("Relu") == 1


def test_a_function_of_another_operator_set_is_converted_with_the_model() -> None:
    text = """g (float[2,3] x) => (float[2,1] y) { y = my.total(x) }
<domain: "my", opset_import: ["": 11]>
total (a) => (b) { b = ReduceSum<axes=[1], keepdims=1>(a) }"""
    parsed = parse(text, imports=', "my": 1')
    InlineFunctionsPass()(parsed)
    LiftConstantsPass()(parsed)
    assert ConvertOpsetPass(21)(parsed).modified
    x = numbers(2, 3)
    assert abs(run(parsed, [x])[0] - x.sum(1, keepdims=True)).max() < 1e-6


def test_custom_operators_without_a_body_stay() -> None:
    parsed = parse("g (float[3] x) => (float[3] y) { y = other.Op(x) }", imports=', "other": 1')
    assert not InlineFunctionsPass()(parsed).modified
    assert operators(parsed) == ["Op"]


def test_only_nodes_of_the_domain_carry_the_version_of_their_function() -> None:
    text = """g (float[2,3] x) => (float[2,1] y) { y = my.total(x) }
<domain: "my", opset_import: ["": 11, "other": 2, "new": 3]>
total (a) => (b) { c = other.Op(a)
 d = new.Op(c)
 e = Abs(d)
 b = ReduceSum<axes=[1], keepdims=1>(e) }"""
    parsed = parse(text, imports=', "my": 1, "other": 2')
    next(iter(parsed.functions.values()))[2].version = 9
    assert InlineFunctionsPass()(parsed).modified
    versions = {f"{node.domain}.{node.op_type}": node.version for node in parsed.graph}
    assert versions == {"other.Op": None, "new.Op": None, ".Abs": 9, ".ReduceSum": 11}
    assert parsed.graph.opset_imports["new"] == 3


def test_functions_that_nobody_calls_are_dropped() -> None:
    parsed = model("g (float[3] x) => (float[3] y) { y = Neg(x) }")
    InlineFunctionsPass()(parsed)
    assert not parsed.functions
    assert operators(parsed) == ["Neg"]


def test_a_call_that_passes_a_graph_stays_and_others_are_inlined() -> None:
    parsed = model("""g (bool c, float[3] x) => (float[3] y) {
 u = my.outer(x)
 v = my.twice<factor=2.0>(u)
 y = If (c) <then_branch = t () => (float[3] a) { a = Neg(v) },
             else_branch = e () => (float[3] b) { b = Abs(v) }> }""")
    branch = next(iter(parsed.graph.subgraphs()))
    call = parsed.graph[0]
    call.attributes["body"] = ir.AttrGraph("body", ir.Graph([], [], nodes=[], name="empty"))
    InlineFunctionsPass()(parsed)
    # ``twice`` calls ``outer`` too, as it calls it everywhere then
    assert operators(parsed) == ["outer", "Constant", "outer", "Mul", "If"]
    assert [function.name for function in parsed.functions.values()] == ["outer"]
    assert branch[0].op_type == "Neg"
