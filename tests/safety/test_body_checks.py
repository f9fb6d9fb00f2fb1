"""Bodies take and return as much as their nodes do: what is refused onnxruntime refuses, too, and what it runs is not."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

from samba_onnx.errors import InvalidModelError
from samba_onnx.safety.graph_checks import check_model

HEADER = '<ir_version: 8, opset_import: ["": 17]>\n'


def loop(outer: str, given: str, taken: str, returned: str) -> str:
    return f"""g (float[2] x, float[2] w) => (float[2] y) {{
  n = Constant<value = int64 {{3}}>()
  {outer} = Loop({given}) <body = b (int64 i, bool c{taken}) => (bool d{returned}) {{
    d = Identity(c)
    p = Add(x, w)
    q = Mul(x, w)
  }}>
}}"""


def scan(outer: str, given: str, count: int, taken: str, returned: str) -> str:
    return f"""g (float[3,2] x, float[2] w) => (float[2] y) {{
  {outer} = Scan<num_scan_inputs = {count}, body = b ({taken}) => ({returned}) {{
    p = Add(w, w)
    q = Mul(w, w)
  }}>({given})
}}"""


def branches(outer: str, taken: str, returned: str, other: str) -> str:
    return f"""g (float[2] x, bool c) => (float[2] y) {{
  {outer} = If(c) <
    then_branch = a ({taken}) => ({returned}) {{
      p = Add(x, x)
      q = Mul(x, x)
    }}, else_branch = b () => ({other}) {{
      r = Sub(x, x)
      s = Div(x, x)
    }}>
}}"""


ONE, TWO = "float[2] p", "float[2] p, float[2] q"
MODELS = {
    "a loop": (True, loop("y", "n, , x", ", float[2] s", f", {ONE}")),
    "with a value of each step": (True, loop("y, z", "n, , x", ", float[2] s", f", {TWO}")),
    "with a state more": (False, loop("y, z", "n, , x, w", ", float[2] s", f", {TWO}")),
    "with a state less": (False, loop("y", "n, ", ", float[2] s", f", {ONE}")),
    "that returns less than its states": (
        False,
        loop("y", "n, , x, w", ", float[2] s, float[2] t", f", {ONE}"),
    ),
    "that returns less than is read": (False, loop("y, z", "n, , x", ", float[2] s", f", {ONE}")),
    "that returns more than is taken": (False, loop("y", "n, , x", ", float[2] s", f", {TWO}")),
    "a scan": (True, scan("y, z", "w, x", 1, "float[2] s, float[2] e", TWO)),
    "that scans more than it has": (False, scan("y, z", "w, x", 3, "float[2] s, float[2] e", TWO)),
    "that takes less": (False, scan("y, z", "w, x", 1, "float[2] s", TWO)),
    "a scan that returns less": (False, scan("y, z", "w, x", 1, "float[2] s, float[2] e", ONE)),
    "a scan that returns more": (False, scan("y", "w, x", 1, "float[2] s, float[2] e", TWO)),
    "a choice": (True, branches("y", "", ONE, "float[2] r")),
    "of two values": (True, branches("y, z", "", TWO, "float[2] r, float[2] s")),
    "of which a branch returns more": (False, branches("y", "", TWO, "float[2] r, float[2] s")),
    "of which one returns less": (False, branches("y, z", "", ONE, "float[2] r, float[2] s")),
    "of which one takes something": (False, branches("y", "float[2] e", ONE, "float[2] r")),
}


@pytest.mark.parametrize("name", MODELS)
def test_bodies_are_refused_as_onnxruntime_does(name: str) -> None:
    fits, text = MODELS[name]
    model = parser.parse_model(HEADER + text)
    if fits:
        check_model(model)
        session = onnxruntime.InferenceSession(model.SerializeToString())
        feeds = {
            value.name: np.ones(
                [int(size) for size in value.shape],
                np.bool_ if "bool" in value.type else np.float32,
            )
            for value in session.get_inputs()
        }
        session.run(None, feeds)
        return
    with pytest.raises(InvalidModelError, match=r"takes|returns|scans") as caught:
        check_model(model)
    assert "\n" not in str(caught.value)
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        onnxruntime.InferenceSession(model.SerializeToString())


def test_initializers_of_a_body_may_stand_among_its_inputs() -> None:
    model = parser.parse_model(HEADER + MODELS["a loop"][1])
    body = model.graph.node[1].attribute[0].g
    body.initializer.append(onnx.numpy_helper.from_array(np.ones(2, np.float32), "own"))
    check_model(model)
    body.input.append(onnx.helper.make_tensor_value_info("own", 1, [2]))
    check_model(model)


def test_bodies_that_a_function_is_given_are_checked_where_it_is_called() -> None:
    model = parser.parse_model(HEADER + MODELS["a choice"][1])
    node = onnx.NodeProto()
    node.CopyFrom(model.graph.node[0])
    function = onnx.helper.make_function(
        "mine", "choose", ["c", "x"], ["y"], [node], [onnx.helper.make_opsetid("", 17)]
    )
    for attribute in function.node[0].attribute:
        attribute.ClearField("g")
        attribute.ref_attr_name = attribute.name
    del function.attribute[:]
    function.attribute.extend(["then_branch", "else_branch"])
    model.functions.append(function)
    model.opset_import.append(onnx.helper.make_opsetid("mine", 1))
    check_model(model)
