from __future__ import annotations

import cProfile
import functools
import itertools
import pstats
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samba_onnx.passes.planning import partitioning
from samba_onnx.passes.planning.partitioning import Home, group, partition
from samba_onnx.program.dataflow import Dataflow
from tests.passes.planning.plan_samples import operators, parse, placement
from tests.passes.planning.random_graphs import Case, cases, needs, switching_cases


def fewest_groups(case: Case) -> int:
    """Return the fewest runs of one home over all topological orders, by looking at them all."""
    nodes = list(case.model.graph)
    position = {value: i for i, node in enumerate(nodes) for value in node.outputs}
    before = [{position[v] for v in needs(node) if v in position} for node in nodes]
    on_cpu = [node in case.cpu for node in nodes]

    @functools.cache
    def rest(done: frozenset[int], last: bool | None) -> int:
        ready = [i for i in range(len(nodes)) if i not in done and before[i] <= done]
        return min(
            (rest(done | {i}, on_cpu[i]) + (on_cpu[i] is not last) for i in ready), default=0
        )

    return rest(frozenset(), None)


@settings(max_examples=120, deadline=None)
@given(cases())
def test_groups_are_an_order_of_execution_with_the_fewest_switches(case: Case) -> None:
    groups = partition(case.model, case.placement)
    nodes = [node for part in groups for node in part.nodes]
    assert sorted(map(id, nodes)) == sorted(map(id, case.model.graph))
    assert all(
        (node in case.cpu) is (part.home is Home.CPU) for part in groups for node in part.nodes
    )
    made = {value for node in nodes for value in node.outputs}
    for node in nodes:  # every operand is there before its reader: no cycle between groups
        assert not [value for value in needs(node) if value in made - _written(nodes, node)]
    assert all(a.home is not b.home for a, b in itertools.pairwise(groups))
    assert len(groups) == fewest_groups(case)


def _written(nodes: list[ir.Node], until: ir.Node) -> set[ir.Value]:
    return {value for node in nodes[: nodes.index(until)] for value in node.outputs}


@settings(max_examples=100, deadline=None)
@given(cases(most=30))
def test_the_order_within_a_group_is_the_models(case: Case) -> None:
    index = {node: i for i, node in enumerate(case.model.graph)}
    for part in partition(case.model, case.placement):
        assert [index[node] for node in part.nodes] == sorted(index[node] for node in part.nodes)


@dataclass(frozen=True)
class Spans:
    """The values that only the RDU reads: bytes, and the positions of their writer and readers."""

    rows: list[tuple[int, int, list[int]]]

    @classmethod
    def of(cls, case: Case) -> Spans:
        nodes = list(case.model.graph)
        read = [needs(node) for node in nodes]
        rows = []
        for writer, node in enumerate(nodes):
            for value in node.outputs:
                readers = [i for i, values in enumerate(read) if value in values]
                on_host = any(nodes[i] in case.cpu for i in (writer, *readers))
                if not (value.is_graph_output() or on_host):
                    rows.append((4 * int(value.shape[0]), writer, readers))  # type: ignore[index, arg-type]
        return cls(rows)

    def kept(self, phases: Sequence[int]) -> int:
        """Return bytes times the switches that they outlive."""
        return sum(
            size * (max((phases[i] for i in readers), default=phases[writer]) - phases[writer])
            for size, writer, readers in self.rows
        )


def least_kept_bytes(case: Case, groups: int) -> int:
    """Try every phase of every RDU node, the CPU nodes as early as possible."""
    nodes = list(case.model.graph)
    position = {value: i for i, node in enumerate(nodes) for value in node.outputs}
    edges = {(position[v], i) for i, n in enumerate(nodes) for v in needs(n) if v in position}
    on_cpu = [node in case.cpu for node in nodes]
    spans = Spans.of(case)
    best = 1 << 60
    for start in (False, True):
        early = [0 if cpu is start else 1 for cpu in on_cpu]
        for a, b in sorted(edges, key=lambda edge: edge[1]):  # so that early[a] is final
            early[b] = max(early[b], early[a] + (on_cpu[a] is not on_cpu[b]))
        if len(set(early)) > groups:
            continue
        choices = [
            (phase,) if cpu else range(phase, max(early) + 1, 2)
            for phase, cpu in zip(early, on_cpu, strict=True)
        ]
        for phases in itertools.product(*choices):
            if all(phases[b] >= phases[a] + (on_cpu[a] is not on_cpu[b]) for a, b in edges):
                best = min(best, spans.kept(phases))
    return best


@settings(max_examples=120, deadline=None)
@given(st.one_of(cases(most=7), switching_cases()))
def test_movable_nodes_go_where_the_fewest_bytes_are_kept(case: Case) -> None:
    groups = partition(case.model, case.placement)
    # Numbering groups from 0 or 1 counts the same switches.
    phase = {node: i for i, part in enumerate(groups) for node in part.nodes}
    if groups:
        kept = Spans.of(case).kept([phase[node] for node in case.model.graph])
        assert kept == least_kept_bytes(case, len(groups))


def test_start_on_the_side_that_needs_fewer_groups() -> None:
    model = parse("""g (float[4] x) => (float[4] y, float[4] z) {
        a = Cos (x)
        y = Relu (a)
        z = Relu (x)
    }""")
    assert operators(partition(model, placement(model))) == [
        ("cpu", ["Cos"]),
        ("rdu", ["Relu"] * 2),
    ]


def test_a_body_makes_its_node_wait_for_what_it_reads() -> None:
    model = parse("""g (float[4] x, bool c) => (float[4] y) {
        a = Relu (x)
        b = If (c) <
            then_branch = t () => (float[4] o) { o = Neg (a) },
            else_branch = e () => (float[4] p) { p = Identity (x) }
        >
        y = Relu (b)
    }""")
    groups = partition(model, placement(model, cpu=("If",)))
    assert operators(groups) == [("rdu", ["Relu"]), ("cpu", ["If"]), ("rdu", ["Relu"])]


@pytest.mark.parametrize(
    ("limit", "before", "after"),
    [(1, ["Relu"], ["Expand", "Add"]), (0, ["Relu", "Expand"], ["Add"])],
    ids=["moved", "as early as possible beyond the limit"],
)
def test_a_small_result_is_kept_rather_than_a_large_one(
    limit: int, before: list[str], after: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitioning, "CUT_LIMIT", limit)
    # "wide" has 64 times the bytes of "x": it is made after the switch, where it is needed.
    model = parse("""g (float[1] x) => (float[64] y) <int64[1] s = {64}> {
        small = Relu (x)
        wide = Expand (small, s)
        host = Cos (small)
        y = Add (wide, host)
    }""")
    model.graph[1].outputs[0].shape = ir.Shape([64])
    model.graph[1].outputs[0].dtype = ir.DataType.FLOAT
    groups = partition(model, placement(model))
    assert operators(groups) == [("rdu", before), ("cpu", ["Cos"]), ("rdu", after)]


def test_a_large_value_is_not_kept_for_a_small_result() -> None:
    model = parse("""g (float[64] x) => (float[1] y) {
        wide = Relu (x)
        most = ReduceMax (wide)
        least = ReduceMin (wide)
        host = Cos (most)
        y = Add (least, host)
    }""")
    for node, size in zip(model.graph, (64, 1, 1, 1, 1), strict=True):
        node.outputs[0].shape = ir.Shape([size])
        node.outputs[0].dtype = ir.DataType.FLOAT
    groups = partition(model, placement(model))
    assert operators(groups)[0] == ("rdu", ["Relu", "ReduceMax", "ReduceMin"])


def sized(text: str, sizes: dict[str, int]) -> ir.Model:
    """Return a model in which all values have 4 elements but those that are named."""
    model = parse(text)
    for node in model.graph:
        for value in node.outputs:
            value.shape = ir.Shape([sizes.get(str(value.name), 4)])
            value.dtype = ir.DataType.FLOAT
    return model


def test_of_two_sides_to_start_on_the_one_is_taken_that_keeps_fewer_bytes() -> None:
    # Three groups either way. If the RDU starts, it keeps "wide" until the host has made "host".
    model = sized(
        """g (float[4] x) => (float[4] y, float[4] u, float[64] z) {
            small, wide, tiny = Split (x)
            near = Neg (tiny)
            y = Cos (small)
            u = Cos (near)
            host = Cos (x)
            z = Add (wide, host)
        }""",
        {"wide": 64, "z": 64},
    )
    assert operators(partition(model, placement(model))) == [
        ("cpu", ["Cos"]),
        ("rdu", ["Split", "Neg", "Add"]),
        ("cpu", ["Cos", "Cos"]),
    ]


def test_what_a_large_value_is_made_of_is_kept_in_its_place() -> None:
    model = sized(
        """g (float[4] x) => (float[64] y) {
            small, seed = Split (x)
            wide = Concat (seed, seed)
            host = Cos (small)
            y = Add (wide, host)
        }""",
        {"wide": 64, "y": 64},
    )
    assert operators(partition(model, placement(model)))[0] == ("rdu", ["Split"])


def test_tensors_without_elements_cost_nothing_to_keep() -> None:
    # Both or their sum may be kept for nothing, and then nodes run as late as they can.
    model = sized(
        """g (float[4] x) => (float[4] y) {
            small, left, right = Split (x)
            both = Add (left, right)
            host = Cos (small)
            y = Concat (both, host)
        }""",
        {"left": 0, "right": 0, "both": 0},
    )
    assert operators(partition(model, placement(model)))[0] == ("rdu", ["Split"])


def test_no_nodes_no_groups() -> None:
    model = parse("g (float[4] x) => (float[4] x) {}")
    assert partition(model, placement(model)) == ()


def test_work_grows_with_the_graph_and_not_faster() -> None:
    def calls(count: int) -> int:
        kind = ir.TensorType(ir.DataType.FLOAT)
        values = [ir.Value(name="x", shape=ir.Shape([4]), type=kind)] * 3
        nodes = []
        generator = np.random.default_rng(0)
        for index in range(count):
            output = ir.Value(name=f"v{index}", shape=ir.Shape([4]), type=kind)
            nodes.append(ir.Node("", "Add", [values[-1], values[-3]], outputs=[output]))
            values.append(output)
        flow = Dataflow.of(nodes)
        homes = [Home.CPU if generator.random() < 0.05 else Home.RDU for _ in nodes]
        profile = cProfile.Profile()
        groups = profile.runcall(group, flow, homes)
        assert sum(len(part.nodes) for part in groups) == count
        return pstats.Stats(profile).total_calls  # type: ignore[attr-defined, no-any-return]

    # Ten times the nodes: quadratic work would be a hundred times as many calls.
    assert calls(2_000) < 20 * calls(200)
