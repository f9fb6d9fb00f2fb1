"""Records of stages say what the groups that they are made of are."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir
import pytest

from samba_onnx.facts.domains import ALL_REDUCE, SAMBA_DOMAIN
from samba_onnx.passes.planning.fusion.patterns import (
    FusionRule,
    FusionRules,
    Pattern,
    PatternEntry,
)
from samba_onnx.passes.planning.partitioning import partition
from samba_onnx.passes.planning.plan import GraphPlan, plan
from samba_onnx.passes.planning.sectioning import cut
from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.sharding.collectives import RDUS, SHARDED
from samba_onnx.passes.targets.reasons import Reason, ReasonCode
from samba_onnx.passes.timing.hosts import host_seconds, load_host
from samba_onnx.pef.manifest import Cause, Direction
from samba_onnx.pef.sharding import AxisSplit, Collective, CollectiveKind, Sharded
from samba_onnx.program.kinds import SectionType
from samba_onnx.program.source_location import STACK_TRACE
from tests.passes.planning.plan_samples import named, parse, placement, target


def sample() -> ir.Model:
    model = named(parse("g (float[4] x) => (float[4] y) { a = Relu (x)  y = Cos (a) }"))
    model.graph[0].outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    model.graph[0].outputs[0].shape = ir.Shape([4])
    return model


def planned(model: ir.Model, kind: SectionType = SectionType.FWD) -> GraphPlan:
    homes = placement(model)
    groups = [replace(group, type=kind) for group in partition(model, homes)]
    return plan(model, groups, target(), graph_name="g", weight_names=(), placement=homes)


@pytest.mark.parametrize("kind", SectionType)
def test_stages_on_both_sides_have_the_type_of_their_part(kind: SectionType) -> None:
    found = planned(sample(), kind)
    assert [stage.type for stage in (*found.sections, *found.fallbacks)] == [kind, kind]
    assert [s.member for s in found.sections] == [f"stages/000_{kind.value}.onnx"]
    assert [s.member for s in found.fallbacks] == ["stages/001_cpu.onnx"]


def test_a_section_says_which_rule_made_it() -> None:
    text = "g (float[4] x) => (float[4] y) { a = Mul (x, x) b = Add (a, x) y = Abs (b) }"
    model = named(parse(text))
    InferShapesPass()(model)
    entries = {"a": PatternEntry(("Mul",), ("b",)), "b": PatternEntry(("Add",))}
    rules = FusionRules((FusionRule("scaled sum", 1, (Pattern(entries),)),))
    homes = placement(model)
    groups = cut(partition(model, homes), target(), "o1", rules)
    found = plan(model, groups, target(), graph_name="g", weight_names=(), placement=homes)
    assert [section.rule for section in found.sections] == ["scaled sum", ""]


def exchanging() -> ir.Model:
    """Return a sum over two RDUs between two operators; each RDU has a half of the input."""
    model = named(
        parse(
            """g (float[4] x) => (float[4] y) <float[4] a, float[4] b>
            { a = Relu (x) b = Neg (a) y = Abs (b) }"""
        )
    )
    node = model.graph[1]
    node.domain, node.op_type = SAMBA_DOMAIN, ALL_REDUCE
    node.attributes[RDUS] = ir.AttrInt64(RDUS, 2)
    model.graph.inputs[0].meta[SHARDED] = HALVES
    return model


HALVES = Sharded((8,), (AxisSplit(0, ((0, 4), (4, 8))),))


def test_what_rdus_exchange_and_hold_of_a_value_is_in_the_records() -> None:
    model = exchanging()
    homes, device = placement(model), target()
    found = plan(
        model,
        cut(partition(model, homes), device, "o3"),
        device,
        graph_name="g",
        weight_names=(),
        placement=homes,
    )
    # Each of two RDUs sends its four floats to the other one.
    sent = Collective(CollectiveKind.ALL_REDUCE, 4 * 4, direct=True)
    assert [section.collective for section in found.sections] == [None, sent, None]
    shards = {symbol.name: symbol.sharded for symbol in found.symbols}
    assert shards == {"x": HALVES, "a": None, "b": None, "y": None}
    (copy,) = (move for move in found.graph.run_transfers if move.cause is Cause.COLLECTIVE)
    assert (copy.symbol, copy.bytes, copy.call) == ("b", 16, 1)
    assert copy.direction is Direction.RDU_TO_RDU


def test_a_node_on_the_cpu_is_told_with_the_users_line() -> None:
    model = sample()
    model.graph[1].metadata_props[STACK_TRACE] = 'File "model.py", line 7, in forward'
    (fallback,) = planned(model).fallbacks
    assert [reason.location for reason in fallback.reasons] == ["model.py:7"]


def test_what_a_fallback_takes_is_its_start_and_its_nodes_but_those_computed_at_load() -> None:
    text = """g (float[4] x) => (float[4] y, float[4] z) <float[4] w = {1, 2, 3, 4}> {
    a = Cos(x)
    b = com.example.Own(a)
    c = Relu(b)
    t = Cos(w)
    y = Add(c, t)
    z = Neg(c)
    }"""
    model = named(parse(text))
    for node in model.graph:
        for value in node.outputs:
            value.type, value.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([4])
    homes = placement(model, ("Cos", "Own"))
    moved = {node: Reason(ReasonCode.CHEAPER, "cheaper") for node in model.graph[-1:]}
    homes = replace(homes, reasons={**homes.reasons, **moved})
    found = plan(
        model,
        partition(model, homes),
        target(),
        graph_name="g",
        weight_names=(),
        placement=homes,
    ).fallbacks
    nodes = {node.name: node for fallback in found for node in fallback.reasons}
    assert {name: (node.supported, node.at_load) for name, node in nodes.items()} == {
        "node_0": (False, False),
        "node_1": (False, False),
        "node_3": (False, True),
        "node_5": (True, False),
    }
    host = load_host()
    (cos,) = (node for node in model.graph if node.name == "node_0")
    (neg,) = (node for node in model.graph if node.name == "node_5")
    for fallback in found:
        names = {node.name for node in fallback.reasons}
        parts = [host_seconds(node, host) or 0.0 for node in (cos, neg) if node.name in names]
        start = host.call_seconds if names - {"node_3"} else 0.0
        assert fallback.seconds == pytest.approx(start + sum(parts), rel=1e-12)
        assert fallback.unmodelled == ("node_1" in names)


def test_a_fallback_of_what_is_computed_at_load_alone_takes_no_time() -> None:
    text = """g (float[4] x) => (float[4] y) <float[4] w = {1, 2, 3, 4}>
    { t = Cos(w) y = Add(t, x) }"""
    model = named(parse(text))
    for value in model.graph[0].outputs:
        value.type, value.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([4])
    (fallback,) = planned(model).fallbacks
    assert [node.at_load for node in fallback.reasons] == [True]
    assert (fallback.seconds, fallback.unmodelled) == (0.0, 0)
