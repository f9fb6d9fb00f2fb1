"""Sections of o1 hold every node once, fit together without a circle, and never reach across a fallback."""

from __future__ import annotations

import itertools
from typing import Any

import networkx
import onnx_ir as ir
from hypothesis import given, settings
from hypothesis import strategies as st

from samba_onnx.passes.planning.fusion.convexity import BlockOrder
from samba_onnx.passes.planning.fusion.marks import convex_parts
from samba_onnx.passes.planning.fusion.patterns import (
    FusionRule,
    FusionRules,
    Pattern,
    PatternEntry,
)
from samba_onnx.passes.planning.partitioning import Home, partition
from samba_onnx.passes.planning.sectioning import cut
from samba_onnx.program.dataflow import Dataflow, in_order
from tests.passes.planning.plan_samples import parse, target
from tests.passes.planning.random_graphs import Case, cases

PAIRS = FusionRules(
    (
        FusionRule("three", 2, (Pattern({
            "a": PatternEntry(("x::Op",), ("b", "c")), "b": PatternEntry(("x::Op",)), "c": PatternEntry(("x::Op",)),
        }),)),
        FusionRule("two", 1, (Pattern({"a": PatternEntry(("x::Op",), ("b",)), "b": PatternEntry(("x::Op",))}),)),
    )
)  # fmt: skip


def _acyclic(flow: Dataflow, blocks: list[tuple[int, ...]]) -> bool:
    """Return whether blocks wait for each other without a circle, by looking at all of them."""
    owner = {position: index for index, block in enumerate(blocks) for position in block}
    graph: Any = networkx.DiGraph()
    graph.add_nodes_from(range(len(blocks)))
    for position, block in owner.items():
        graph.add_edges_from((block, owner[p]) for p in flow.successors(position))
    graph.remove_edges_from(list(networkx.selfloop_edges(graph)))
    return networkx.is_directed_acyclic_graph(graph)


def _most_returns(flow: Dataflow, inside: set[int]) -> int:
    """Return how many parts marked nodes need: one, and one more for each return to them on one way."""
    graph: Any = networkx.DiGraph()
    for position in range(len(flow.nodes)):
        graph.add_node(position)
        graph.add_edges_from((position, p) for p in flow.successors(position))
    ways = [
        way
        for first, last in itertools.combinations_with_replacement(sorted(inside), 2)
        for way in ([[first]] if first == last else networkx.all_simple_paths(graph, first, last))
    ]
    stays = ([is_in for is_in, _ in itertools.groupby(p in inside for p in way)] for way in ways)
    return max((sum(runs) for runs in stays), default=0)


@given(cases(most=10))
@settings(max_examples=60, deadline=None)
def test_sections_of_random_graphs(case: Case) -> None:
    for node in case.model.graph:
        node.domain = "x"
    before = partition(case.model, case.placement)
    after = cut(before, target(), "o1", PAIRS)
    assert in_order([node for group in after for node in group.nodes])
    for home in Home:
        one, other = (
            [node for group in groups if group.home is home for node in group.nodes]
            for groups in (before, after)
        )
        assert sorted(map(id, one)) == sorted(map(id, other))
    whole = [group for group in before if group.home is Home.RDU]
    for group in after:
        if group.home is Home.RDU:
            assert any(set(group.nodes) <= set(each.nodes) for each in whole)
            assert bool(group.rule) == (len(group.nodes) > 1)
    again = cut(before, target(), "o1", PAIRS)
    assert [g.nodes for g in again] == [g.nodes for g in after]


@given(cases(most=9), st.data())
@settings(max_examples=80, deadline=None)
def test_blocks_join_exactly_where_no_circle_comes_of_it(case: Case, data: Any) -> None:
    flow = Dataflow.of(case.model.graph)
    order = BlockOrder(flow)
    for _ in range(4):
        if not flow.nodes:
            return
        chosen = data.draw(st.sets(st.integers(0, len(flow.nodes) - 1), min_size=1, max_size=4))
        blocks = list(order.blocks())
        joined = sorted({p for block in blocks if chosen & set(block) for p in block})
        others = [block for block in blocks if not chosen & set(block)]
        possible = _acyclic(flow, [*others, tuple(joined)])
        assert order.join(sorted(chosen)) == possible
        after = list(order.blocks())
        assert sorted(itertools.chain.from_iterable(after)) == list(range(len(flow.nodes)))
        assert (tuple(joined) in after) == (possible or tuple(joined) in blocks)
        nodes: list[ir.Node] = [flow.nodes[p] for block in after for p in block]
        assert in_order(nodes)


@given(cases(most=9), st.data())
@settings(max_examples=60, deadline=None)
def test_marked_nodes_fall_into_parts_that_can_be_sections(case: Case, data: Any) -> None:
    flow = Dataflow.of(case.model.graph)
    count = len(flow.nodes)
    chosen = sorted(data.draw(st.sets(st.integers(0, count - 1)))) if count else []
    parts = convex_parts(flow, chosen)
    assert sorted(itertools.chain.from_iterable(parts)) == chosen
    others = [(p,) for p in range(count) if p not in chosen]
    assert _acyclic(flow, [*others, *map(tuple, parts)])
    order = BlockOrder(flow)
    assert all(order.join(part) for part in parts)
    assert len(parts) == _most_returns(flow, set(chosen))


def test_marked_nodes_that_read_what_others_compute_are_one_part() -> None:
    """What comes from outside, however long its way was, is no way that leads out and back in."""
    text = "g (float[4] x) => (y) { a = Abs(x) b = Neg(a) c = Exp(b) m = Abs(x) n = Mul(m, c) y = Add(n, b) }"
    flow = Dataflow.of(parse(text).graph)
    assert convex_parts(flow, [3, 4, 5]) == [[3, 4, 5]]
    assert convex_parts(flow, [0, 3, 4, 5]) == [[0, 3], [4, 5]]


def test_the_first_block_is_not_lost_where_it_does_not_stand_first() -> None:
    flow = Dataflow.of(
        parse(
            "g (float[4] x) => (y) { a = Abs(x) b = Abs(x) c = Abs(x) d = Abs(x) y = Abs(x) }"
        ).graph
    )
    order = BlockOrder(flow)
    assert order.join([0, 2])
    assert order.join([1, 4])
    assert sorted(order.blocks()) == [(0, 2), (1, 4), (3,)]
