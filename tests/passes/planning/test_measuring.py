"""What a run is planned to cost: copies, starts and nodes of fallbacks, and sections, added up by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from samba_onnx.passes.planning.fusion.patterns import (
    NO_RULES,
    FusionRule,
    FusionRules,
    Pattern,
    PatternEntry,
)
from samba_onnx.passes.planning.measuring import Measure, measure
from samba_onnx.passes.planning.optimum import Machine
from samba_onnx.passes.planning.partitioning import partition
from samba_onnx.passes.planning.plan import plan
from samba_onnx.passes.planning.roles import Roles
from samba_onnx.passes.planning.sectioning import cut
from samba_onnx.passes.targets import load_target
from samba_onnx.passes.timing.hosts import host_seconds, load_host
from samba_onnx.passes.timing.schedule_time import places, schedule_time
from samba_onnx.passes.timing.section_terms import section_terms
from tests.passes.planning.plan_samples import (
    LATENCY,
    LINK,
    ToyTarget,
    figures,
    placement,
    target,
)
from tests.passes.planning.test_islands import JOINED_SPLITS, SPLITS, SPLITS_CPU
from tests.passes.planning.test_optimum import Case
from tests.passes.planning.test_records import exchanging
from tests.passes.timing.test_section_terms import TIMING

MACHINE = Machine(target(), load_host(), "o3")


def measured(
    text: str, *, residents: tuple[str, ...] = (), cpu: tuple[str, ...] = ("Cos",)
) -> Measure:
    case = Case(text, residents=residents, cpu=cpu)
    return measure(case.model, case.placement, MACHINE, case.roles)


def test_one_measure_is_more_than_another() -> None:
    assert Measure(5, 100, 2.0).minus(Measure(2, 30, 0.5)) == Measure(3, 70, 1.5)


def test_a_run_is_its_copies_its_fallbacks_and_its_sections() -> None:
    text = "g (float[64] x) => (float[64] y) { a = Relu(x) b = Cos(a) c = Sin(b) y = Neg(c) }"
    found = measured(text, cpu=("Cos", "Sin"))
    host, nodes = load_host(), list(Case(text).model.graph)
    assert (found.transfers, found.bytes) == (4, 4 * 256)
    cpu = sum(host_seconds(node, host) or 0.0 for node in nodes[1:3])
    # Each section reads and writes 256 bytes of the fastest memory outside of the chip.
    terms = [section_terms([nodes[place]], {"hbm": [512]}, figures()) for place in (0, 3)]
    rdu = sum(one.time(figures()).seconds for one in terms)
    copies = 4 * (LATENCY + 256 / LINK)
    assert found.seconds == pytest.approx(copies + host.call_seconds + cpu + rdu, rel=1e-12)


def test_a_run_is_measured_with_the_sections_that_rules_make() -> None:
    """What the host needs of three Splits in one section is worth moving an index that it needs, too."""
    case = Case(SPLITS, cpu=SPLITS_CPU)
    plain, joined = (
        measure(case.model, case.placement, Machine(target(), load_host(), "o1", rules), case.roles)
        for rules in (NO_RULES, JOINED_SPLITS)
    )
    # The index to the RDU and back, of 8 bytes each.
    assert (plain.transfers - joined.transfers, plain.bytes - joined.bytes) == (2, 16)


def test_a_section_that_a_rule_makes_moves_nothing_between_its_operators() -> None:
    """So it takes what it reads and writes, and not what passes between two of them."""
    text = "g (float[64] x) => (float[64] y) { a = Relu(x) y = Neg(a) }"
    case = Case(text)
    pair = Pattern({"a": PatternEntry(("Relu",), ("b",)), "b": PatternEntry(("Neg",))})
    rules = FusionRules((FusionRule("pair", 1, (pair,)),))
    plain, joined = (
        measure(case.model, case.placement, Machine(target(), load_host(), "o1", one), case.roles)
        for one in (NO_RULES, rules)
    )
    assert plain.seconds - joined.seconds == pytest.approx(2 * 256 / 2.0**40, rel=1e-6)


def test_a_loop_on_the_device_is_launched_once() -> None:
    text = "g (float[64] x) => (float[64] y) { a = Relu(x) b = Relu(a) c = Relu(b) y = Relu(c) }"
    case = Case(text, cpu=())

    def seconds(name: str) -> float:
        machine = Machine(load_target(name), load_host(), "o0")
        return measure(case.model, case.placement, machine, case.roles).seconds

    timing = load_target("sn40l").summary.timing
    assert timing is not None
    saved = seconds("sn40l") - seconds("sn40l:kernel-looping")
    assert saved == pytest.approx(3 * timing.launch_seconds, rel=1e-9)


SMALL = ToyTarget(
    replace(
        figures(sram=40),
        timing=TIMING,
        rdu_link_bytes_per_second=2.0**30,
        rdu_link_latency_seconds=2.0**-16,
    )
)
"""A device with room on the chip for one of two sections, of 32 bytes each, around an exchange."""


@pytest.mark.parametrize(("device", "launches"), [(load_target("sn40l"), 1), (SMALL, 2)])
def test_what_goes_on_around_an_exchange_is_measured_as_it_is_planned(
    device: Any, launches: int
) -> None:
    model = exchanging()
    homes = placement(model)
    groups = cut(partition(model, homes), device, "o3")
    found = plan(model, groups, device, graph_name="g", weight_names=(), placement=homes)
    sections = {one.id: one for one in found.sections}
    time = schedule_time(found.graph, sections, device.summary, places(found.symbols))
    assert time.launch == launches * device.summary.timing.launch_seconds
    assert time.collectives > 0
    measured = measure(model, homes, Machine(device, load_host(), "o3"), Roles.of(model.graph))
    assert measured.seconds == pytest.approx(time.total, rel=1e-12)


def test_what_is_computed_at_load_and_what_nobody_can_tell_take_no_time() -> None:
    host = load_host()
    late = "g (float[4] x, float[4] w) => (float[4] y) { t = Cos(w) y = Add(t, x) }"
    late_seconds = measured(late, residents=("w",)).seconds
    text = "g (float[4] x, float[4] t) => (float[4] y) { y = Add(t, x) }"
    # Two copies of 16 bytes either way, and one of the result.
    assert late_seconds == pytest.approx(measured(text).seconds, rel=1e-12)
    unknown = "g (float[4] x) => (float[4] y) { y = com.example.Own(x) }"
    assert measured(unknown, cpu=("Own",)) == Measure(0, 0, host.call_seconds, 1)
