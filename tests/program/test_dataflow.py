from __future__ import annotations

import onnx_ir as ir

from samba_onnx.program.dataflow import (
    Dataflow,
    dimensions,
    each_node,
    graphs_of,
    implicit_inputs,
    in_order,
    is_weight,
    name_of,
    reads,
)
from tests.passes.planning.plan_samples import parse

NESTED = """g (float[2] x, bool c, float[2] unused) => (float[2] y)
<float[2] w = {1, 2}, float[2] both = {3, 4}>
{
    a = Relu (x)
    y = If (c) <
        then_branch = t () => (float[2] o) <float[2] own = {5, 6}> {
            p = Add (a, own)
            q = If (c) <
                then_branch = tt () => (float[2] oo) { oo = Add (p, w) },
                else_branch = te () => (float[2] oe) { oe = Sub (p, x) }
            >
            o = Add (q, q)
        },
        else_branch = e () => (float[2] o2) { o2 = Mul (both, a) }
    >
}"""


def names(values: tuple[ir.Value, ...]) -> list[str | None]:
    return [value.name for value in values]


def test_bodies_read_outer_values_at_any_depth() -> None:
    relu, branch = parse(NESTED).graph
    # The outer If's branches first, then the graphs inside them; "p" and "own" are their own.
    assert names(implicit_inputs(branch)) == ["a", "c", "w", "x", "both"]
    assert implicit_inputs(relu) == ()


def test_operands_come_before_what_bodies_read_and_each_once() -> None:
    relu, branch = parse(NESTED).graph
    assert names(reads(branch)) == ["c", "a", "w", "x", "both"]
    assert names(reads(relu)) == ["x"]


def test_omitted_operands_are_not_read() -> None:
    (clip,) = parse("g (float[2] x, float h) => (float[2] y) { y = Clip (x, , h) }").graph
    assert names(reads(clip)) == ["x", "h"]


def test_a_body_may_return_an_outer_value() -> None:
    model = parse(NESTED)
    relu, branch = model.graph
    body = next(iter(branch.attributes.values())).as_graph()
    body.outputs[0] = relu.outputs[0]
    assert names(implicit_inputs(branch))[:1] == ["a"]


def test_a_loop_does_not_read_its_own_state() -> None:
    (loop,) = parse("""g (int64 n, bool c, float[2] x, float[2] k) => (float[2] y) {
        y = Loop (n, c, x) <body = b (int64 i, bool go, float[2] s) => (bool on, float[2] next) {
            on = Identity (go)
            next = Add (s, k)
        }>
    }""").graph
    assert names(reads(loop)) == ["n", "c", "x", "k"]


def test_dependencies_count_bodies() -> None:
    flow = Dataflow.of(parse(NESTED).graph)
    assert flow.predecessors(1) == [0]
    assert flow.successors(0) == [1]
    assert in_order(flow.nodes)
    assert not in_order(flow.nodes[::-1])


def test_an_initializer_that_is_an_input_is_no_weight() -> None:
    model = parse("""g (float[2] x, float[2] w) => (float[2] y)
        <float[2] w = {1, 2}, float[2] v = {1, 2}>
        { a = Add (x, w) y = Add (a, v) }""")
    found = {value.name: is_weight(value) for node in model.graph for value in reads(node)}
    assert found == {"x": False, "w": False, "a": False, "v": True}


def test_dimensions_by_size_name_or_neither() -> None:
    model = parse("""g (float[2, n, ?] x, float r, float[] u, seq(float[3]) s) => (float y) {
        y = Relu (r)
    }""")
    assert [dimensions(value) for value in model.graph.inputs] == [(2, "n", None), (), None, None]


def test_what_has_no_name_has_an_empty_one() -> None:
    (node,) = parse("g (float[2] x) => (float[2] y) { y = Relu (x) }").graph
    assert (name_of(node.outputs[0]), name_of(node)) == ("y", "")
    assert name_of(ir.Value()) == ""


def test_nodes_and_graphs_are_those_that_onnx_ir_finds() -> None:
    graph = parse(NESTED).graph
    assert list(each_node(graph)) == list(graph.all_nodes())
    assert list(graphs_of(graph)) == [graph, *graph.subgraphs()]
    assert len(list(graphs_of(graph))) > 2
