"""Index arithmetic between CPU nodes moves to the CPU, and nothing becomes dearer by it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import samba_onnx
from samba_onnx.facts.domains import ALL_REDUCE, SAMBA_DOMAIN
from samba_onnx.passes.planning.fusion.patterns import (
    NO_RULES,
    FusionRule,
    FusionRules,
    Pattern,
    PatternEntry,
)
from samba_onnx.passes.planning.islands import demote_islands
from samba_onnx.passes.planning.partitioning import partition
from samba_onnx.passes.planning.plan import GraphPlan, plan
from samba_onnx.passes.planning.sectioning import cut
from samba_onnx.passes.targets.reasons import Reason, ReasonCode
from tests.passes.planning.plan_samples import ToyPlacement, named, parse, placement, target
from tests.passes.planning.random_graphs import Case, cases

DYNAMIC = """
<ir_version: 10, opset_import: ["": 18]>
g (float[batch,seq,8] x) => (float[batch,half,2,4] y) <
    int64 i1={1}, int64[1] ax={0}, int64[1] zero={0}, int64[1] one={1}, int64[2] tail={2,4},
    float scale={0.5}
> {
    s = Shape(x)
    b = Gather<axis=0>(s, zero)
    q = Gather<axis=0>(s, i1)
    f = Cast<to=1>(q)
    fs = Mul(f, scale)
    fl = Floor(fs)
    n = Cast<to=7>(fl)
    e = Unsqueeze(n, ax)
    part = Slice(x, zero, e, one)
    shape = Concat<axis=0>(b, e, tail)
    h = Relu(part)
    y = Reshape(h, shape)
}
"""


def demoted(text: str, *cpu: str, level: str = "o3", rules: FusionRules = NO_RULES) -> list[str]:
    """Return the results of the nodes that move when the named operators are on the CPU."""
    return list(reasons(text, *cpu, level=level, rules=rules))


def reasons(
    text: str, *cpu: str, level: str = "o3", rules: FusionRules = NO_RULES
) -> dict[str, Reason]:
    """Return the reasons of the nodes that move, by their first results."""
    proto = onnx.shape_inference.infer_shapes(ir.to_proto(parse(text)))
    model = named(ir.from_proto(proto))
    before = placement(model, cpu)
    after = demote_islands(model, before, target(), level, rules)
    assert all(after.reasons[node] is reason for node, reason in before.reasons.items())
    moved = [node for node in after.reasons if node not in before.reasons]
    assert all(after.reasons[node].code is ReasonCode.ISLAND for node in moved)
    return {str(node.outputs[0].name): after.reasons[node] for node in moved}


@pytest.mark.parametrize(
    ("body", "moved"),
    [
        ("s = Shape(x) a = Add(s, one) y = com.example.Use(a)", ["a"]),  # a result of the CPU
        ("a = Add(k, one) y = com.example.Use(a)", ["a"]),  # a graph input
        ("s = Shape(x) y = Add(s, one)", ["y"]),  # returned to the caller
        (
            "s = Shape(x) a = Add(s, one) b = Neg(a) y = com.example.Use(b) r = com.example.Use(a)",
            ["a", "b"],
        ),
        # inside it may compute with floats
        (
            "a = Cast<to=1>(k) b = Floor(a) c = Cast<to=7>(b) y = com.example.Use(c)",
            ["a", "b", "c"],
        ),
        # one island after another
        (
            "a = Add(k, one) b = Neg(a) y = com.example.Use(b) c = Neg(k) r = com.example.Use(c)",
            ["a", "b", "c"],
        ),
        ("a = Neg(most) y = com.example.Use(a)", ["a"]),  # as many elements as there may be
        # the RDU's value is copied to the host for another reader anyway
        ("a = ArgMax(z) b = Add(a, one) y = com.example.Use(b) r = com.example.Use(a)", ["b"]),
    ],
)
def test_what_moves(body: str, moved: list[str]) -> None:
    assert demoted(_graph(body), "Shape", "Use") == moved


@pytest.mark.parametrize(
    "body",
    [
        "y = Add(k, one)",  # nothing runs on the CPU
        "a = Add(k, one) y = Add(a, one) r = com.example.Use(k)",  # nor beside it
        "s = Shape(x) a = Add(s, one) y = Expand(z, a) r = com.example.Use(a)",  # the RDU reads it
        "a = ArgMax(z) b = Add(a, one) y = com.example.Use(b)",  # one copy either way
        "f = Neg(z) y = com.example.Use(f)",  # data is no index
        "a = Cast<to=1>(k) y = com.example.Use(a)",  # nor is it for the CPU
        "a = Add(many, one) y = com.example.Use(a)",  # too many elements
        "a = ReduceSum<keepdims=0>(many) y = com.example.Use(a)",  # a small result of much arithmetic
        "s = NonZero(x) a = Add(s, one) y = com.example.Use(a)",  # a size that nobody knows
        "a = Neg(any) y = com.example.Use(a)",  # not even the rank is known
    ],
)
def test_what_stays(body: str) -> None:
    assert demoted(_graph(body), "Shape", "Use", "NonZero") == []


def _graph(body: str) -> str:
    text = f"""g (float[2] x, int64[1] k, float[1,3] z, int64[65] many,
        int64[64] most, int64[] any) => (Y)
        <int64[1] one={{1}}> {{ {body} }}"""
    return text.replace("(Y)", "(y, r)" if " r = " in body else "(y)")


# With i on the RDU, x waits for the second switch to the host, as y does; without it x runs
# earlier, and what the Splits bring to the host goes to two fallbacks instead of one.
SPLITS = """g (float[4] z) => (x, y) <int64[1] one={1}> {
    p1, q1 = Split<num_outputs=2>(z)
    p2, q2 = Split<num_outputs=2>(p1)
    p3, q3 = Split<num_outputs=2>(p2)
    w = Relu(z)
    u = Shape(w)
    c = Cos(w)
    i = Add(u, one)
    v = Neg(c)
    x = com.example.Use(i, p1, p2, p3)
    y = com.example.Use(v, q1, q2, q3)
}"""
SPLITS_CPU = ("Shape", "Use", "Cos")
_SPLIT = PatternEntry(("Split",))
JOINED_SPLITS = FusionRules(
    (
        FusionRule(
            "splits",
            1,
            (
                Pattern(
                    {
                        "first": replace(_SPLIT, children=("second",)),
                        "second": replace(_SPLIT, children=("third",)),
                        "third": _SPLIT,
                    }
                ),
            ),
        ),
    )
)
"""A rule that makes one section of the three Splits."""


@pytest.mark.parametrize("level", ["o0", "o1", "o3"])
def test_nothing_moves_where_boundaries_would_become_more(level: str) -> None:
    assert demoted(SPLITS, *SPLITS_CPU, level=level) == []
    fewer = SPLITS.replace("(v, q1, q2, q3)", "(v)")
    assert demoted(fewer, *SPLITS_CPU, level=level) == ["i"]


def test_boundaries_are_those_of_the_sections_that_rules_make() -> None:
    """One section of all Splits is one more boundary, and not three, where two fallbacks read them."""
    assert demoted(SPLITS, *SPLITS_CPU, level="o1", rules=JOINED_SPLITS) == ["i"]


def test_an_exchange_between_rdus_stays_on_them() -> None:
    """The host has no other RDU's part of an index either."""
    text = _graph("s = Shape(x) a = Neg(s) y = com.example.Use(a)")
    proto = onnx.shape_inference.infer_shapes(ir.to_proto(parse(text)))
    model = named(ir.from_proto(proto))
    node = model.graph[1]
    homes = placement(model, ("Shape", "Use"))
    assert node in demote_islands(model, homes, target(), "o3").reasons
    node.domain, node.op_type = SAMBA_DOMAIN, ALL_REDUCE
    assert demote_islands(model, homes, target(), "o3") is homes


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "s = Shape(x) a = Add(s, one) y = com.example.Use(a)",
            "Add computes 1 int64 value that only the host needs; on the RDU it would cost 2 transfers",
        ),
        (
            "a = Add(one, one) y = com.example.Use(a)",
            "Add computes 1 int64 value that only the host needs; on the RDU it would cost 1 transfer",
        ),
        (
            "c = Cast<to=6>(k) v, a = TopK(c, one) y = com.example.Use(v, a)",
            "TopK computes 1 int32 and 1 int64 values that only the host needs; "
            "on the RDU this island of 2 nodes would cost 3 transfers",
        ),
    ],
)
def test_the_reason_counts_what_is_computed_and_copied(body: str, message: str) -> None:
    found = list(reasons(_graph(body), "Shape", "Use").values())
    assert found[-1].message == message
    assert found[-1].hint == "use another"


def test_no_hint_is_given_where_the_nodes_around_have_none() -> None:
    model = parse(_graph("a = Add(one, one) y = com.example.Use(a)"))
    model.graph[0].outputs[0].type = ir.TensorType(ir.DataType.INT64)
    model.graph[0].outputs[0].shape = ir.Shape([1])
    before = placement(model, ("Use",))
    bare = {node: replace(reason, hint="") for node, reason in before.reasons.items()}
    after = demote_islands(model, replace(before, reasons=bare), target(), "o3")
    assert after.reasons[model.graph[0]].hint == ""


def test_the_reason_counts_copies_and_names_the_option(tmp_path: Path) -> None:
    manifest = samba_onnx.analyze(onnx.parser.parse_model(DYNAMIC), keep_dynamic=True)
    nodes = {(n.op_type, n.code): n for f in manifest.fallbacks for n in f.reasons}
    concat = nodes["Concat", "island"]
    assert concat.reason == (
        "Concat computes 4 int64 values that only the host needs; on the RDU this island of 8 "
        "nodes would cost 3 transfers"
    )
    assert concat.hint == nodes["Slice", "dynamic_shape"].hint == "--dim batch=1 --dim seq=1"
    assert nodes["Floor", "island"].reason.startswith("Floor computes 1 float32 value that only")
    assert not manifest.sections
    assert not manifest.graphs[0].run_transfers
    assert not manifest.graphs[0].boundaries


@pytest.mark.parametrize("dims", [{}, {"batch": 2}, {"batch": 2, "seq": 6}])
def test_numbers_are_those_of_onnxruntime(dims: dict[str, int], tmp_path: Path) -> None:
    model = onnx.parser.parse_model(DYNAMIC)
    feed = {"x": np.random.default_rng(0).normal(size=(2, 6, 8)).astype(np.float32)}
    (expected,) = ort.InferenceSession(model.SerializeToString()).run(None, feed)
    pef = samba_onnx.convert(
        model, tmp_path / "m.pef", dims=dims, sample=False, trial=False, keep_dynamic=True
    )
    with pef, samba_onnx.Device(pef, threads=1) as device:
        np.testing.assert_array_equal(device.run(feed)["y"], expected)  # copies and a Relu: exact
        assert tuple(device.ledger.transfers) == pef.manifest.graphs[0].run_transfers
    assert bool(pef.manifest.sections) == (len(dims) == 2)


@st.composite
def typed_cases(draw: st.DrawFn) -> Case:
    """Return random graphs of integers and floats, some of them too large for an index."""
    case = draw(cases(most=12))
    values = [value for node in case.model.graph for value in node.outputs]
    types = st.sampled_from([ir.DataType.INT64] * 3 + [ir.DataType.BOOL, ir.DataType.FLOAT])
    for value in (*case.model.graph.inputs, *values):
        value.type = ir.TensorType(draw(types))
        value.shape = ir.Shape([draw(st.sampled_from([1, 2, 3, 65]))])
    return case


def _planned(model: ir.Model, homes: Any, device: Any, level: str) -> GraphPlan:
    groups = cut(partition(model, homes), device, level)
    return plan(model, groups, device, graph_name="g", weight_names=set(), placement=homes)


@settings(max_examples=300, deadline=None)
@given(typed_cases(), st.sampled_from(["o0", "o3"]), st.sampled_from([40, 1 << 20]))
def test_copies_and_boundaries_never_increase(case: Case, level: str, capacity: int) -> None:
    device = target(sram=capacity)
    before = case.placement
    after = demote_islands(case.model, before, device, level)
    assert isinstance(after, ToyPlacement)
    assert after.supports is before.supports
    moved = {node for node in after.reasons if node not in before.reasons}
    for node in moved:
        assert all(math.prod(v.shape) <= 64 for v in node.outputs)  # type: ignore[type-var, arg-type]
    old = _planned(case.model, before, device, level).graph
    new = _planned(case.model, after, device, level).graph
    kept = {(t.symbol, t.direction) for t in new.run_transfers}
    every = {(t.symbol, t.direction) for t in old.run_transfers}
    assert kept < every if moved else kept == every
    assert sum(t.bytes for t in new.run_transfers) <= sum(t.bytes for t in old.run_transfers)
    assert {t.symbol for t in new.load_transfers} <= {t.symbol for t in old.load_transfers}
    assert len(new.boundaries) <= len(old.boundaries)
    assert len(partition(case.model, after)) <= len(partition(case.model, before))
