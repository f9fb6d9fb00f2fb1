"""What moves of the values that stay on the device between runs."""

from __future__ import annotations

from collections.abc import Mapping

import onnx.shape_inference
import onnx_ir as ir
import pytest

from samba_onnx.passes.planning.partitioning import partition
from samba_onnx.passes.planning.plan import GraphPlan, plan
from samba_onnx.passes.planning.roles import Roles
from samba_onnx.passes.planning.sectioning import cut
from samba_onnx.program.kinds import SymbolKind
from tests.passes.planning.plan_samples import named, parse, placement, target
from tests.passes.planning.planned import brief

WEIGHT, GRADIENT = SymbolKind.WEIGHT, SymbolKind.GRADIENT


def made(
    text: str,
    residents: Mapping[str, SymbolKind],
    *,
    regions: Mapping[str, str] | None = None,
    changed: frozenset[str] = frozenset(),
    argins: frozenset[str] = frozenset(),
) -> GraphPlan:
    """Return the plan of a graph, all inputs and outputs of which are exchanged but for residents."""
    model = named(ir.from_proto(onnx.shape_inference.infer_shapes(ir.to_proto(parse(f"g {text}")))))
    graph = model.graph
    roles = Roles(
        tuple(value for value in graph.inputs if value.name not in residents),
        tuple(value for value in graph.outputs if value.name not in residents),
        {v: residents[str(v.name)] for v in (*graph.inputs, *graph.outputs) if v.name in residents},
        frozenset(value for value in graph.inputs if value.name in argins),
        regions or {},
        changed,
    )
    homes = placement(model)
    return plan(
        model,
        cut(partition(model, homes), target(), "o3"),
        target(),
        graph_name="g",
        weight_names=(),
        placement=homes,
        roles=roles,
    )


def loads(found: GraphPlan) -> list[tuple[str, str, int | None]]:
    return brief(found.graph.load_transfers)


def moves(found: GraphPlan) -> list[tuple[str, str, int | None]]:
    return brief(found.graph.run_transfers)


def test_a_section_reads_a_resident_where_it_is() -> None:
    found = made("(float[4] x, float[4] w) => (float[4] y) { y = Add (x, w) }", {"w": WEIGHT})
    assert loads(found) == [("w", "up weight", None)]
    assert moves(found) == [("x", "up input", 0), ("y", "down output", 0)]


def test_a_resident_that_only_a_fallback_reads_has_its_place_on_the_device_too() -> None:
    found = made("(float[4] w) => (float[4] y) { y = Cos (w) }", {"w": WEIGHT})
    assert [region.name for region in found.regions] == ["w"]
    assert loads(found) == [("w", "up weight", None)]
    assert moves(found) == []


@pytest.mark.parametrize(
    ("kind", "changed"),
    [(WEIGHT, frozenset({"w"})), (GRADIENT, frozenset())],
    ids=["a weight that runs change", "a gradient"],
)
def test_what_the_host_does_not_know_is_copied_to_the_first_fallback_that_reads_it(
    kind: SymbolKind, changed: frozenset[str]
) -> None:
    found = made(
        """(float[4] x, float[4] w) => (float[4] y, float[4] z) {
            a = Relu (x)
            b = Add (a, w)
            c = Cos (b)
            d = Neg (c)
            y = Cos (w)
            z = Cos (d)
        }""",
        {"w": kind},
        changed=changed,
    )
    assert [move for move in moves(found) if move[0] == "w"] == [("w", "down fallback", 1)]
    assert all("w" not in boundary.symbols for boundary in found.graph.boundaries)


def test_what_a_fallback_writes_to_a_resident_is_copied_just_after_it_and_not_again() -> None:
    found = made(
        """(float[4] x) => (float[4] m, float[4] y, float[4] z) {
            m = Cos (x)
            z = Cos (m)
            y = Neg (m)
        }""",
        {"m": WEIGHT},
    )
    assert moves(found) == [("m", "up fallback", 0), ("y", "down output", 1)]
    assert {region.name: region.mutable for region in found.regions} == {"m": True, "y": True}


def test_what_a_section_writes_to_a_resident_stays_there_unless_a_fallback_reads_it() -> None:
    stays = made("(float[4] x) => (float[4] m) { m = Relu (x) }", {"m": WEIGHT})
    assert moves(stays) == [("x", "up input", 0)]
    read = made(
        "(float[4] x) => (float[4] m, float[4] y) { m = Relu (x)  y = Cos (m) }",
        {"m": WEIGHT},
        changed=frozenset({"m"}),
    )
    assert moves(read) == [("x", "up input", 0), ("m", "down fallback", 1)]


def test_an_update_lies_where_the_weight_does_and_is_not_loaded() -> None:
    found = made(
        "(float[4] w, float[4] g) => (float[4] w_new) { w_new = Sub (w, g) }",
        {"w": WEIGHT, "w_new": WEIGHT},
        regions={"w_new": "w"},
        changed=frozenset({"w"}),
    )
    assert {region.name: region.mutable for region in found.regions} == {"g": False, "w": True}
    assert loads(found) == [("w", "up weight", None)]
    assert {s.name: s.region for s in found.symbols} == {"w": "w", "w_new": "w", "g": "g"}


def test_an_argin_is_set_without_a_copy() -> None:
    found = made(
        "(float[4] x, float rate) => (float[4] y) { y = Mul (x, rate) }",
        {},
        argins=frozenset({"rate"}),
    )
    assert moves(found) == [("x", "up input", 0), ("y", "down output", 0)]
