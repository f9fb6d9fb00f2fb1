"""What the passes of legalisation ask of a chooser, and what they tell it and people."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.legalisation import legalise
from samba_onnx.passes.rewrites.legalisation.forms import LegalForm
from samba_onnx.passes.rewrites.legalisation.legalise import LegalisePass
from samba_onnx.passes.rewrites.legalisation.narrowing import NarrowPass
from samba_onnx.passes.rewrites.legalisation.rules import all_rules, rule_for
from tests.passes.rewrites.applying import numbers, operators, run
from tests.passes.rewrites.legalisation.legalising import Everything, legalised, prepared

EINSUM = (
    'g (float[3,4] x, float[3,4] z) => (float[3,3] y) { y = Einsum<equation="ij,kj->ik">(x, z) }'
)
ISLAND = """g (float[4] x) => (float[4] y) {
  a = Cast<to=11>(x)
  b = Abs(a)
  y = Cast<to=1>(b)
}"""
TWO = """g (float[3,4] x, float[3,4] z) => (float[3,3] y, float[3,3] w) {
  y = Einsum<equation="ij,kj->ik">(x, z)
  w = Einsum<equation="ij,kj->ik">(z, x)
}"""


class Nothing(Everything):
    """Takes nothing."""

    def choose_webs(
        self,
        model: ir.Model,
        fallbacks: Sequence[Collection[ir.Node]],
        apply: Callable[[ir.Model, Collection[int]], None],
    ) -> Collection[int]:
        self.webs = [[node.op_type for node in nodes] for nodes in fallbacks]
        copy = prepared(ISLAND)
        apply(copy, [0])
        self.copy = [value.dtype for node in copy.graph for value in node.outputs]
        return []

    def choose(self, model: ir.Model, forms: Mapping[ir.Node, LegalForm]) -> Collection[ir.Node]:
        self.offered = [form.rule for form in forms.values()]
        return []


class Watchful(Everything):
    """Must not be asked to choose between no forms."""

    def choose(self, model: ir.Model, forms: Mapping[ir.Node, LegalForm]) -> Collection[ir.Node]:
        assert forms
        return list(forms)


def test_without_a_chooser_everything_stays() -> None:
    model = prepared(EINSUM)
    assert not LegalisePass(None)(model).modified
    assert operators(model) == ["Einsum"]
    assert not NarrowPass(None)(prepared(ISLAND)).modified


def test_forms_that_are_not_chosen_are_told_with_a_reason() -> None:
    chooser = Nothing()
    rewrite = LegalisePass(chooser)
    assert not rewrite(prepared(EINSUM)).modified
    assert chooser.offered == ["einsum"]
    assert rewrite.refusals.lines() == ("Einsum 'y': rewriting it would not make a run shorter",)


def test_webs_that_are_not_chosen_are_told_with_a_reason() -> None:
    chooser = Nothing()
    rewrite = NarrowPass(chooser)
    model = prepared(ISLAND)
    assert not rewrite(model).modified
    assert operators(model) == ["Cast", "Abs", "Cast"]
    (refused,) = chooser.webs
    assert "Abs" in refused
    assert chooser.copy == [ir.DataType.FLOAT] * 3, "what is tried in a copy is narrow there"
    assert rewrite.refusals.lines() == ("Cast 'a': narrowing it would not make a run shorter",)


def test_a_rule_that_gives_up_tells_the_chooser() -> None:
    chooser = Watchful()
    model = prepared("g (int16[3] x, int64[2] i) => (int16[2] y) { y = GatherElements(x, i) }")
    assert not LegalisePass(chooser)(model).modified
    node, rule, refusal = chooser.refused
    assert (node.op_type, rule) == ("GatherElements", "gather")
    assert refusal.reason == "its indices 'i' is not constant"


@pytest.mark.parametrize(("room", "left"), [(3, 1), (4, 0)])
def test_forms_are_put_in_as_long_as_there_is_room(
    room: int, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(legalise, "MOST_ADDED", room)
    model = prepared(TWO)
    rewrite = LegalisePass(Everything())
    assert rewrite(model).modified
    assert operators(model).count("Einsum") == left
    grown = f"Einsum 'w': the graph would grow by more than {room} nodes"
    assert rewrite.refusals.lines() == ((grown,) if left else ())


def test_what_is_there_already_is_passed_on() -> None:
    text = 'g (float[3,4] x) => (float[3,4] y) { y = Einsum<equation="ij->ij">(x) }'
    assert legalised(text, [numbers(3, 4)]) == ["Identity"]


def test_constants_of_nodes_without_names_are_told_apart() -> None:
    text = """g (float[2,5] x) => (float[2,7] y, float[2,7] z) <int64[4] p = {0, 1, 0, 1}> {
  y = Pad<mode="reflect">(x, p)
  z = Pad<mode="edge">(x, p)
}"""
    model = prepared(text)
    for node, name in zip(model.graph, (None, "last"), strict=True):
        node.name = name
    before = run(model, [numbers(2, 5)])
    assert LegalisePass(Everything())(model).modified
    for old, new in zip(before, run(model, [numbers(2, 5)]), strict=True):
        np.testing.assert_array_equal(new, old)
    new_names = {name.partition("_")[0] for name in model.graph.initializers if name != "p"}
    assert {"Pad", "last"} <= new_names


def test_rules_by_name() -> None:
    rules = all_rules()
    assert [rule.name for rule in rules] == sorted(rule.name for rule in rules)
    (node,) = prepared(EINSUM).graph
    found = rule_for(node)
    assert found is not None
    assert found.name == "einsum"
    assert rule_for(node, frozenset({"einsum"})) is None
    assert {rule.numbers for rule in rules} >= {"equal"}
    narrow = next(rule for rule in rules if rule.name == "narrow")
    assert narrow.values == "those of int64 and float64"


def test_a_rule_that_is_excluded_did_not_give_up() -> None:
    chooser = Everything()
    chooser.finder.excluded = frozenset({"einsum"})
    assert not LegalisePass(chooser)(prepared(EINSUM)).modified
    assert not hasattr(chooser, "refused")


def test_rules_know_where_inputs_lie_that_run_at_all() -> None:
    chooser = Everything()
    model = prepared("g (float[9] x, int64[2] i) => (float[2] y) { y = Gather(x, i) }")
    LegalisePass(chooser)(model)
    interval = chooser.finder.bounds.of(model.graph.inputs[1])
    assert (interval.low, interval.high) == (-9, 8)
