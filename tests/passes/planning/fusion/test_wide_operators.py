"""Operators of torch in float32 between Casts: one section each where no rule takes them."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import pytest
from onnx import parser, shape_inference

from samba_onnx.passes.planning.fusion.fusing import fuse
from samba_onnx.passes.planning.fusion.patterns import FusionRule, Pattern, PatternEntry
from samba_onnx.passes.planning.fusion.wide_operators import wide_operators
from samba_onnx.program.dataflow import Dataflow
from samba_onnx.program.scopes import OPERATOR_KEY, OWN_SCOPE_KEY
from samba_onnx.program.source_location import STACK_TRACE

GRAPH = """<ir_version: 10, opset_import: ["": 21]>
g (bfloat16[4, 8] x, bfloat16[4, 8] z) => (bfloat16[4, 8] y) <float s = {0.3}> {
    a = Tanh(x) w = Cast<to = 1>(a) v = Cast<to = 1>(z) b = Mul(w, s) c = Add(b, v)
    n = Cast<to = 16>(c) y = Tanh(n) }"""


def graph(operator: str = "", scope: str = "net", text: str = GRAPH) -> list[ir.Node]:
    """Return nodes; Casts and what is between them are said to be of an operator of a module."""
    proto = shape_inference.infer_shapes(parser.parse_model(text))
    nodes = list(ir.from_proto(proto).graph)
    for place, node in enumerate(nodes):
        line = f"net.py:{10 + place if node.op_type == 'Tanh' else 3}"
        node.metadata_props.update({OWN_SCOPE_KEY: scope, STACK_TRACE: line})
        node.metadata_props[OPERATOR_KEY] = operator if node.op_type == "Cast" else ""
    return nodes


def sections(nodes: list[ir.Node], rules: Sequence[FusionRule] = ()) -> list[str]:
    (pieces,) = fuse([nodes], [], rules)
    return [" ".join(node.op_type for node in piece.nodes) for piece in pieces]


def test_what_is_computed_between_casts_is_one() -> None:
    assert list(wide_operators(Dataflow.of(graph()))) == [[1, 2, 3, 4, 5]]
    assert sections(graph()) == ["Tanh", "Cast Cast Mul Add Cast", "Tanh"]


def test_every_operator_is_found_once_and_by_its_own_line() -> None:
    """Two of them, one behind the other, whose result is read as it is and narrowed again."""
    nodes = graph(
        text="""<ir_version: 10, opset_import: ["": 21]>
        g (bfloat16[4, 8] x, float[4, 8] f) => (bfloat16[4, 8] y, bfloat16[4, 8] e) {
            k = Cast<to = 16>(f) w = Cast<to = 1>(x) b = Exp(w) n = Cast<to = 16>(b)
            v = Cast<to = 1>(n) u = Cast<to = 1>(k) c = Add(v, u) d = Neg(c) m = Cast<to = 16>(d)
            y = Tanh(m) q = Cast<to = 1>(y) e = Cast<to = 16>(q) }"""
    )
    for node in nodes[4:9]:
        node.metadata_props[STACK_TRACE] = "net.py:4"
    nodes[0].metadata_props[STACK_TRACE] = nodes[9].metadata_props[STACK_TRACE] = "net.py:5"
    # The Casts at the end compute nothing; the first one narrows what nothing here has widened.
    assert list(wide_operators(Dataflow.of(nodes))) == [[1, 2, 3], [4, 5, 6, 7, 8]]


def test_operators_whose_nodes_stand_among_each_other_are_two() -> None:
    """And what one of them computes of float32 alone is no part of it."""
    nodes = graph(
        text="""<ir_version: 10, opset_import: ["": 21]>
        g (bfloat16[4, 8] x, bfloat16[4, 8] z, float[4, 8] f) => (bfloat16[4, 8] y, bfloat16[4, 8] e) {
            own = Exp(f) w = Cast<to = 1>(x) v = Cast<to = 1>(x) u = Cast<to = 1>(z)
            a = Add(w, u) b = Add(a, own) c = Neg(v) y = Cast<to = 16>(b) e = Cast<to = 16>(c) }"""
    )
    for place in (2, 6, 8):
        nodes[place].metadata_props[STACK_TRACE] = "net.py:4"
    assert list(wide_operators(Dataflow.of(nodes))) == [[1, 3, 4, 5, 7], [2, 6, 8]]


def test_nodes_of_which_nothing_is_known_are_apart() -> None:
    nodes = graph()
    for node in nodes:
        node.metadata_props.clear()
    assert list(wide_operators(Dataflow.of(nodes))) == []


APART = GRAPH.replace("b = Mul(w, s)", "b = Mul(w, s) o = Tanh(z)").replace(
    "=> (bfloat16[4, 8] y)", "=> (bfloat16[4, 8] y, bfloat16[4, 8] o)"
)
"""With an operator of another line among the nodes of the one."""


def test_it_is_one_section_though_others_stand_between() -> None:
    found = sections(graph(text=APART))
    assert sorted(found) == ["Cast Cast Mul Add Cast", "Tanh", "Tanh", "Tanh"]


def test_of_which_a_rule_has_a_part_the_rest_is_not_joined() -> None:
    entries = {"a": PatternEntry(("Mul",), ("b",)), "b": PatternEntry(("Add",))}
    found = sections(graph(text=APART), [FusionRule("scaled sum", 1, (Pattern(entries),))])
    assert "Mul Add" in found
    assert "Cast Cast Cast" not in found


@pytest.mark.parametrize(
    "nodes",
    [
        graph("to"),  # the model converts itself
        graph(scope=""),  # no program of ours
        graph(
            text=GRAPH.replace("n = Cast<to = 16>(c) y = Tanh(n)", "y = Cast<to = 16>(c)")[:-1]
            + "}"
        )[:4],
        graph(
            text=GRAPH.replace("Add(b, v)", "MatMul(b, t)")
            .replace("b = Mul", "t = Transpose(v) b = Mul")
            .replace("[4, 8] y", "[4, 4] y")
        ),
    ],
    ids=["conversion", "foreign", "returns float32", "product"],
)
def test_what_is_something_else_stays_apart(nodes: list[ir.Node]) -> None:
    assert list(wide_operators(Dataflow.of(nodes))) == []
