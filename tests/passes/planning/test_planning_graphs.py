"""Plans of several graphs that go into one PEF."""

from __future__ import annotations

import pytest

from samba_onnx.errors import UsageError
from samba_onnx.pef.manifest import Call
from samba_onnx.program.kinds import SectionType
from tests.passes.planning.plan_samples import target
from tests.passes.planning.planned import made


def test_graphs_of_one_pef_share_weights_and_values_by_name() -> None:
    forward = made(
        """g (float[4] x) => (float[4] y, float[4] a) <float[4] w = {1, 2, 3, 4}> {
            a = Mul (x, w)
            y = Relu (a)
        }"""
    )
    backward = made(
        """g (float[4] a, float[4] d) => (float[4] e) <float[4] w = {1, 2, 3, 4}> {
            f = Mul (d, w)
            e = Mul (f, a)
        }""",
        graph_name="backward",
        first_stage=1,
        earlier=(forward,),
    )
    (section,) = backward.sections
    assert (section.id, section.type, section.graph) == (1, SectionType.FWD, "backward")
    assert section.member == "stages/001_FWD.onnx"
    assert backward.graph.calls == (Call(0, 1),)
    assert backward.graph.load_transfers == ()
    assert [region.name for region in backward.regions] == ["d", "e"]
    assert {s.name: s.region for s in backward.symbols}["a"] == "a"


def test_graphs_that_mean_different_values_by_one_name() -> None:
    forward = made("g (float[4] x) => (float[4] y) { y = Relu (x) }")
    with pytest.raises(UsageError, match="share region 'x' with one of 16 bytes"):
        made("g (float[8] x) => (float[8] z) { z = Relu (x) }", earlier=(forward,))


def test_graphs_of_one_pef_lie_beside_each_other() -> None:
    small = target(hbm=48)
    forward = made("g (float[4] x) => (float[4] y) { y = Relu (x) }", device=small)
    backward = made(
        "g (float[4] d) => (float[4] e) { e = Neg (d) }", earlier=(forward,), device=small
    )
    tiers = {region.name: region.tier for region in (*forward.regions, *backward.regions)}
    assert tiers == {"x": "hbm", "y": "hbm", "d": "hbm", "e": "ddr"}


def test_stages_of_all_graphs_have_names_of_their_own() -> None:
    text = "g (float[4] x) => (float[4] y) { a = Cos (x)  y = Relu (a) }"
    first = made(text)
    second = made(text, earlier=(first,), first_stage=2)
    names = [stage.name for plan in (first, second) for stage in (*plan.fallbacks, *plan.sections)]
    assert names == ["Cos", "Relu", "Cos_2", "Relu_2"]
