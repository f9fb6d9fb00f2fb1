"""What users say about rules, and what a PEF with rewritten nodes computes and reports."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import samba_onnx
from samba_onnx.compiling.compiler_settings import legalisation_options
from samba_onnx.errors import UsageError
from tests.passes.rewrites.applying import parse

GRAPH = """g (float[3,16] x) => (float[6,20] y) <int64[4] p = {3, 2, 0, 2}>
{ a = Relu(x)
 b = Pad<mode="reflect">(a, p)
 y = Tanh(b) }""".replace("{3, 2, 0, 2}", "{2, 2, 1, 2}")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(ir.to_proto(parse(GRAPH)), path)
    return path


def test_a_pef_computes_what_the_model_does_and_says_what_was_written(model: Path) -> None:
    with samba_onnx.convert(model) as pef:
        assert not pef.manifest.fallbacks
        (rule,) = pef.manifest.legalised
        assert (rule.rule, rule.operators, rule.transfers) == ("pad", {"Pad": 1}, 2)
        assert rule.nodes == ("Pad",)  # though the model gives its nodes no names
        assert samba_onnx.self_test(pef).passed
        assert samba_onnx.verify(model, pef).passed


def test_without_the_rule_the_transfers_are_those_that_it_saves(model: Path) -> None:
    with_rule = samba_onnx.analyze(model)
    without = samba_onnx.analyze(model, no_legalise=("pad",))
    (rule,) = with_rule.legalised
    copies = [len(m.graphs[0].run_transfers) for m in (without, with_rule)]
    assert copies[0] - copies[1] == rule.transfers
    sizes = [sum(t.bytes for t in m.graphs[0].run_transfers) for m in (without, with_rule)]
    assert sizes[0] - sizes[1] == rule.bytes
    assert without.legalised == ()


def test_an_island_of_float64_and_places_that_are_divided_run_on_the_device(tmp_path: Path) -> None:
    text = """g (float[1,40] x) => (float[1,40] y, int64[1,3] rows, int64[1,3] columns)
<int64[1] k = {3}, int64 seven = {7}, double tenth = {0.1}> {
  a = Sigmoid(x)
  v, i = TopK(a, k)
  rows = Div(i, seven)
  columns = Mod(i, seven)
  d = Cast<to=11>(a)
  e = Mul(d, tenth)
  y = Cast<to=1>(e)
}"""
    path = tmp_path / "head.onnx"
    onnx.save(ir.to_proto(parse(text)), path)
    with samba_onnx.convert(path, legalise="all") as pef:
        assert not pef.manifest.fallbacks
        assert {rule.rule for rule in pef.manifest.legalised if rule.nodes} == {
            "narrow",
            "quotient",
        }
        assert samba_onnx.verify(path, pef).passed


@pytest.mark.parametrize(
    ("legalise", "excluded", "message"),
    [
        ("some", (), "legalise is 'some': expected auto or all, float64, or all,float64"),
        ("all,", (), "legalise is 'all,': expected auto or all"),
        ("float64", ("narrow",), "--legalise float64 is what rule narrow does, which is excluded"),
        ("float64", ("all",), "--legalise float64 is what rule narrow does, which is excluded"),
        (
            "auto",
            ("padding",),
            "there is no rule 'padding' of legalisation: expected all, or one of",
        ),
        ("all", ("all",), "all rules of legalisation are asked for and excluded: choose one"),
    ],
)
def test_what_is_no_choice_is_refused(
    legalise: str, excluded: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        legalisation_options(legalise, excluded)


def test_no_rule_at_all() -> None:
    options = legalisation_options("auto", ("all",))
    assert {"pad", "lstm", "resize"} <= options.excluded
    assert np.array_equal([options.everything], [False])


def test_float64_is_computed_in_float32_where_the_user_says_so(tmp_path: Path) -> None:
    """The head of a pitch detector: a mean over bins, weighted by probabilities, whose power is a frequency."""
    text = """g (float[30,360] x, float[30,360] f) => (float[30,1] y)
<int64[1] last = {-1}, double two = {2}> {
  a = Cast<to=11>(x)
  p = Softmax(a)
  w = Cast<to=11>(f)
  m = Mul(p, w)
  s = ReduceSum(m, last)
  e = Pow(two, s)
  y = Cast<to=1>(e)
}"""
    path = tmp_path / "pitch.onnx"
    onnx.save(ir.to_proto(parse(text)), path)
    manifest = samba_onnx.analyze(path)
    assert sum(group.nodes for group in manifest.fallbacks) > 3
    hints = [change.advice for change in manifest.changes]
    assert any(hint.startswith("--legalise float64 computes it in float32") for hint in hints), (
        hints
    )
    with samba_onnx.convert(path, legalise="all,float64") as pef:
        assert not pef.manifest.fallbacks
        assert samba_onnx.verify(path, pef).passed
