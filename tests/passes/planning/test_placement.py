"""Every node of the main graph gets a home."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from samba_onnx.passes.planning.placement import place
from samba_onnx.passes.targets import load_target
from samba_onnx.passes.targets.reasons import ReasonCode

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
