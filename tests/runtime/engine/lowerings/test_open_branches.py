"""Branches without sizes from outside: what they read before and after, and the numbers."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import parser

from samba_onnx.runtime.engine.lowerings.open_branches import open_branches

HEADER = '<ir_version: 10, opset_import: ["" : 21]>\n'
DEAD = (
    HEADER
    + """g (float[2, 6] x, bool c) => (float[2, 6] y) <float[5] w = {1, 2, 3, 4, 5}, float[2, 6] h> {
  h = Relu(x)
  y = If (c) <then_branch = t () => (float[2, 5] a) <float[2, 5] a> { a = Add(h, w) },
              else_branch = e () => (float[2, 6] b) { b = Neg(h) }>
}"""
)


def operators(graph: onnx.GraphProto) -> list[str]:
    return [node.op_type for node in graph.node]


def run(proto: onnx.ModelProto, **feeds: object) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    results: list[np.ndarray] = ort.InferenceSession(proto.SerializeToString(), options).run(
        None, feeds
    )
    return results


def test_a_branch_that_never_fits_is_prepared_and_left_out() -> None:
    model = parser.parse_model(DEAD)
    x = np.random.default_rng(0).standard_normal((2, 6)).astype(np.float32)
    with pytest.raises(Exception, match="If"):
        run(model, x=x, c=np.array(False))
    assert open_branches(model) == {"w": "it is a constant"}
    made = ["Cast", "Constant", "Reshape", "Shape", "Where", "Reshape"]
    assert operators(model.graph) == ["Relu", *made, "If"]
    inner = {a.name: a.g for a in model.graph.node[-1].attribute}
    opened = model.graph.node[-2].output[0]
    assert [list(graph.node[0].input) for graph in inner.values()] == [[opened, "w"], [opened]]
    assert not any(
        value.type.tensor_type.HasField("shape")
        for graph in inner.values()
        for value in (*graph.output, *graph.value_info)
    )
    np.testing.assert_array_equal(run(model, x=x, c=np.array(False))[0], -np.maximum(x, 0))
    with pytest.raises(Exception, match="Add"):  # what is executed is checked
        run(model, x=x, c=np.array(True))


KEPT = {
    "no branches": ("float[2] x", "y = Relu(x)", {}),
    "a body that is always executed": (
        "float[2] x",
        """m = Constant <value_int = 3> () y = Loop (m, , x) <body = l (int64 i, bool k, float[2] s)
           => (bool go, float[2] n) { go = Identity(k) n = Add(s, x) }>""",
        {},
    ),
    "a condition that is a constant": (
        "float[2] x",
        """c = Constant <value = bool {1}> () y = If (c) <then_branch = t () => (float[2] a)
           { a = Neg(x) }, else_branch = e () => (float[2] b) { b = Exp(x) }>""",
        {},
    ),
    "scalars": (
        "float x, bool c",
        """y = If (c) <then_branch = t () => (float a) { a = Neg(x) },
                       else_branch = e () => (float b) { b = Exp(x) }>""",
        {"x": "it has no dimensions"},
    ),
    "sequences": (
        "seq(float[2]) x, bool c",
        """y = If (c) <then_branch = t () => (int64 a) { a = SequenceLength(x) },
                       else_branch = e () => (int64 b) { b = Constant <value_int = 1> () }>""",
        {"x": "it is no tensor"},
    ),
    "values of unknown type": (
        "float[2] x, bool c",
        """h = Relu(x) y = If (c) <then_branch = t () => (float[2] a) { a = Neg(h) },
                       else_branch = e () => (float[2] b) { b = Exp(h) }>""",
        {"h": "its type is not declared"},
    ),
}


@pytest.mark.parametrize(("inputs", "body", "reasons"), KEPT.values(), ids=KEPT.keys())
def test_what_has_no_sizes_to_hide_stays(inputs: str, body: str, reasons: dict[str, str]) -> None:
    model = parser.parse_model(f"{HEADER}g ({inputs}) => (y) {{ {body} }}")
    before = operators(model.graph)
    assert open_branches(model) == reasons
    assert operators(model.graph) == before


def test_names_inside_that_hide_those_outside_keep_their_meaning() -> None:
    """A body's own value of the same name as one outside is not the one outside."""
    model = parser.parse_model(
        HEADER
        + """g (float[2] x, float[2] z, bool c) => (float[2] y) {
        y = If (c) <then_branch = t () => (float[2] a) { a = Add(x, z) },
                    else_branch = e () => (float[2] x) { x = Identity(z) }> }"""
    )
    open_branches(model)
    inner = {a.name: a.g for a in model.graph.node[-1].attribute}
    assert inner["else_branch"].output[0].name == inner["else_branch"].node[0].output[0]


def test_branches_in_branches_and_values_returned_as_they_are() -> None:
    model = parser.parse_model(
        HEADER
        + """g (float[2, 6] x, bool c, bool d) => (float[a, b] y) <float[5] w = {1, 2, 3, 4, 5}> {
        y = If (c) <
          then_branch = t () => (float[e, f] p) {
            p = If (d) <then_branch = u () => (float[g, h] q) { q = Add(x, w) },
                        else_branch = v () => (float[i, j] r) { r = Exp(x) }> },
          else_branch = s () => (float[k, l] o) { o = Identity(x) }> }"""
    )
    open_branches(model)
    x = np.random.default_rng(0).standard_normal((2, 6)).astype(np.float32)
    true, false = np.array(True), np.array(False)
    np.testing.assert_array_equal(run(model, x=x, c=false, d=true)[0], x)
    np.testing.assert_allclose(run(model, x=x, c=true, d=false)[0], np.exp(x), rtol=1e-6)
