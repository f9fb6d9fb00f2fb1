"""Which nodes are rewritten: held against every choice that there is, planned in full."""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import onnx_ir as ir
import pytest

from samba_onnx.passes.pipeline import run_pipeline
from samba_onnx.passes.planning.legalising import LegalisationOptions, PlannedChooser
from samba_onnx.passes.planning.measuring import measure
from samba_onnx.passes.planning.optimum import Machine
from samba_onnx.passes.planning.placement import place
from samba_onnx.passes.planning.roles import Roles
from samba_onnx.passes.rewrites.legalisation.forms import LegalForm
from samba_onnx.passes.targets import Support, load_target
from samba_onnx.passes.timing.hosts import load_host
from samba_onnx.program.kinds import SymbolKind
from tests.passes.rewrites.applying import operators, parse

TARGET = load_target("sn40l")
MACHINE = Machine(TARGET, load_host(), "o3")
PAD = "<int64[2] p = {1, 1}, int64[1] a = {0}>"


def chooser(options: LegalisationOptions | None = None, **resident: SymbolKind) -> PlannedChooser:
    return PlannedChooser(
        MACHINE, options or LegalisationOptions(), graph="forward", resident=resident
    )


def rewritten(text: str, one: PlannedChooser) -> list[str]:
    model = parse(text)
    run_pipeline(model, TARGET, chooser=one)
    return operators(model)


def reflecting(source: str, result: str) -> str:
    return f'{result} = Pad<mode="reflect">({source}, p, , a)\n'


def test_a_node_between_sections_is_rewritten_and_one_between_host_nodes_is_not() -> None:
    inside = f"g (float[8,4] x) => (float[10,4] y) {PAD} {{ h = Relu(x)\n {reflecting('h', 'k')} y = Relu(k) }}"
    assert "Gather" in rewritten(inside, chooser())
    outside = inside.replace("Relu", "Acos")
    assert "Pad" in rewritten(outside, chooser())


def test_two_neighbours_are_rewritten_that_gain_nothing_alone() -> None:
    text = f"""g (float[8,4] x) => (float[12,4] y) {PAD}
{{ h = Relu(x)\n {reflecting("h", "k")} {reflecting("k", "m")} y = Relu(m) }}"""
    one = chooser()
    assert rewritten(text, one).count("Gather") >= 1
    (record,) = one.records
    assert (record.rule, len(record.nodes), record.left) == ("pad", 2, ())
    assert (record.transfers, record.operators) == (2, {"Pad": 2})
    assert one.before is not None
    assert one.after is not None
    assert one.before.transfers - one.after.transfers == record.transfers


def test_options_leave_out_a_rule_or_apply_it_at_any_price() -> None:
    text = f"g (float[8,4] x) => (float[10,4] y) {PAD} {{ h = Acos(x)\n {reflecting('h', 'k')} y = Acos(k) }}"
    one = chooser()
    assert "Pad" in rewritten(text, one)
    (record,) = one.records
    assert (len(record.left), record.nodes, record.operators) == (1, (), {})
    assert (record.transfers, record.bytes, record.seconds) == (0, 0, 0.0)
    everything = chooser(LegalisationOptions(everything=True))
    assert "Gather" in rewritten(text, everything)
    assert everything.records[0].seconds < 0
    inside = text.replace("Acos", "Relu")
    excluded = chooser(LegalisationOptions(excluded=frozenset({"pad"})))
    assert "Pad" in rewritten(inside, excluded)


def test_what_stays_on_the_device_draws_its_readers_there() -> None:
    # Copies of as many elements take longer than the launch of a section.
    text = f"g (float[2000,4] x) => (float[2002,4] y) {PAD} {{ {reflecting('x', 'y')} }}"
    assert "Pad" in rewritten(text, chooser())
    kinds = {"x": SymbolKind.ACTIVATION, "y": SymbolKind.ACTIVATION}
    assert "Gather" in rewritten(text, chooser(**kinds))


ISLAND = """g (float[64,64] x) => (float[64,64] y) <double half = {0.5}> {
  h = Relu(x)
  a = Cast<to=11>(h)
  b = Mul(a, half)
  c = Cast<to=1>(b)
  y = Relu(c)
}"""


def test_a_web_of_float64_between_sections_is_narrowed() -> None:
    one = chooser()
    assert rewritten(ISLAND, one) == ["Relu", "Mul", "Relu"]
    (record,) = one.records
    assert (record.rule, record.operators, record.left) == ("narrow", {"Cast": 2, "Mul": 1}, ())
    assert record.transfers == 2, "the copies around the fallback"
    assert record.bytes == 2 * 64 * 64 * 4
    assert record.seconds > 0
    assert one.before is not None
    assert one.before.transfers == 4


def test_a_web_of_float64_that_saves_nothing_is_left() -> None:
    outside = ISLAND.replace("Relu", "Acos")
    one = chooser()
    assert "Cast" in rewritten(outside, one)
    (record,) = one.records
    assert (record.rule, record.nodes, len(record.left)) == ("narrow", (), 3)
    everything = chooser(LegalisationOptions(everything=True))
    assert rewritten(outside, everything) == ["Acos", "Mul", "Acos"]
    assert everything.records[0].seconds < 0


def test_webs_are_left_as_the_user_says_and_where_nothing_is_proved() -> None:
    excluded = chooser(LegalisationOptions(excluded=frozenset({"narrow"})))
    assert "Cast" in rewritten(ISLAND, excluded)
    assert excluded.records == ()
    unproved = chooser()
    assert "Cast" in rewritten(ISLAND.replace("Mul(a, half)", "Exp(a)"), unproved)
    (record,) = unproved.records
    assert record.nodes == ()
    assert set(record.refused.values()) == {
        "Exp of float32 may be further from 'b' than its rounding"
    }


def test_what_narrowing_brings_counts_the_rules_behind_it() -> None:
    """A reflecting Pad of float64 is written by a rule of its own, once it is of float32."""
    text = f"""g (float[64,64] x) => (float[66,64] y) {PAD} {{
  h = Relu(x)
  d = Cast<to=11>(h)
  {reflecting("d", "b")}
  c = Cast<to=1>(b)
  y = Relu(c)
}}"""
    one = chooser()
    assert "Gather" in rewritten(text, one)
    assert {record.rule for record in one.records} == {"narrow", "pad"}
    assert all(record.transfers == 2 for record in one.records)


def test_the_host_knows_a_resident_that_no_run_changes() -> None:
    """Then a fallback that reads it needs no copy; a section that writes it is asked for one."""
    text = f"g (float[8,4] w, float[10,4] x) => (float[10,4] y) {PAD} {{ {reflecting('w', 'k')} y = Acos(k) }}"
    kinds = {"w": SymbolKind.WEIGHT}

    def transfers(**options: Any) -> int:
        one = PlannedChooser(
            MACHINE, LegalisationOptions(), graph="forward", resident=kinds, **options
        )
        rewritten(text, one)
        assert one.before is not None
        return one.before.transfers

    assert transfers() == 0
    assert transfers(changed=frozenset({"w"})) == 1
    assert transfers(changed=frozenset({"region"})) == 0
    assert transfers(changed=frozenset({"region"}), regions={"w": "region"}) == 1


def test_what_narrowing_brings_counts_what_the_host_knows_of_a_weight() -> None:
    """Its fallback reads a weight that runs change from the device; one that none changes it has."""
    text = """g (float[64,64] w, float[64,64] x) => (float[64,64] y) <double half = {0.5}> {
  a = Cast<to=11>(w)
  b = Mul(a, half)
  c = Cast<to=1>(b)
  y = Add(c, x)
}"""
    kinds = {"w": SymbolKind.WEIGHT}

    def transfers(**options: Any) -> int:
        one = PlannedChooser(
            MACHINE, LegalisationOptions(), graph="forward", resident=kinds, **options
        )
        assert rewritten(text, one) == ["Mul", "Add"]
        (record,) = one.records
        return record.transfers

    assert transfers() == 1
    assert transfers(changed=frozenset({"w"})) == 2
    assert transfers(changed=frozenset({"region"})) == 1
    assert transfers(changed=frozenset({"region"}), regions={"w": "region"}) == 2


def test_what_a_legal_form_computes_is_what_its_section_takes() -> None:
    """The product that an Einsum becomes costs what the same product costs that is written as one."""
    head = "g (float[2048,2048] x, float[2048,2048] w) => (float[2048,2048] y)"
    one = chooser()
    text = f'{head} {{ h = Relu(x)\n k = Einsum<equation="ab,bc->ac">(h, w)\n y = Relu(k) }}'
    assert "Einsum" not in rewritten(text, one)
    assert one.after is not None
    model = parse(f"{head} {{ h = Relu(x)\n k = MatMul(h, w)\n y = Relu(k) }}")
    run_pipeline(model, TARGET)
    expected = measure(model, place(model, TARGET), MACHINE, Roles.of(model.graph))
    assert (one.after.transfers, one.after.bytes) == (expected.transfers, expected.bytes)
    # The values of a form are not yet those of the graph: its longest path has two operators less.
    timing = TARGET.summary.timing
    assert timing is not None
    assert expected.seconds - one.after.seconds == pytest.approx(2 * timing.fill_seconds, rel=1e-6)


def graph(seed: int) -> str:
    """Return a random graph of nodes that the target has, lacks, and lacks but for a rule."""
    draw = random.Random(seed)
    lines, names = [], ["x0", "x1"]
    for number in range(draw.randint(9, 14)):
        first, second = draw.choice(names[-2:]), draw.choice(names)
        name = f"v{number}"
        kind = draw.choice(
            [
                "Relu({})",
                "Acos({})",
                "Add({}, {})",
                "CumSum<reverse=1>({}, axis)",
                'Einsum<equation="ab->ab">({})',
            ]
        )
        lines.append(f"{name} = {kind.format(first, second)}")
        names.append(name)
    outputs = ", ".join(f"float[3,2000] {name}" for name in names[-2:])
    body = "\n".join(lines)
    return f"g (float[3,2000] x0, float[3,2000] x1) => ({outputs}) <int64[4] p = {{0, 0, 0, 0}}, int64 axis = {{1}}> {{ {body} }}"


class Exhaustive(PlannedChooser):
    """Plans every choice that there is, in full, beside the one that is made."""

    chosen_seconds = best_seconds = 0.0
    choices = 0

    def choose(self, model: ir.Model, forms: Mapping[ir.Node, LegalForm]) -> Collection[ir.Node]:
        chosen = super().choose(model, forms)
        self.chosen_seconds = seconds(model, forms, chosen)
        every = [
            subset
            for count in range(len(forms) + 1)
            for subset in itertools.combinations(forms, count)
        ]
        self.best_seconds = min(seconds(model, forms, subset) for subset in every)
        self.choices = len(every)
        return chosen


def seconds(
    model: ir.Model, forms: Mapping[ir.Node, LegalForm], chosen: Collection[ir.Node]
) -> float:
    placement = place(model, TARGET)
    placement = replace(
        placement,
        reasons={n: r for n, r in placement.reasons.items() if n not in chosen},
        supports=dict(placement.supports) | dict.fromkeys(chosen, Support(None)),
    )
    roles = Roles.of(model.graph)
    written = {node: tuple(forms[node].graph) for node in chosen}
    return measure(
        model, placement, MACHINE, roles, lambda node: written.get(node, (node,))
    ).seconds


SECTIONS = 50e-9
"""What the cut may misjudge: it knows copies exactly, and sections by what they add to a longer one. A copy takes
10,000 ns."""


@pytest.mark.parametrize("seed", range(12))
def test_no_other_choice_makes_a_shorter_run(seed: int) -> None:
    one = Exhaustive(MACHINE, LegalisationOptions(), graph="forward", resident={})
    run_pipeline(parse(graph(seed)), TARGET, chooser=one)
    assert one.chosen_seconds <= one.best_seconds + SECTIONS
    if one.after is not None:  # what is said of the choice is what it costs, in its legal forms
        assert one.after.seconds == pytest.approx(one.chosen_seconds, rel=1e-12)


def test_the_random_graphs_have_choices() -> None:
    choices = []
    for seed in range(12):
        one = Exhaustive(MACHINE, LegalisationOptions(), graph="forward", resident={})
        run_pipeline(parse(graph(seed)), TARGET, chooser=one)
        choices.append(one.choices)
    assert sum(count >= 8 for count in choices) >= 6


@pytest.mark.parametrize(("unsized", "is_choice"), [("k", True), ("h", False)])
def test_a_result_has_the_size_of_its_legal_form_and_an_operand_needs_its_own(
    unsized: str, is_choice: bool
) -> None:
    """Nobody can plan the copy of a value of unknown size; what a rule writes states its results."""
    model = parse(
        f"g (float[8,4] x) => (float[10,4] y) {PAD} {{ h = Relu(x)\n {reflecting('h', 'k')} y = Relu(k) }}"
    )
    run_pipeline(model, TARGET, chooser=chooser(LegalisationOptions(excluded=frozenset({"pad"}))))
    one = chooser()
    (node,) = one.fallbacks(model)
    form = one.finder.find(node)
    assert isinstance(form, LegalForm)
    (value,) = (v for n in model.graph for v in n.outputs if v.name == unsized)
    value.shape = None

    chosen = one.choose(model, {node: form})

    assert (node in chosen) is is_choice
    assert (value.shape is not None) is is_choice
