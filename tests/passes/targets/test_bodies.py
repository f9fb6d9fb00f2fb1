"""Which Scans a target repeats the bodies of, and why it does not repeat others."""

from __future__ import annotations

import pytest

from samba_onnx.passes.targets.reasons import ReasonCode
from tests.passes.rewrites.legalisation.legalising import TARGET, UNROLLING, prepared

BODY = (
    "b (float[2,3] h, float[2,3] e) => (float[2,3] t, float[2,3] o) { t = Add(h, e)\n o = Tanh(t) }"
)


def scan(
    inputs: str = "float[2,3] s, float[6,2,3] x",
    body: str = BODY,
    outputs: str = "float[2,3] y, float[n,2,3] z",
) -> str:
    return (
        f"g ({inputs}) => ({outputs}) {{ y, z = Scan<num_scan_inputs = 1, body = {body}>(s, x) }}"
    )


def test_a_body_of_supported_operators_is_repeated() -> None:
    (node,) = prepared(scan()).graph
    support = TARGET.support(node)
    assert (support.reason, support.evidence, support.experimental) == (None, "assumed", True)


def test_a_target_that_repeats_none_says_so() -> None:
    (node,) = prepared(scan()).graph
    reason = UNROLLING.support(node).reason
    assert reason is not None
    assert (reason.code, "repeats bodies" in reason.message) == (ReasonCode.CONTROL_FLOW, True)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (
            scan(inputs="float[2,3] s, float[n,2,3] x"),
            ReasonCode.DYNAMIC_SHAPE,
            "no number of steps that is known",
        ),
        (
            scan(inputs="float[2,3] s, float[0,2,3] x"),
            ReasonCode.DYNAMIC_SHAPE,
            "no number of steps that is known",
        ),
        (
            scan(
                body="b (float[2,3] h, double[2,3] e) => (float[2,3] t, double[2,3] o) "
                "{ t = Tanh(h)\n o = Exp(e) }",
                inputs="float[2,3] s, double[6,2,3] x",
                outputs="float[2,3] y, double[n,2,3] z",
            ),
            ReasonCode.DTYPE,
            "in its body, Exp: input input is float64",
        ),
        (
            scan(body=BODY.replace("Tanh", "Atan")),
            ReasonCode.OPERATOR,
            "Scan: in its body, Atan",
        ),
        (
            scan(
                body="b (h, float[2,3] e) => (t, float[2,3] o) { t = Concat<axis=0>(h, e)\n o = Tanh(e) }",
                outputs="float[4,3] y, float[6,2,3] z",
            ),
            ReasonCode.DYNAMIC_SHAPE,
            "changes its type or shape",
        ),
    ],
)
def test_what_a_body_must_be_is_said(text: str, code: ReasonCode, words: str) -> None:
    model = prepared(text)
    node = next(node for node in model.graph if node.op_type == "Scan")
    reason = TARGET.support(node).reason
    assert reason is not None
    assert (reason.code, words in reason.message) == (code, True), reason.message


def test_a_dynamic_length_has_a_hint() -> None:
    (node,) = prepared(scan(inputs="float[2,3] s, float[n,2,3] x")).graph
    reason = TARGET.support(node).reason
    assert reason is not None
    assert reason.hint == "--dim n=1"


def test_a_loop_is_no_body() -> None:
    text = """g (float[2] x) => (float[2] y) <int64 n = {9}, bool go = {1}> {
  y = Loop(n, go, x) <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] t) {
    d = Identity(c)
    t = Tanh(s)
  }>
}"""
    (node,) = prepared(text).graph
    reason = TARGET.support(node).reason
    assert reason is not None
    assert reason.code is ReasonCode.CONTROL_FLOW
