"""Every node of the main graph gets a home."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

import samba_onnx
from samba_onnx.passes.planning.placement import place
from samba_onnx.passes.rewrites.refusals import UNEXPANDED
from samba_onnx.passes.targets import load_target
from samba_onnx.passes.targets.reasons import Reason, ReasonCode

TEXT = """
<ir_version: 10, opset_import: ["": 21, "com.example": 1]>
g (float[2,3] x, bool c) => (float[2,3] y) {
    a = Relu(x)
    b = com.example.Thing(a)
    d = If(c)<
        then_branch = t () => (float[2,3] e) { e = Add(a, a) },
        else_branch = f () => (float[2,3] h) { h = Sub(a, a) }
    >
    k = Einsum<equation="ij->ij">(d)
    y = Add(a, x)
}
"""


def test_nodes_with_and_without_a_reason() -> None:
    model = ir.serde.deserialize_model(onnx.parser.parse_model(TEXT))
    for name in "ad":
        value = next(v for node in model.graph for v in node.outputs if v.name == name)
        value.type, value.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([2, 3])

    placement = place(model, load_target("sn10"))

    assert list(placement.supports) == list(model.graph)  # and none of the branches
    assert {node.op_type: reason.code for node, reason in placement.reasons.items()} == {
        "Thing": ReasonCode.DOMAIN,
        "If": ReasonCode.CONTROL_FLOW,
        "Einsum": ReasonCode.OPERATOR,
    }
    assert [node.op_type for node in model.graph if placement.on_rdu(node)] == ["Relu", "Add"]
    assert all(
        placement.supports[node].reason is reason for node, reason in placement.reasons.items()
    )


HEADER = '<ir_version: 10, opset_import: ["": 21, "com.example": 1]>'
BEHIND = """g (float[2,3] x) => (float[2,3] y, float[2,3] z) {
    a = Relu(x)
    b = com.example.Thing(a)
    c = Neg(b)
    d = com.example.Other(c)
    y = Add(x, d)
    z = Add(x, a)
}"""
HINT = "state the type and shape of 'b' in the model, as in its value_info"


def _reasons(text: str, names: dict[str, str]) -> dict[str | None, Reason]:
    """Place a graph whose nodes have the given names; return the reasons by output."""
    model = ir.from_onnx_text(f"{HEADER} {text}")
    for node in model.graph:
        node.name = names.get(str(node.outputs[0].name), f"node {node.outputs[0].name}")
        if node.op_type == "Relu":
            node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
            node.outputs[0].shape = ir.Shape([2, 3])
    reasons = place(model, load_target("sn10")).reasons
    return {node.outputs[0].name: reason for node, reason in reasons.items()}


def test_a_node_behind_an_unknown_type_names_the_node_where_it_began() -> None:
    reasons = _reasons(BEHIND, {"b": "blocks/thing"})
    assert set(reasons) == {"b", "c", "d", "y"}
    blame = "type that could not be inferred; node 'blocks/thing' (com.example::Thing) is the first"
    for name, subject in (("c", "Neg: input X"), ("y", "Add: input B")):
        assert reasons[name].code is ReasonCode.UNKNOWN_TYPE
        assert reasons[name].message == f"{subject} has a {blame} without one"
        assert reasons[name].hint == HINT
    assert {reasons[name].code for name in "bd"} == {ReasonCode.DOMAIN}


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        # Its own type is what is not known, of an operator that onnx knows: nothing to state.
        ("g (float[2,3] x) => (y) { y = Relu(x) }", "Relu: output Y has a type ", ""),
        (
            "g (float[2,3] x) => (float[2,3] y) { a = Abs(x) y = Relu(a) }",
            "could not be inferred; node 'first' (Abs) is the first without one",
            "",
        ),
        (
            "g (x) => (float[2,3] y) { y = Relu(x) }",
            "could not be inferred; input 'x' of the model states none",
            "'x'",
        ),
    ],
)
def test_what_is_not_known_without_a_node_before_it(text: str, message: str, hint: str) -> None:
    model = ir.from_onnx_text(f"{HEADER} {text}")
    model.graph[0].name = "first"
    *_, reason = place(model, load_target("sn10")).reasons.values()
    assert reason.code is ReasonCode.UNKNOWN_TYPE
    assert message in reason.message
    assert (hint in reason.hint) if hint else not reason.hint


def test_why_a_foreign_operator_is_not_expanded_is_part_of_its_reason() -> None:
    model = ir.from_onnx_text(
        f"{HEADER} g (float[2,3] x) => (float[2,3] y) {{ a = com.example.Thing(x) y = Einsum(a) }}"
    )
    target = load_target("sn10")
    for node in model.graph:
        node.outputs[0].type, node.outputs[0].shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([])
    plain = place(model, target)
    for node in model.graph:
        node.meta[UNEXPANDED] = "its mode is odd"
    placement = place(model, target)
    thing, einsum = model.graph
    assert placement.reasons[thing].message == (
        "com.example::Thing is no operator of the table of sn10, and it is not expanded: its mode is odd"
    )
    assert placement.reasons[einsum].message == (
        f"{plain.reasons[einsum].message}; it is not expanded: its mode is odd"
    )
    for node in model.graph:
        assert placement.supports[node].reason is placement.reasons[node]
        assert placement.reasons[node].code is plain.reasons[node].code


def test_a_constant_whose_type_nobody_wrote_down_is_not_blamed() -> None:
    model = ir.from_onnx_text(
        f"""{HEADER} g (float[2] x) => (float[2] y) <float[2] w = {{1, 2}}>
        {{ b = com.example.Thing(x) y = Add(w, b) }}"""
    )
    model.graph.initializers["w"].type = None
    reasons = place(model, load_target("sn10")).reasons
    assert "(com.example::Thing) is the first without one" in reasons[model.graph[1]].message


def test_a_row_and_a_stated_type_place_a_custom_operator(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(
        'extends = "sn40l"\n[operators."com.example::Thing"]\nassumed = ["float32"]\nsource = "ours"\n'
    )
    text = """g (float[batch,3] x) => (float[batch,3] y) <float[batch,3] b>
    { b = com.example.Thing(x) y = Neg(b) }"""
    model = onnx.parser.parse_model(f"{HEADER} {text}")
    with samba_onnx.convert(
        model, tmp_path / "m.pef", target=file, dims={"batch": 4}, sample=False, trial=False
    ) as pef:
        [section] = pef.manifest.sections
        assert section.operators == {"com.example::Thing": 1, "Neg": 1}
        assert not pef.manifest.fallbacks
        assert {s.name: s.shape for s in pef.manifest.symbols if s.name in "xy"} == {
            "x": (4, 3),
            "y": (4, 3),
        }
    del model.graph.value_info[:]
    manifest = samba_onnx.analyze(model, target=file, dims={"batch": 4})
    assert not manifest.sections
    [fallback] = manifest.fallbacks
    assert [node.hint for node in fallback.reasons] == [HINT, HINT]
    alone = ir.from_onnx_text(f"{HEADER} g (float[4,3] x) => (y) {{ y = com.example.Thing(x) }}")
    [reason] = place(alone, load_target(file)).reasons.values()
    assert reason.hint == HINT.replace("'b'", "'y'")
