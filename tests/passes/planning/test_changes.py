"""What is planned where nodes that fall back are taken for supported, and which reasons are measured."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from samba_onnx.passes.planning import changes as module
from samba_onnx.passes.planning.changes import PlacedGraph, changes
from samba_onnx.passes.planning.fusion.patterns import NO_RULES, FusionRules
from samba_onnx.passes.planning.measuring import Measure, measure
from samba_onnx.passes.planning.optimum import Machine
from samba_onnx.passes.targets.reasons import Reason
from samba_onnx.passes.timing.hosts import load_host
from tests.passes.planning.plan_samples import target
from tests.passes.planning.test_islands import JOINED_SPLITS, SPLITS_CPU
from tests.passes.planning.test_optimum import Case

CHAIN = """g (float[64,64] x, float[64,64] w) => (float[64,64] y)
{ a = MatMul(x, w) b = Cos(a) c = Relu(b) d = Sin(c) e = Neg(d) f = Sin(e) y = MatMul(f, w) }"""
MACHINE = Machine(target(), load_host(), "o3")


def placed(text: str = CHAIN, *, pinned: tuple[str, ...] = (), optimal: bool = True) -> PlacedGraph:
    case = Case(text, cpu=("Cos", "Sin"))
    return PlacedGraph("g", case.model, case.placement, case.roles, MACHINE, pinned, optimal)


def quiet(node: ir.Node, reason: Reason) -> str:
    return ""


def test_a_plan_moves_supported_nodes_where_that_is_allowed_and_cheaper() -> None:
    graph = placed()
    strict = measure(graph.model, graph.placement, MACHINE, graph.roles)
    # Two inputs, to each of three fallbacks and back, and the result; or to the host and back once.
    assert strict.transfers == placed(optimal=False).lifted(()).transfers == 9
    assert graph.lifted(()).transfers == 5
    assert graph.lifted(()).seconds < strict.seconds
    assert placed(pinned=("c", "e")).lifted(()) == strict
    everything = graph.lifted([n for n in graph.model.graph if n.op_type in ("Cos", "Sin")])
    assert everything.transfers == 3


def test_a_plan_without_a_reason_has_the_sections_that_rules_make() -> None:
    """With one section of all Splits the index stays on the RDU, with three it would not."""
    text = """g (float[16] z) => (x, y) <int64[1] one={1}> {
        p1, q1 = Split<num_outputs=2>(z)
        n = Neg(z)
        p2, q2 = Split<num_outputs=2>(p1)
        p3, q3 = Split<num_outputs=2>(q2)
        w = Relu(z)
        u = Shape(w)
        c = Cos(w)
        i = Add(u, one)
        v = Neg(c)
        x = com.example.Use(i, n, p2)
        y = com.example.Use(v, p1, q2, p3)
    }"""
    case = Case(text, cpu=SPLITS_CPU)

    def lifted(rules: FusionRules) -> Measure:
        machine = Machine(target(), load_host(), "o1", rules)
        graph = PlacedGraph("g", case.model, case.placement, case.roles, machine, (), False)
        assert graph.lifted(()) == measure(case.model, case.placement, machine, case.roles)
        return graph.lifted(())

    assert lifted(JOINED_SPLITS).transfers > lifted(NO_RULES).transfers


def test_of_a_large_graph_the_reasons_with_most_nodes_are_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, bound = changes(placed(), quiet)
    assert {change.operator: len(change.nodes) for change in found} == {"Cos": 1, "Sin": 2}
    assert bound is not None
    monkeypatch.setattr(module, "_MOST_NODES", 0)
    monkeypatch.setattr(module, "_LEAST_CHANGES", 1)
    found, bound = changes(placed(), quiet)
    assert [change.operator for change in found] == ["Sin"]
    assert bound is not None
    monkeypatch.setattr(module, "_MOST_NODES", 1)
    monkeypatch.setattr(module, "_LEAST_CHANGES", 0)
    found, _ = changes(placed("g (float[4] x) => (float[4] y) { y = Cos(x) }"), quiet)
    assert [change.operator for change in found] == ["Cos"]


def test_the_reason_that_saves_most_comes_first_with_the_advice_that_most_nodes_have() -> None:
    case = Case(CHAIN.replace("e = Neg(d)", "e = Sin(d)"), cpu=("Cos", "Sin"))
    graph = PlacedGraph("g", case.model, case.placement, case.roles, MACHINE, (), optimal=True)
    told = {"d": "write it so", "e": "write it otherwise", "f": "write it otherwise"}
    found, _ = changes(graph, lambda node, _: told.get(node.outputs[0].name or "", ""))
    assert [(change.operator, change.advice) for change in found] == [
        ("Sin", "write it otherwise"),
        ("Cos", ""),
    ]
    assert found[0].seconds > found[1].seconds
