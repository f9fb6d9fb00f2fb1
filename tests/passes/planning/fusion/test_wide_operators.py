"""Operators of torch in float32 between Casts: one section each where no rule takes them."""

from __future__ import annotations

import onnx_ir as ir
import pytest
from onnx import parser, shape_inference

from samba_onnx.passes.planning.fusion.fusing import fuse
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


def sections(nodes: list[ir.Node]) -> list[str]:
    (pieces,) = fuse([nodes], [], [])
    return [" ".join(node.op_type for node in piece.nodes) for piece in pieces]


def test_what_is_computed_between_casts_is_one() -> None:
    assert sections(graph()) == ["Tanh", "Cast Cast Mul Add Cast", "Tanh"]


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
