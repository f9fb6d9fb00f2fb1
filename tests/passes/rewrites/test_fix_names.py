from __future__ import annotations

import numpy as np
import onnx_ir as ir

from samba_onnx.passes.rewrites.fix_names import FixNamesPass
from tests.passes.rewrites.applying import check, numbers, parse

GRAPH = """g (bool c, float[2] x) => (float[2] y) {
 r = Relu(x)
 m, i = TopK(r, k)
 y = If (c) <then_branch = t () => (float[2] a) { h = Neg(r)
 a = Abs(h) }, else_branch = e () => (float[2] a) { h = Exp(r)
 a = Abs(h) }> }""".replace(" {\n r", " <int64[1] k = {1}> {\n r", 1)


def test_names_are_unique_over_graph_and_branches() -> None:
    model = parse(GRAPH)
    for node in model.graph:
        node.name = "same"
    model.graph[1].outputs[0].name = "x"
    model.graph.outputs[0].name = "y"
    before = parse(GRAPH)
    FixNamesPass()(model)
    values = [v.name for n in model.graph.all_nodes() for v in n.outputs]
    values += [v.name for v in model.graph.inputs]
    assert len(values) == len(set(values)) == 10
    names = [node.name for node in model.graph.all_nodes()]
    assert len(names) == len(set(names))
    assert all(names)
    assert [v.name for v in (*model.graph.inputs, *model.graph.outputs)] == ["c", "x", "y"]
    check(before, FixNamesPass(), inputs=[np.array(True), numbers(2)])
    assert not FixNamesPass()(before).modified


def test_names_that_are_unique_stay_and_omitted_outputs_get_none() -> None:
    model = parse("g (float[2,3,4] x, float[1,8,4] w, float[1,8,2] r) => (float[1,3,2] h) { _, h = LSTM<hidden_size=2>(x, w, r) }".replace("_, h", '"", h'))  # fmt: skip
    FixNamesPass()(model)
    assert [value.name for value in model.graph[0].outputs] == ["", "h"]


def test_a_name_for_a_value_is_a_change_and_so_is_one_for_a_node() -> None:
    model = parse("g (float[2] x) => (float[2] y) { a = Relu(x)\n y = Exp(a) }")
    FixNamesPass()(model)
    assert not FixNamesPass()(model).modified
    model.graph[0].outputs[0].name = ""
    assert FixNamesPass()(model).modified
    model.graph[0].name = None
    assert FixNamesPass()(model).modified


def names(model: ir.Model) -> tuple[list[str | None], list[str | None]]:
    """Return the names of nodes, and of values other than the main graph's inputs and outputs."""
    nodes = list(model.graph.all_nodes())
    return [node.name for node in nodes], [v.name for node in nodes for v in node.outputs]


def test_what_has_no_name_is_named_after_its_operator() -> None:
    model = parse("g (float[2] x) => (float[2] y) { a = Relu(x)\n b = Relu(a)\n y = Add(b, x) }")
    for node in model.graph:
        node.name = None
    for node in list(model.graph)[:2]:
        node.outputs[0].name = ""
    model.graph.register_initializer(ir.Value(name="w", const_value=ir.tensor([1.0])))
    FixNamesPass()(model)
    assert names(model) == (["Relu", "Relu_1", "Add"], ["Relu_output", "Relu_output_1", "y"])
    assert model.graph.initializers["w"].name == "w"


def test_the_first_to_have_a_name_keeps_it_and_so_do_inputs_and_outputs() -> None:
    model = parse("g (float[2] x) => (float[2] y) { a = Relu(x)\n b = Neg(a)\n c = Abs(b)\n y = Add(c, a) }")  # fmt: skip
    for node, name, value in zip(model.graph, "nnmo", ("a", "a", "y", "y"), strict=True):
        node.name, node.outputs[0].name = name, value
    assert FixNamesPass()(model).modified
    assert names(model) == (["n", "n_1", "m", "o"], ["a", "a_1", "y_1", "y"])


def test_names_of_branches_initializers_and_inputs_count() -> None:
    model = parse("""g (bool c, float[2] x) => (float[2] y) {
 r = Relu(x)
 y = If (c) <then_branch = t () => (float[2] a) { a = Neg(r) },
             else_branch = e () => (float[2] b) <float[2] w = {1.0, 2.0}> { b = Abs(w) }> }""")
    branch, other = model.graph.subgraphs()
    other.initializers["w"].name = "r"
    branch[0].outputs[0].name = "x"
    FixNamesPass()(model)
    assert (other.initializers["r_1"].name, branch[0].outputs[0].name) == ("r_1", "x_1")


def test_what_nobody_computes_and_has_no_name_is_a_value() -> None:
    model = parse("""g (int64 n, bool c, float[2] x) => (float[2] y) {
 y = Loop (n, c, x) <body = b (int64 i, bool d, float[2] a) => (bool e, float[2] o) { e = Identity(d)
 o = Neg(a) }> }""")
    (body,) = model.graph.subgraphs()
    body.inputs[0].name = None
    FixNamesPass()(model)
    assert [value.name for value in body.inputs] == ["value", "d", "a"]
