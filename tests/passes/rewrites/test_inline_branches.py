from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.inline_branches import InlineBranchesPass
from tests.passes.rewrites.applying import TRACE, check, numbers, operators, parse

GRAPH = """g (float[2] x) => (float[2] y, float[2] z) <bool c = {%d}> {
 r = Relu(x)
 y, h = If (c) <then_branch = t () => (float[2] a, float[2] b) { a = Neg(r)
 b = Exp(a) }, else_branch = e () => (float[2] a, float[2] b) { a = Abs(r)
 b = Identity(x) }>
 z = Add(h, r) }"""


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        (1, ["Relu", "Neg", "Exp", "Identity", "Add"]),
        (0, ["Relu", "Abs", "Identity", "Identity", "Add"]),
    ],
)
def test_the_branch_that_is_taken_replaces_the_if(condition: int, found: list[str]) -> None:
    model = check(parse(GRAPH % condition), InlineBranchesPass(), inputs=[numbers(2)])
    assert sorted(operators(model)) == sorted(found)
    assert not model.graph.initializers["c"].uses(), "nothing reads the condition any more"


def test_unknown_conditions_stay() -> None:
    model = parse(
        (GRAPH % 0).replace("float[2] x)", "float[2] x, bool c)", 1).replace("<bool c = {0}>", "")
    )
    check(model, InlineBranchesPass(), inputs=[numbers(2), np.array(True)], modified=False)
    assert operators(model) == ["Relu", "If", "Add"]


def test_a_condition_is_one_element_of_any_rank() -> None:
    for shape, folds in (("[1]", True), ("[1,1]", True), ("[2]", False)):
        content = "1, 1" if shape == "[2]" else "1"
        model = parse((GRAPH % 1).replace("bool c = {1}", f"bool{shape} c = {{{content}}}"))
        assert InlineBranchesPass()(model).modified == folds


def test_branches_that_cannot_take_the_place_stay() -> None:
    changes = {
        "initializers of its own": lambda branch: branch.register_initializer(
            ir.Value(name="k", const_value=ir.tensor([1.0]))
        ),
        "another number of values": lambda branch: branch.outputs.pop(),
    }
    for reason, change in changes.items():
        model = parse(GRAPH % 1)
        node = model.graph[1]
        change(node.attributes["then_branch"].as_graph())
        rewrite = InlineBranchesPass()
        assert not rewrite(model).modified
        assert reason in rewrite.refusals.lines()[0]


def test_nodes_of_a_branch_have_the_trace_of_the_if_where_they_have_none() -> None:
    model = parse(GRAPH % 1)
    branch = model.graph[1].attributes["then_branch"].as_graph()
    del branch[0].metadata_props[TRACE]
    own, outer = branch[1].metadata_props[TRACE], model.graph[1].metadata_props[TRACE]
    InlineBranchesPass()(model)
    traces = {node.op_type: node.metadata_props[TRACE] for node in model.graph}
    assert (traces["Neg"], traces["Exp"]) == (outer, own)
