"""Activations that take turns in a place: only where memory is short, and never while one is still needed."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from samba_onnx.passes.planning.overlays import overlaid
from samba_onnx.passes.planning.partitioning import partition
from samba_onnx.passes.planning.plan import GraphPlan, plan
from samba_onnx.passes.planning.roles import Roles
from samba_onnx.passes.planning.sectioning import cut
from samba_onnx.passes.planning.stages import interfaces
from samba_onnx.program.kinds import SymbolKind
from tests.passes.planning.plan_samples import named, parse, placement, target
from tests.passes.planning.planned import check, made
from tests.passes.planning.random_graphs import Case, cases

CHAIN = """g (float[4] x) => (float[4] y) {
    a = Relu (x)
    b = Exp (a)
    c = Neg (b)
    d = Add (c, a)
    y = Abs (d)
}"""


def regions(found: GraphPlan) -> dict[str, str]:
    return {symbol.name: symbol.region for symbol in found.symbols}


def test_a_value_takes_the_place_of_one_that_no_later_call_reads() -> None:
    found = made(CHAIN, level="o0", device=target(hbm=95))
    # What a call reads last is still there while it writes its own result: c is not in b's place.
    assert regions(found) == {"x": "x", "a": "a", "b": "b", "c": "c", "d": "b", "y": "y"}
    assert [region.name for region in found.regions] == ["x", "a", "b", "c", "y"]
    assert {region.bytes for region in found.regions} == {16}


def test_with_room_for_all_every_value_has_a_region_of_its_own() -> None:
    found = made(CHAIN, level="o0", device=target(hbm=96))
    assert all(name == region for name, region in regions(found).items())


def test_what_graphs_before_keep_is_no_room_for_values() -> None:
    """Both graphs fit only if activations of the second one take turns."""
    device = target(hbm=96 + 31)
    first = made("g (float[4] p) => (float[4] q) { q = Relu (p) }", level="o0", device=device)
    alone = made(CHAIN, level="o0", device=device)
    assert regions(alone)["d"] == "d"
    second = made(CHAIN, level="o0", device=device, earlier=(first,), first_stage=1)
    assert regions(second)["d"] == "b"
    assert {region.tier for region in second.regions} == {"hbm"}


def test_it_makes_a_model_fit_that_would_not() -> None:
    found = made(CHAIN, level="o0", device=target(hbm=0, ddr=80))
    assert sum(region.bytes for region in found.regions) == 80


def test_places_are_taken_by_values_of_the_same_size_only() -> None:
    found = made(
        """g (float[4] x) => (float[4] y) {
            a = Relu (x)
            b = Concat <axis = 0> (a, a)
            c = Exp (b)
            y = ReduceSum <keepdims = 1> (c)
        }""",
        level="o0",
        device=target(hbm=16),
        cpu=(),
    )
    assert regions(found)["c"] == "c"  # a is free by then, but half as large


def test_spatial_mapping_needs_all_places_at_once() -> None:
    model, device = named(parse(CHAIN)), target(hbm=1)
    roles = Roles(tuple(model.graph.inputs), tuple(model.graph.outputs), spatial_batches=2)
    stages = interfaces(model.graph, cut(partition(model, placement(model)), device, "o0"), device)
    kinds = {value: SymbolKind.ACTIVATION for stage in stages for value in stage.outputs}
    assert overlaid(roles, stages, kinds, device.summary) is roles


@settings(max_examples=60, deadline=None)
@given(cases(most=12), st.sampled_from(["o0", "o3"]))
def test_no_two_values_are_needed_in_one_place_at_once(case: Case, level: str) -> None:
    device = target(sram=40, hbm=1)
    found = plan(
        case.model,
        cut(partition(case.model, case.placement), device, level),
        device,
        graph_name="forward",
        weight_names={"w0"},
        placement=case.placement,
    )
    check(found, device)
    stages = [*found.sections, *found.fallbacks]
    by_id = {stage.id: stage for stage in stages}
    calls = [by_id[call.stage] for call in found.graph.calls]
    lives: dict[str, list[tuple[int, int]]] = {}
    for symbol in found.symbols:
        uses = [n for n, one in enumerate(calls) if symbol.name in (*one.inputs, *one.outputs)]
        if symbol.kind is SymbolKind.ACTIVATION and symbol.region:
            lives.setdefault(symbol.region, []).append((min(uses), max(uses)))
        elif symbol.region:
            assert symbol.region == symbol.name
    for spans in lives.values():
        for (_, end), (begin, _) in itertools.pairwise(sorted(spans)):
            assert end < begin
