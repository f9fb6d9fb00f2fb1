"""What a run would save by each reason, held against plans on targets that run what ours refuse."""

from __future__ import annotations

import itertools

import onnx
import onnx_ir as ir
import pytest

import samba_onnx
from samba_onnx.compiling.savings import advice
from samba_onnx.facts.advice import ADVICE, ADVICE_BY_TYPE
from samba_onnx.facts.operators import facts
from samba_onnx.passes.planning.legalising import LegalisationOptions
from samba_onnx.passes.rewrites.legalisation.functions import DEFINITION
from samba_onnx.passes.targets import load_target
from samba_onnx.passes.targets.hypotheses import hypothetical
from samba_onnx.passes.targets.reasons import OF_VALUES, Reason, ReasonCode
from samba_onnx.passes.targets.rows import DTYPE_NAMES
from samba_onnx.pef.manifest import Manifest
from samba_onnx.report import Report
from tests.passes.rewrites.applying import parse

HEADER = '<ir_version: 9, opset_import: ["": 20]>\n'
CHAIN = (
    HEADER
    + """g (float[64,64] x) => (float[64,64] y) {
  a = Relu(x)
  b = Acos(a)
  c = Relu(b)
  d = Acos(c)
  e = Relu(d)
  f = Asin(e)
  y = Relu(f)
}"""
)


def analyzed(text: str, **options: object) -> Manifest:
    return samba_onnx.analyze(onnx.parser.parse_model(text), **options)  # type: ignore[arg-type]


def totals(manifest: Manifest) -> tuple[int, int, float]:
    """Transfers, bytes and seconds of a run."""
    (graph,) = manifest.graphs
    copies = graph.run_transfers
    stages = (*manifest.sections, *manifest.fallbacks)
    seconds = sum(copy.seconds for copy in copies) + sum(stage.seconds or 0.0 for stage in stages)
    return len(copies), sum(copy.bytes for copy in copies), seconds


@pytest.mark.parametrize("placement", ["optimal", "strict"])
def test_savings_are_those_of_planning_for_a_target_that_runs_the_operator(placement: str) -> None:
    before = analyzed(CHAIN, placement=placement)
    assert [change.operator for change in before.changes] == ["Acos", "Asin"]
    for change in before.changes:
        other = hypothetical(load_target("sn40l"), [f"support={change.operator}"])
        pairs = zip(
            totals(before), totals(analyzed(CHAIN, target=other, placement=placement)), strict=True
        )
        transfers, size, seconds = (left - right for left, right in pairs)
        assert (change.transfers, change.bytes) == (transfers, size)
        assert change.seconds == pytest.approx(seconds, rel=1e-3)
        assert transfers > 0
    (bound,) = before.bounds
    everything = hypothetical(load_target("sn40l"), ["support=Acos,Asin"])
    after = analyzed(CHAIN, target=everything)
    assert (bound.transfers, bound.bytes) == totals(after)[:2] == (2, 2 * 64 * 64 * 4)
    assert bound.seconds == pytest.approx(totals(after)[2], rel=1e-3)


def test_a_model_without_fallbacks_has_nothing_to_change() -> None:
    manifest = analyzed(HEADER + "g (float[4] x) => (float[4] y) { y = Relu(x) }")
    assert (manifest.changes, manifest.bounds) == ((), ())


def test_what_values_have_to_change_is_not_taken_for_a_row_of_a_table() -> None:
    text = HEADER + "g (float[n] x) => (float[n] y) { a = Relu(x)\n y = Acos(a) }"
    manifest = analyzed(text, keep_dynamic=True)
    assert manifest.fallbacks
    assert (manifest.changes, manifest.bounds) == ((), ())


def test_nodes_of_a_type_that_is_refused_are_one_cause() -> None:
    text = (
        HEADER
        + """g (float[64,64] x) => (float[64,64] y) {
  a = Cast<to = 11>(x)
  b = Exp(a)
  c = Erf(b)
  d = Softmax(c)
  e = Cast<to = 1>(d)
  f = Acos(e)
  y = Relu(f)
}"""
    )
    manifest = analyzed(text)
    wide, other = sorted(manifest.changes, key=lambda change: change.dtype, reverse=True)
    assert (wide.code, wide.dtype, len(wide.nodes)) == ("dtype", "float64", 5)
    assert set(wide.operator.split(", ")) == {"Cast", "Exp", "Erf", "Softmax"}
    assert "float32" in wide.advice
    assert (other.operator, other.dtype) == ("Acos", "")
    report = Report.from_manifest(manifest)
    assert {change.subject for change in report.changes} == {"nodes in float64", "Acos"}
    # One alone: what computes is worth saying.
    alone = HEADER + "g (double[64] x) => (double[64] y) { y = Exp(x) }"
    (change,) = Report.from_manifest(analyzed(alone)).changes
    assert (change.dtype, change.subject) == ("float64", "Exp")


def test_advice_is_about_operators_that_no_target_runs() -> None:
    for operator in ADVICE:
        assert facts(operator, "") is not None, operator


def test_every_reason_that_a_table_could_lift_has_advice() -> None:
    """Whatever operator it is, and of all types that a target may refuse."""
    codes = set(ReasonCode) - OF_VALUES - {ReasonCode.ISLAND, ReasonCode.CHEAPER}
    names = {schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""}
    for operator, code in itertools.product([*names, "Unknown"], codes):
        node = ir.node(operator, [], domain="" if operator in names else "some.domain")
        types = DTYPE_NAMES.values() if code is ReasonCode.DTYPE else [""]
        for dtype in types:
            reason = Reason(code, "it cannot", dtype=dtype)
            text = advice(node, reason, LegalisationOptions(), left=False, refusal="")
            assert text, (operator, code, dtype)
            assert not text.endswith("."), text
    assert set(ADVICE_BY_TYPE) <= set(DTYPE_NAMES.values())


@pytest.mark.parametrize(
    ("options", "left", "refusal", "words"),
    [
        (
            LegalisationOptions(excluded=frozenset({"pad"})),
            False,
            "",
            "leave out --no-legalise pad",
        ),
        (LegalisationOptions(), True, "", "--legalise all writes it as"),
        (LegalisationOptions(), False, "its pads are not constant", "rule pad writes it as "),
    ],
)
def test_advice_names_the_rule(
    options: LegalisationOptions, left: bool, refusal: str, words: str
) -> None:
    model = parse(
        'g (float[8,4] x, int64[4] p) => (float[?,?] y) { y = Pad<mode="reflect">(x, p) }'
    )
    reason = Reason(ReasonCode.ATTRIBUTE, "Pad: attribute mode is reflect")
    text = advice(model.graph[0], reason, options, left=left, refusal=refusal)
    assert text.startswith(words)
    assert refusal in text


def test_what_an_operator_is_defined_by_is_no_advice() -> None:
    model = parse("g (double[8,4] x) => (double[8,4] y) { y = Softmax(x) }")
    reason = Reason(ReasonCode.DTYPE, "Softmax: input input is float64", dtype="float64")
    lacking = "it would need what the target lacks: ReduceMax: input data is float64"
    text = advice(
        model.graph[0], reason, LegalisationOptions(), left=False, refusal=lacking, named=DEFINITION
    )
    assert text == ADVICE_BY_TYPE["float64"]
