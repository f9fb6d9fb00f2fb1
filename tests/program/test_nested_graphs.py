"""Graphs within graphs take steps in proportion to their number, however deep they lie."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import onnx
import onnx.parser
import onnx_ir as ir
import pytest

import samba_onnx
from samba_onnx.pef.manifest import Cause, Direction, Graph, Section, Transfer
from samba_onnx.pef.schedule_checks import _Places
from samba_onnx.program.dataflow import each_node, graphs_of, subgraphs
from tests.call_counts import calls_of


def nested(depth: int) -> ir.Graph:
    """One If within another, with a node beside each."""
    graph = ir.Graph([], [], nodes=[ir.node("Neg", [])], name="0")
    for level in range(1, depth + 1):
        branches = {"then_branch": graph, "else_branch": ir.Graph([], [], nodes=[], name=f"e{level}")}  # fmt: skip
        nodes = [ir.node("Abs", []), ir.node("If", [], attributes=branches), ir.node("Relu", [])]
        graph = ir.Graph([], [], nodes=nodes, name=str(level))
    return graph


@pytest.mark.parametrize("walk", [graphs_of, each_node])
def test_depth_adds_no_steps_to_each_graph(walk: Callable[[ir.Graph], Iterator[object]]) -> None:
    shallow, deep = (calls_of(lambda n=n: list(walk(nested_of[n]))).total() for n in (20, 200))  # type: ignore[misc]
    # Ten times as many graphs; with a step per level it would be a hundred times.
    assert deep < 12 * shallow


nested_of = {n: nested(n) for n in (3, 20, 200)}


def test_the_order_is_that_of_the_text() -> None:
    assert [each.name for each in graphs_of(nested_of[3])] == ["3", "2", "1", "0", "e1", "e2", "e3"]
    operators = [node.op_type for node in each_node(nested_of[3])]
    assert operators == ["Abs", "If"] * 3 + ["Neg"] + ["Relu"] * 3


def test_more_graphs_than_functions_may_call_each_other() -> None:
    graph = nested(3 * sys.getrecursionlimit())
    assert sum(1 for _ in graphs_of(graph)) == 6 * sys.getrecursionlimit() + 1
    assert sum(1 for _ in each_node(graph)) == 9 * sys.getrecursionlimit() + 1
    # Not left to the garbage collector's recursion.
    while any(inner := [each for node in graph for each in subgraphs(node)]):
        graph = inner[0]


def test_nodes_that_are_added_behind_are_seen() -> None:
    graph = nested(1)
    seen = []
    for node in each_node(graph):
        seen.append(node.op_type)
        if node.op_type == "Neg":
            graph.append(ir.node("Exp", []))
    assert seen == ["Abs", "If", "Neg", "Relu", "Exp"]


class Counted(tuple[str, ...]):
    """Names that are not searched one after the other."""

    searches = 0

    def __contains__(self, name: object) -> bool:
        Counted.searches += 1
        return super().__contains__(name)


def test_transfers_of_many_values_search_no_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Counted(f"o{number}" for number in range(50))
    section: Any = object.__new__(Section)
    graph: Any = object.__new__(Graph)
    call: Any = type("Call", (), {"stage": 0})()
    for record, values in (
        (section, {"id": 0, "inputs": names, "outputs": names}),
        (graph, {"inputs": names, "outputs": names, "calls": (call,)}),
    ):
        for key, value in values.items():
            object.__setattr__(record, key, value)
    places = _Places(graph, {0: section})
    for name in names:
        output = Transfer(name, 4, Direction.RDU_TO_HOST, Cause.OUTPUT, 0.0, 0)
        assert places.explain(output, is_resident=False)
        assert not places.explain(Transfer("q", 4, Direction.RDU_TO_HOST, Cause.OUTPUT, 0.0, 0), is_resident=False)  # fmt: skip
    assert Counted.searches == 0


def split(outputs: int) -> onnx.ModelProto:
    names = ", ".join(f"float[1] o{number}" for number in range(outputs))
    bare = ", ".join(f"o{number}" for number in range(outputs))
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> g (float[{outputs}] x) => ({names}) '
        f"{{ {bare} = Split <num_outputs = {outputs}> (x) }}"
    )


def branches(depth: int) -> onnx.ModelProto:
    """Each If has the next one in a branch."""
    body = "t0 = Neg(x)"
    for level in range(1, depth + 1):
        inner = f"then_branch = a{level} () => (float[2] t{level - 1}) {{ {body} }}"
        other = f"else_branch = b{level} () => (float[2] e{level}) {{ e{level} = Abs(x) }}"
        body = f"t{level} = If <{inner}, {other}> (c)"
    return onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> '
        f"g (float[2] x, bool c) => (float[2] t{depth}) {{ {body} }}"
    )


@pytest.mark.parametrize(("build", "sizes"), [(split, (50, 100, 200)), (branches, (5, 10, 20))])
def test_a_model_is_planned_in_steps_in_proportion_to_its_size(
    build: Callable[[int], onnx.ModelProto], sizes: tuple[int, int, int]
) -> None:
    models = [build(size) for size in sizes]
    for model in models:
        samba_onnx.analyze(model)  # what is kept for later calls
    small, middle, large = (calls_of(lambda m=m: samba_onnx.analyze(m)).total() for m in models)  # type: ignore[misc]
    # What is added doubles with what is added to the size; it would be four times as much if it grew with the square.
    assert large - middle < 2.4 * (middle - small)
