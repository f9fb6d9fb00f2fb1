from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samba_onnx.errors import UsageError
from samba_onnx.facts.domains import ALL_REDUCE, SAMBA_DOMAIN
from samba_onnx.passes.planning.fusion.patterns import (
    FusionRule,
    FusionRules,
    Pattern,
    PatternEntry,
)
from samba_onnx.passes.planning.partitioning import Group, Home
from samba_onnx.passes.planning.sectioning import cut, sram_bytes
from samba_onnx.program.dataflow import in_order, is_weight
from tests.passes.planning.plan_samples import operators, parse, target
from tests.passes.planning.random_graphs import Case, cases, chains, needs

CHAIN = """g (float[4] x) => (float[4] y) <float[4] w = {1, 2, 3, 4}> {
    float_a = Add (x, w)
    float_b = Relu (float_a)
    float_c = Mul (float_b, w)
    y = Relu (float_c)
}"""


def size(value: ir.Value) -> int:
    return 4 * int(value.shape[0])  # type: ignore[index, arg-type]


def needed(nodes: Sequence[ir.Node]) -> int:
    """Return the on-chip bytes of a section from the definition, one step of time after another."""
    touched = [[*needs(node), *node.outputs] for node in nodes]
    values = {value for step in touched for value in step}
    span = {v: [i for i, step in enumerate(touched) if v in step] for v in values}
    live = [
        sum(size(v) for v, at in span.items() if not is_weight(v) and at[0] <= time <= at[-1])
        for time in range(len(nodes))
    ]
    return sum(size(v) for v in values if is_weight(v)) + max(live)


def kept(pieces: Sequence[Sequence[ir.Node]]) -> int:
    """Return the bytes that cross the cuts between sections, by looking at every cut."""
    nodes = [node for piece in pieces for node in piece]
    total = 0
    for end in itertools.accumulate(len(piece) for piece in pieces[:-1]):
        later = {value for node in nodes[end:] for value in needs(node)}
        total += sum(size(v) for node in nodes[:end] for v in node.outputs if v in later)
    return total


def best(nodes: Sequence[ir.Node], capacity: int) -> tuple[int, int]:
    """Return the fewest sections and then the fewest bytes kept, over all ways to cut an order."""
    found = []
    for cuts in itertools.product([False, True], repeat=len(nodes) - 1):
        ends = [i + 1 for i, here in enumerate(cuts) if here]
        pieces = [nodes[a:b] for a, b in zip([0, *ends], [*ends, len(nodes)], strict=True)]
        if all(len(piece) == 1 or needed(piece) <= capacity for piece in pieces):
            found.append((len(pieces), kept(pieces)))
    return min(found)


@settings(max_examples=80, deadline=None)
@given(st.one_of(cases(most=7), chains()), st.floats(0.2, 1))
def test_fewest_sections_then_fewest_bytes_kept(case: Case, share: float) -> None:
    nodes = tuple(case.model.graph)
    if not nodes:
        return
    capacity = max(4, int(share * needed(nodes)))
    groups = cut([Group(Home.RDU, nodes)], target(sram=capacity), "o3")
    pieces = [group.nodes for group in groups]
    order = [node for piece in pieces for node in piece]
    assert sorted(map(id, order)) == sorted(map(id, nodes))
    assert in_order(order)
    assert all(len(piece) == 1 or needed(piece) <= capacity for piece in pieces)
    assert (len(pieces), kept(pieces)) == best(order, capacity)
    assert (len(pieces), kept(pieces)) <= best(nodes, capacity)


@settings(max_examples=100, deadline=None)
@given(cases(most=12))
def test_on_chip_bytes_follow_from_the_definition(case: Case) -> None:
    nodes = tuple(case.model.graph)
    assert sram_bytes(nodes, target()) == (needed(nodes) if nodes else 0)


def whole(text: str) -> list[Group]:
    model = parse(text)
    for node in model.graph:
        for value in node.outputs:
            value.dtype = value.dtype or ir.DataType.FLOAT
            value.shape = value.shape or ir.Shape([4])
    return [Group(Home.RDU, tuple(model.graph))]


def test_o0_makes_every_operator_a_section() -> None:
    groups = cut(whole(CHAIN), target(), "o0")
    assert operators(groups) == [("rdu", [name]) for name in ("Add", "Relu", "Mul", "Relu")]


def test_o3_makes_one_section_of_what_fits() -> None:
    # 16 bytes of weights, and two values of 16 bytes are live at each step.
    groups = whole(CHAIN)
    assert cut(groups, target(sram=48), "o3") == tuple(groups)
    assert len(cut(groups, target(sram=47), "o3")) == 4


def test_cpu_groups_stay_as_they_are() -> None:
    (group,) = whole(CHAIN)
    host = Group(Home.CPU, group.nodes)
    for level in ("o0", "o3"):
        (same,) = cut([host], target(sram=1), level)
        assert same is host


def test_an_operator_larger_than_the_chip_is_alone() -> None:
    groups = whole("""g (float[4] x) => (float[4] y) <float[4] w = {1, 2, 3, 4}> {
        a = Relu (x)
        b = Relu (a)
        c = Add (b, w)
        d = Relu (c)
        y = Relu (d)
    }""")
    pieces = cut(groups, target(sram=32), "o3")
    assert operators(pieces) == [
        ("rdu", ["Relu", "Relu"]),
        ("rdu", ["Add"]),
        ("rdu", ["Relu", "Relu"]),
    ]
    assert sram_bytes(pieces[1].nodes, target()) == 48


def test_parts_without_a_connection_share_a_section() -> None:
    groups = whole("""g (float[4] x, float[4] z) => (float[4] y, float[4] u) {
        y = Relu (x)
        u = Neg (z)
    }""")
    assert cut(groups, target(), "o3") == tuple(groups)


@pytest.mark.parametrize("start", ["x", "s"], ids=["of an input", "of a shared value"])
def test_a_better_order_is_found_where_the_models_keeps_too_much(start: str) -> None:
    # Level by level, four values wait; branch by branch, only the results of branches do.
    branches = "\n".join(f"a{i} = Exp ({start})" for i in range(4))
    ends = "\n".join(f"b{i} = Relu (a{i})" for i in range(4))
    groups = whole(f"""g (float[4] x) => (float[4] y) {{
        s = Neg (x)
        {branches}
        {ends}
        y = Sum (s, b0, b1, b2, b3)
    }}""")
    nodes = groups[0].nodes
    for node in nodes:
        if node.op_type == "Exp":
            node.outputs[0].shape = ir.Shape([64])
    capacity = 64 * 4 + 4 * 16 + 16
    pieces = [group.nodes for group in cut(groups, target(sram=capacity), "o3")]
    order = [node for piece in pieces for node in piece]
    assert sorted(map(id, order)) == sorted(map(id, nodes))
    assert (len(pieces), kept(pieces)) < best(nodes, capacity)


def test_the_models_own_order_is_kept_where_another_is_no_better() -> None:
    groups = whole("""g (float[4] x) => (float[4] y) {
        b = Neg (x)
        a = Relu (x)
        y = Add (a, b)
    }""")
    pieces = cut(groups, target(sram=47), "o3")
    assert len(pieces) > 1
    assert [node for piece in pieces for node in piece.nodes] == list(groups[0].nodes)


def test_a_late_cut_is_as_good_as_an_early_one() -> None:
    # Of 12 nodes at most 10 fit into a section: there are 9 places for a cut, the last the smallest.
    adds = "\n".join(f"v{i + 1} = Add (v{i}, w{i})" for i in range(12))
    weights = ", ".join(f"float[4] w{i} = {{1, 2, 3, 4}}" for i in range(12))
    groups = whole(f"g (float[4] v0) => (float[4] v12) <{weights}> {{ {adds} }}")
    for node in groups[0].nodes:
        node.outputs[0].shape = ir.Shape([7 if node.outputs[0].name == "v10" else 8])
    pieces = cut(groups, target(sram=10 * 16 + 64), "o3")
    assert [len(piece.nodes) for piece in pieces] == [10, 2]


def test_every_place_for_a_cut_is_compared() -> None:
    # Of 5 nodes at most 2 fit into a section: the first cut is after one node or two, the second
    # after three or four. The values behind two and four are the smallest.
    adds = "\n".join(f"v{i + 1} = Add (v{i}, w{i})" for i in range(5))
    weights = ", ".join(f"float[4] w{i} = {{1, 2, 3, 4}}" for i in range(5))
    groups = whole(f"g (float[4] v0) => (float[4] v5) <{weights}> {{ {adds} }}")
    for node in groups[0].nodes:
        node.outputs[0].shape = ir.Shape([7 if node.outputs[0].name in ("v2", "v4") else 8])
    pieces = cut(groups, target(sram=2 * 16 + 64), "o3")
    assert [len(piece.nodes) for piece in pieces] == [2, 2, 1]


def test_what_waits_beside_a_large_value_still_counts_without_the_first_node() -> None:
    # At Exp, 64 elements are live, its result, and what is read on both sides of it: s and v,
    # which do not both fit. Without Neg, which writes s, v is still there.
    groups = whole("""g (float[4] x, float[4] z, float[64] big) => (float[4] y) {
        s = Neg (x)
        v = Abs (z)
        b = Exp (big)
        u = Relu (s)
        y = Sum (u, b, v)
    }""")
    capacity = 4 * 64 + 16 + 15
    pieces = cut(groups, target(sram=capacity), "o3")
    assert [len(piece.nodes) for piece in pieces] == [2, 3]
    assert all(needed(piece.nodes) <= capacity for piece in pieces)


def test_operands_baked_into_a_section_need_no_memory() -> None:
    (group,) = whole("""g (float[4] x) => (float[2, 2] y) <int64[2] s = {2, 2}> {
        y = Reshape (x, s)
    }""")
    assert sram_bytes(group.nodes, target()) == 32


def test_a_weight_read_twice_lies_on_the_chip_once() -> None:
    groups: Any = whole(CHAIN)
    assert sram_bytes(groups[0].nodes, target()) == 16 + 32


def test_unknown_level() -> None:
    with pytest.raises(UsageError, match="'o2': expected one of o0, o1, o3"):
        cut([], target(), "o2")


def test_a_rule_may_ask_for_a_neighbour_on_the_cpu() -> None:
    model = parse("g (float[4] x) => (float[4] y) { a = Relu (x) b = Neg (a) y = Cos (b) }")
    *on_rdu, cos = model.graph
    pattern = Pattern(
        {
            "relu": PatternEntry(("Relu",), ("neg",)),
            "neg": PatternEntry(("Neg",), ("cos",)),
            "cos": PatternEntry(("Cos",), included=False),
        }
    )
    rules = FusionRules((FusionRule("before cos", 1, (pattern,)),))
    groups = [Group(home=Home.RDU, nodes=tuple(on_rdu)), Group(home=Home.CPU, nodes=(cos,))]
    pieces = cut(groups, target(), "o1", rules)
    assert operators(pieces) == [("rdu", ["Relu", "Neg"]), ("cpu", ["Cos"])]
    assert [piece.rule for piece in pieces] == ["before cos", ""]
    # Without it, they are no such place.
    assert len(cut(groups[:1], target(), "o1", rules)) == 2


@pytest.mark.parametrize("level", ["o1", "o3"])
def test_an_exchange_between_rdus_is_a_section_of_its_own(level: str) -> None:
    model = parse(
        """g (float[4] x) => (float[4] y) {
        a = Relu (x)
        b = Neg (a)
        c = Identity (b)
        d = Identity (c)
        e = Relu (d)
        y = Neg (e)
    }"""
    )
    nodes = list(model.graph)
    for node in nodes[2:4]:
        node.domain = SAMBA_DOMAIN
        node.op_type = ALL_REDUCE
    entry = PatternEntry
    pairs = [
        Pattern({"a": entry((one,), ("b",)), "b": entry((other,))})
        for one, other in (("Relu", "Neg"),)
    ]
    rules = FusionRules((FusionRule("pair", 1, tuple(pairs)),))
    pieces = cut([Group(home=Home.RDU, nodes=tuple(nodes))], target(sram=1 << 20), level, rules)
    assert [len(piece.nodes) for piece in pieces] == [2, 1, 1, 2]
    assert [piece.rule for piece in pieces] == (
        ["pair", "", "", "pair"] if level == "o1" else [""] * 4
    )
