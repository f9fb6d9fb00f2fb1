"""What holds for the plan of any graph, tested on random ones."""

from __future__ import annotations

import dataclasses
from typing import Any

import onnx_ir as ir
from hypothesis import given, settings
from hypothesis import strategies as st

from samba_onnx.passes.planning.partitioning import Group, Home, partition
from samba_onnx.passes.planning.plan import GraphPlan, plan
from samba_onnx.passes.planning.sectioning import cut
from samba_onnx.pef.manifest import Cause, Direction
from samba_onnx.program.dataflow import is_weight
from tests.passes.planning.plan_samples import LATENCY, LINK, target
from tests.passes.planning.planned import DOWN, UP, check
from tests.passes.planning.random_graphs import Case, cases, needs


def simulate(case: Case, groups: tuple[Group, ...]) -> list[tuple[Any, ...]]:
    """Run the rules node by node with two sets of names, and record every copy."""
    graph = case.model.graph
    host, device = {v.name for v in graph.inputs}, set()
    records: list[tuple[Any, ...]] = []
    producer: dict[str | None, int] = {}

    def move(value: ir.Value, way: Direction, cause: Cause, call: int) -> None:
        size = 4 * int(value.shape[0])  # type: ignore[index, arg-type]
        records.append((value.name, size, way, cause, LATENCY + size / LINK, call))

    for value in graph.inputs:
        reading = [
            call
            for call, group in enumerate(groups)
            if group.home is Home.RDU and any(value in needs(node) for node in group.nodes)
        ]
        if reading:
            device.add(value.name)
            move(value, UP, Cause.INPUT, reading[0])
    for call, group in enumerate(groups):
        here, there = (device, host) if group.home is Home.RDU else (host, device)
        for node in group.nodes:
            for value in needs(node):
                if is_weight(value) or value.name in here:
                    continue
                assert value.name in there, "read before it is written"
                here.add(value.name)
                move(value, UP if group.home is Home.RDU else DOWN, Cause.FALLBACK, call)
            here.update(value.name for value in node.outputs)
            producer.update((value.name, call) for value in node.outputs)
    for value in graph.outputs:
        if value.name in producer and value.name not in host:
            host.add(value.name)
            move(value, DOWN, Cause.OUTPUT, producer[value.name])
    return records


@settings(max_examples=100, deadline=None)
@given(cases(most=12), st.sampled_from(["o0", "o3"]), st.integers(8, 200))
def test_planned_transfers_are_those_of_a_simulated_run(
    case: Case, level: str, capacity: int
) -> None:
    device = target(sram=capacity)
    groups = cut(partition(case.model, case.placement), device, level)
    found = plan(
        case.model,
        groups,
        device,
        graph_name="forward",
        weight_names={"w0"},
        placement=case.placement,
    )
    assert [dataclasses.astuple(t) for t in found.graph.run_transfers] == simulate(case, groups)
    check(found, device)
    _check_interfaces(case, found)
    fallback = [t for t in found.graph.run_transfers if t.cause is Cause.FALLBACK]
    crossing = [name for boundary in found.graph.boundaries for name in boundary.symbols]
    assert sorted(t.symbol for t in fallback) == sorted(crossing)
    assert sum(b.bytes for b in found.graph.boundaries) == sum(t.bytes for t in fallback)


def _check_interfaces(case: Case, found: GraphPlan) -> None:
    """Check that each stage is given all that its nodes read, and gives all that others read."""
    stages = {stage.id: stage for stage in (*found.sections, *found.fallbacks)}
    assert list(stages) or not list(case.model.graph)
    outputs = {value.name for value in case.model.graph.outputs}
    for number, group in found.stages:
        stage = stages[number]
        made_here = {value.name for node in group.nodes for value in node.outputs}
        read = {value for node in group.nodes for value in needs(node)}
        assert set(stage.weights) == {v.name for v in read if is_weight(v)}
        assert set(stage.inputs) == {v.name for v in read if not is_weight(v)} - made_here
        elsewhere = {
            name for other in stages.values() if other is not stage for name in other.inputs
        }
        wanted = made_here & (elsewhere | outputs)
        assert set(stage.outputs) == wanted or (not wanted and len(stage.outputs) == 1)
    loaded = {transfer.symbol for transfer in found.graph.load_transfers}
    assert loaded == {name for section in found.sections for name in section.weights}


@settings(max_examples=50, deadline=None)
@given(cases(most=12))
def test_the_same_graph_has_the_same_plan(case: Case) -> None:
    def once(model: ir.Model, cpu: set[str | None]) -> tuple[Any, ...]:
        nodes = tuple(node for node in model.graph if node.name in cpu)
        again = Case(model, nodes)
        groups = cut(partition(model, again.placement), target(sram=60), "o3")
        found = plan(
            model,
            groups,
            target(sram=60),
            graph_name="g",
            weight_names=set(),
            placement=again.placement,
        )
        return tuple(
            getattr(found, f.name) for f in dataclasses.fields(found) if f.name != "stages"
        )

    cpu = {node.name for node in case.cpu}
    # A copy has other objects, thus other hashes: the order of a set would show.
    assert once(case.model, cpu) == once(case.model.clone(), cpu)
