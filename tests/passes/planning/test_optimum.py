"""What a cut moves beside the nodes that must run on the CPU, on a link where a copy takes a millisecond."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import onnx.shape_inference
import onnx_ir as ir
import pytest

from samba_onnx.facts.domains import ALL_REDUCE, SAMBA_DOMAIN
from samba_onnx.passes.planning.optimum import Machine, cheapest_placement
from samba_onnx.passes.planning.partitioning import Home, group
from samba_onnx.passes.planning.placement import Placement
from samba_onnx.passes.planning.roles import Roles, known_at_load
from samba_onnx.passes.planning.scheduling import run_transfers
from samba_onnx.passes.planning.sectioning import cut
from samba_onnx.passes.planning.stages import interfaces
from samba_onnx.passes.targets.reasons import Reason, ReasonCode
from samba_onnx.passes.timing.hosts import host_seconds, load_host
from samba_onnx.program.dataflow import Dataflow
from samba_onnx.program.kinds import SymbolKind
from tests.passes.planning.plan_samples import (
    LATENCY,
    ToyTarget,
    figures,
    named,
    parse,
    placement,
    target,
)
from tests.passes.timing.test_section_terms import TIMING as SLOW_TIMING

TIMING = replace(SLOW_TIMING, device_launch_seconds=4e-3)


class Case:
    """A graph in text form, placed by what the toy target supports: all but Cos."""

    def __init__(self, text: str, *, residents: tuple[str, ...] = (), cpu: Any = ("Cos",)) -> None:
        proto = onnx.shape_inference.infer_shapes(ir.to_proto(parse(text)))
        self.model = named(ir.from_proto(proto))
        kept = {v: SymbolKind.WEIGHT for v in self.model.graph.inputs if v.name in residents}
        inputs = tuple(v for v in self.model.graph.inputs if v not in kept)
        self.roles = Roles(inputs, tuple(self.model.graph.outputs), kept)
        toy = placement(self.model, cpu)
        self.placement = Placement(toy.reasons, toy.supports)

    def proposal(self, level: str = "o3", pinned: tuple[str, ...] = ()) -> dict[str, str] | None:
        """Return operators on the CPU by the name of their first result, with the code of the reason."""
        found = self.propose(level, pinned)
        if found is None:
            return None
        return {str(node.outputs[0].name): reason.code for node, reason in found.reasons.items()}

    def propose(self, level: str = "o3", pinned: tuple[str, ...] = (), device: Any = None) -> Any:
        machine = Machine(device or target(), load_host(), level)
        return cheapest_placement(self.model.graph, self.placement, self.roles, machine, pinned)


def test_a_small_node_between_two_fallbacks_joins_them_and_says_what_that_saves() -> None:
    case = Case(
        """g (float[64,64] x, float[64,64] w) => (float[64,64] y)
        { a = MatMul(x, w) b = Cos(a) c = Relu(b) d = Cos(c) y = MatMul(d, w) }"""
    )

    found = case.propose()

    assert case.proposal() == {"b": "operator", "c": "cheaper", "d": "operator"}
    reason = next(r for r in found.reasons.values() if r.code is ReasonCode.CHEAPER)
    (relu,) = (node for node in case.model.graph if node.op_type == "Relu")
    cpu = host_seconds(relu, load_host())
    saved = 2 * (LATENCY + 64 * 64 * 4 * (2.0**-20 + 2.0**-40)) - cpu  # type: ignore[operator]
    assert reason.message == (
        f"Relu could run on toy, but is cheaper beside Cos 'node_1': it there save "
        f"{saved * 1e6:.3g} µs per run"
    )
    assert reason.hint == "use another"


@pytest.mark.parametrize(
    ("level", "middle", "moved"),
    [
        ("o3", "Relu(b)", 0),
        ("o3", "Add(b, r)", 16),
        ("o3", "Add(b, i)", 16),
        ("o0", "Relu(b)", 2 * 16),
        ("o0", "Add(b, i)", 3 * 16),
    ],
)
def test_what_a_section_reads_and_writes_is_saved_too(level: str, middle: str, moved: int) -> None:
    """At o3 operands stay on the chip; but weights and residents are read in every run."""
    case = Case(
        f"""g (float[64] x, float[64,4] w, float[4,64] v, float[4] r) => (float[64] y)
        <float[4] i = {{1, 2, 3, 4}}>
        {{ a = MatMul(x, w) b = Cos(a) c = {middle} d = Cos(c) y = MatMul(d, v) }}""",
        residents=("r",),
    )
    rate = 2.0**10
    slow = [replace(t, bytes_per_second=rate) if t.name == "hbm" else t for t in figures().tiers]
    slow = [replace(t, bytes_per_second=rate / 8) if t.name == "ddr" else t for t in slow]
    found = case.propose(level, device=ToyTarget(replace(figures(), tiers=tuple(slow))))
    cpu = host_seconds(case.model.graph[2], load_host())
    saved = moved / rate + 2 * (LATENCY + 16 * 2.0**-20 + 16 / rate) - cpu  # type: ignore[operator]
    assert f"save {saved * 1e6:.3g} µs" in found.reasons[case.model.graph[2]].message


def test_several_nodes_are_counted_and_a_reason_without_a_hint_gives_none() -> None:
    case = Case(
        """g (float[64,64] x, float[64,64] w) => (float[64,64] y)
        { a = MatMul(x, w) b = Cos(a) c = Relu(b) d = Neg(c) e = Cos(d) y = MatMul(e, w) }"""
    )
    plain = {node: replace(reason, hint="") for node, reason in case.placement.reasons.items()}
    case.placement = replace(case.placement, reasons=plain)
    reason = case.propose().reasons[case.model.graph[2]]
    assert "'node_1': these 2 nodes there save " in reason.message
    assert reason.hint == ""


def test_nothing_moves_in_spatial_mapping_and_what_was_moved_stays() -> None:
    text = """g (float[64,64] x, float[64,64] w) => (float[64,64] y)
    { a = MatMul(x, w) b = Cos(a) c = Relu(b) d = Cos(c) y = MatMul(d, w) }"""
    case = Case(text)
    case.roles = replace(case.roles, spatial_batches=2)
    assert case.propose() is None

    case = Case(text)
    relu = case.model.graph[2]
    known = {**case.placement.reasons, relu: Reason(ReasonCode.CHEAPER, "moved before")}
    case.placement = replace(case.placement, reasons=known)
    assert case.propose(pinned=("c",)) is None


def test_a_graph_of_supported_nodes_stays_on_the_rdu_however_small() -> None:
    text = "g (float[1] x) => (float[1] y) { a = Relu(x) y = Neg(a) }"

    assert Case(text).proposal() is None


@pytest.mark.parametrize(("size", "moves"), [(32, True), (256, False)])
def test_work_that_takes_the_cpu_longer_than_copies_stays(size: int, moves: bool) -> None:
    # Two copies take 20 µs and more, a product of 32 x 32 the default host 1 µs, one of 256 x 256 half a millisecond.
    text = f"""g (float[{size},{size}] x, float[{size},{size}] w, float[4096,4096] u)
        => (float[{size},{size}] y, float[4096,4096] v)
    {{ a = Cos(x) b = MatMul(a, w) y = Cos(b) v = MatMul(u, u) }}"""
    case = Case(text, residents=("w",))
    link = replace(figures(), link_latency_seconds=10e-6, link_bytes_per_second=32e9)

    found = case.propose(device=ToyTarget(link))

    assert [n.outputs[0].name for n in found.reasons] == ["a", "b", "y"] if moves else found is None


@pytest.mark.parametrize(("level", "moves"), [("o0", True), ("o3", False)])
def test_a_launch_is_saved_where_every_operator_has_its_own(level: str, moves: bool) -> None:
    """Where operators share a section, one of them less is not one launch less."""
    case = Case(
        """g (float[256,256] x, float[256,256] w, float[4096,4096] u)
        => (float[256,256] y, float[4096,4096] v)
        { a = Cos(x) b = MatMul(a, w) y = Cos(b) v = MatMul(u, u) }""",
        residents=("w",),
    )
    # As above it is too long for the CPU in place of two copies, but not in place of a launch of 4 ms.
    link = replace(figures(), link_latency_seconds=10e-6, link_bytes_per_second=32e9)
    found = case.propose(level, device=ToyTarget(replace(link, timing=TIMING)))
    assert (found is not None) == moves


def test_an_exchange_between_rdus_stays_on_them() -> None:
    case = Case(
        """g (float[64,64] x, float[64,64] w) => (float[64,64] y)
        { a = MatMul(x, w) b = Cos(a) c = Relu(b) d = Cos(c) y = MatMul(d, w) }"""
    )
    assert case.proposal() is not None
    relu = case.model.graph[2]
    relu.domain, relu.op_type = SAMBA_DOMAIN, ALL_REDUCE
    assert case.proposal() is None


def test_the_bulk_of_the_arithmetic_stays_on_the_rdu_however_small() -> None:
    # All of this is cheaper on the CPU; but then nothing would have been ported.
    equal = "g (float[2] x) => (float[2] y) { a = Relu(x) b = Cos(a) y = Neg(b) }"
    moves = "g (float[2,1] x) => (float[1,2] y) { a = Cos(x) y = Transpose(a) }"
    # The product does 8,192 operations and Relu 64: with 64 of Neg it is less than 99 of a hundred, with 8 more.
    least = """g (float[64] x, float[64,64] w) => (float[64] y, float[NUMBER] z)
    { a = MatMul(x, w) b = Relu(a) y = Cos(b) c = Slice(b, start, stop) d = Cos(c) z = Neg(d) }"""
    least = least.replace(")\n", ") < int64[1] start = {0}, int64[1] stop = {NUMBER} >\n")

    assert Case(equal).proposal() is None
    # One operation is work, too; and what is left of 99 in a hundred, though less than one.
    assert Case(equal.replace("[2]", "[1]")).proposal() is None
    rest = """g (float[30] u, float[30] v, float[1] x) => (float y, float[1] z)
    { y = MatMul(u, v) a = Cos(x) z = Neg(a) }"""
    assert Case(rest).proposal() is None
    assert Case(moves).proposal() == {"a": "operator", "y": "cheaper"}
    assert (Case(least.replace("NUMBER", "64")).proposal() or {}).keys() == {"y", "c", "d"}
    assert (Case(least.replace("NUMBER", "8")).proposal() or {}).keys() == {"y", "c", "d", "z"}


def test_nodes_that_nothing_ties_to_a_fallback_are_put_back() -> None:
    # On the CPU, Add would save one of two copies; but it has nothing to do with Cos.
    text = """g (float[64] u, float[64] v, float[64,4096] x, float[4096,4096] w)
        => (float[64,4096] y, float[4096,64] z)
    { s = Add(u, v) t = Unsqueeze(s, one) r = MatMul(x, w) y = Mul(r, t)
      c = Cos(x) z = Transpose(c) }"""
    text = text.replace("=> (", "=> (").replace("{ s", "< int64[1] one = {1} > { s")

    assert Case(text).proposal() == {"c": "operator", "z": "cheaper"}


def test_pinned_values_keep_their_nodes() -> None:
    text = """g (float[64,64] x, float[64,64] w) => (float[64,64] y)
    { a = MatMul(x, w) b = Cos(a) c = Relu(b) d = Cos(c) y = MatMul(d, w) }"""

    assert Case(text).proposal(pinned=("c",)) is None


def test_random_numbers_are_drawn_where_they_were() -> None:
    text = """g (float[64,64] x, float[64,64] w) => (float[64,64] y)
    { a = MatMul(x, w) b = Cos(a) c = Dropout(b) d = Cos(c) y = MatMul(d, w) }"""

    assert Case(text).proposal() is None


def test_what_only_weights_decide_is_computed_on_the_host_that_reads_it() -> None:
    text = """g (float[256,256] x, float[256,256] w) => (float[256,256] y)
    { a = MatMul(x, w) t = Transpose(w) n = Neg(t) m = Mul(a, a) p = Sum(m, n)
      q = Cos(p) r = Cos(n) s = Add(q, r) y = MatMul(s, w) }"""
    case = Case(text, residents=("w",))
    late = {node.outputs[0].name for node in known_at_load(case.model.graph, case.roles)}

    assert late == {"t", "n", "r"}
    # Here the RDU reads what the weights decide, too; but a sum on the CPU costs less than the copy.
    assert (case.proposal() or {}).keys() == {"p", "q", "r", "s", "n", "t"}
    # Where that cannot move, one copy is needed either way, and the CPU has computed it at load.
    assert (case.proposal(pinned=("p",)) or {}).keys() == {"q", "r", "s", "n", "t"}

    text = text.replace("Sum(m, n)", "Relu(m)")
    case = Case(text, residents=("w",))
    found = case.propose()
    assert case.proposal() == dict.fromkeys(["t", "n", "s"], "cheaper") | dict.fromkeys(
        ["q", "r"], "operator"
    )
    sentences = {r.message for n, r in found.reasons.items() if n.op_type == "Transpose"}
    assert sentences == {
        "Transpose computes from weights only what the CPU reads for Cos 'node_5': once, when they "
        "are loaded, in place of copies in every run"
    }
    case.roles = replace(case.roles, changed=frozenset({"w"}))
    assert not known_at_load(case.model.graph, case.roles)


def test_what_has_no_known_type_is_not_computed_at_load() -> None:
    text = """g (float[4] x, float[4] w) => (float[4] y) { t = Neg(w) u = Abs(t) y = Sub(u, x) }"""
    case = Case(text, residents=("w",))
    nodes = list(case.model.graph)
    assert known_at_load(nodes, case.roles) == set(nodes[:2])
    nodes[0].outputs[0].type = None
    assert not known_at_load(nodes, case.roles)


def test_a_resident_is_on_the_device_before_and_after_a_run() -> None:
    """What the host reads of it is copied down, what the host writes of it is copied up."""
    bulk = "m = MatMul(p, q)"
    head = "g (float[64] x, float[64,64] p, float[64,64] q) => (float[64,64] m, float[64] y)"
    first = f"{head} {{ {bulk} b = Neg(x) y = Cos(b) }}"
    # Neg saves the copy of x to the device and that of b from it.
    assert Case(first).proposal() == {"b": "cheaper", "y": "operator"}
    case = Case(first)
    x = case.model.graph.inputs[0]
    residents = {x: SymbolKind.ACTIVATION}
    case.roles = replace(case.roles, inputs=tuple(case.model.graph.inputs[1:]), residents=residents)
    assert case.proposal() is None

    last = f"{head} {{ {bulk} c = Cos(x) y = Neg(c) }}"
    assert Case(last).proposal() == {"c": "operator", "y": "cheaper"}
    case = Case(last)
    m, y = case.model.graph.outputs
    case.roles = replace(case.roles, outputs=(m,), residents={y: SymbolKind.ACTIVATION})
    assert case.proposal() is None


def test_a_result_that_the_host_and_a_section_read_is_copied_either_way() -> None:
    text = """g (float[64] x, float[64,64] p, float[64,64] q) => (float[64] y, float[64] z, float[64,64] m)
    { m = MatMul(p, q) c = Cos(x) y = Neg(c) z = Dropout(y) }"""
    # Neg on the device: its operand up, and down its result. On the host: only up.
    assert Case(text).proposal() == {"c": "operator", "y": "cheaper"}


def test_nodes_that_are_computed_at_load_run_with_their_first_reader() -> None:
    text = """g (float[4] x, float[4] w) => (float[4] y)
    { t = Neg(w) u = Abs(t) a = Cos(x) b = Relu(a) c = Sub(b, u) d = Cos(c) y = Relu(d) }"""
    case = Case(text, residents=("w",))
    flow = Dataflow.of(case.model.graph)
    cpu = {"t", "u", "a", "c", "d"}
    homes = [Home.CPU if n.outputs[0].name in cpu else Home.RDU for n in flow.nodes]
    late = known_at_load(case.model.graph, case.roles)

    groups = group(flow, homes, late)

    assert [[n.outputs[0].name for n in g.nodes] for g in groups] == [
        ["a"], ["b"], ["t", "u", "c", "d"], ["y"],
    ]  # fmt: skip
    assert len(group(flow, homes)) == len(groups)


def test_what_is_computed_at_load_for_a_section_or_for_nobody_has_a_phase() -> None:
    text = """g (float[4] x, float[4] w) => (float[4] y, float[4] v)
    { t = Neg(w) v = Abs(w) a = Cos(x) b = Add(a, t) c = Cos(b) y = Relu(c) }"""
    case = Case(text, residents=("w",))
    flow = Dataflow.of(case.model.graph)
    cpu = {"t", "v", "a", "c"}
    homes = [Home.CPU if n.outputs[0].name in cpu else Home.RDU for n in flow.nodes]
    late = known_at_load(case.model.graph, case.roles)
    groups = group(flow, homes, late)
    # The fallback before the section that reads t has it; what only the caller reads is anywhere.
    assert [[n.outputs[0].name for n in g.nodes] for g in groups] == [
        ["t", "v", "a"], ["b"], ["c"], ["y"],
    ]  # fmt: skip
    on_rdu = [
        home if n.outputs[0].name != "t" else Home.RDU
        for n, home in zip(flow.nodes, homes, strict=True)
    ]
    names = [{n.outputs[0].name for n in g.nodes} for g in group(flow, on_rdu, late)]
    assert {"t", "b"} in names


@pytest.mark.parametrize("level", ["o0", "o3"])
def test_the_objective_is_smallest_over_every_choice(level: str) -> None:
    """The whole way from a graph: no choice of homes costs less by the plan's own figures.

    Latency and bytes are those of the plan's transfers; the cut has nothing else to decide here, as
    sections cost nothing next to copies on this link.
    """

    case = Case(
        """g (float[8,2048] x, float[2048,8] w, float[8,8] v) => (float[8,8] y, float[8,8] e)
        { a = MatMul(x, w) b = Cos(a) c = Relu(b) d = Add(c, a) e = Cos(d) f = Neg(e)
          h = Softmax(f) i = Mul(h, c) j = Cos(i) k = MatMul(j, v) y = Add(k, d) }""",
        residents=("w", "v"),
    )
    host, nodes = load_host(), list(case.model.graph)
    flow = Dataflow.of(nodes)

    def seconds(on_cpu: set[ir.Node]) -> float:
        homes = [Home.CPU if node in on_cpu else Home.RDU for node in nodes]
        groups = cut(group(flow, homes), target(), level)
        stages = interfaces(case.model.graph, groups, target())
        copies = run_transfers(case.roles, stages, target().summary)
        return sum(t.seconds for t in copies) + sum(host_seconds(n, host) or 0 for n in on_cpu)

    forced = {node for node in nodes if node.op_type == "Cos"}
    free = [node for node in nodes[1:] if node.op_type != "Cos"]  # the first is the bulk
    choices = (
        set(some) | forced
        for size in range(len(free) + 1)
        for some in itertools.combinations(free, size)
    )
    best = min(seconds(choice) for choice in choices)
    found = case.propose(level)
    on_cpu = forced if found is None else set(found.reasons)

    # Sections' own traffic is a millionth of what a copy costs.
    assert seconds(on_cpu) == pytest.approx(best, rel=1e-5)
