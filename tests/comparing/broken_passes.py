"""Passes that are wrong on purpose, each in another way, to be put in the place of a right one."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from samba_onnx.passes.rewrites.rewriting import replace_node


class _Broken(ir.passes.InPlacePass):
    """Does something wrong to the first node of an operator that it finds, once."""

    op_type = ""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        for node in model.graph:
            if node.op_type == self.op_type and "broken" not in node.meta:
                node.meta["broken"] = True
                self.damage(model, node)
                return ir.passes.PassResult(model, modified=True)
        return ir.passes.PassResult(model, modified=False)

    def damage(self, model: ir.Model, node: ir.Node) -> None:
        raise NotImplementedError


class OtherOperatorPass(_Broken):
    """Replaces Tanh by Sigmoid."""

    op_type = "Tanh"

    def damage(self, model: ir.Model, node: ir.Node) -> None:
        new = ir.node("Sigmoid", node.inputs)
        replace_node(node, new, new.outputs)


class OtherAttributePass(_Broken):
    """Takes the softmax along another axis."""

    op_type = "Softmax"

    def damage(self, model: ir.Model, node: ir.Node) -> None:
        node.attributes["axis"] = ir.AttrInt64("axis", 0)


class OtherWeightPass(_Broken):
    """Scales the weight of a product by a thousandth."""

    op_type = "MatMul"

    def damage(self, model: ir.Model, node: ir.Node) -> None:
        weight = node.inputs[1]
        assert weight is not None
        assert weight.const_value is not None
        weight.const_value = ir.Tensor(
            weight.const_value.numpy() * np.float32(1.001), name=weight.name
        )


class OtherOperandsPass(_Broken):
    """Exchanges minuend and subtrahend."""

    op_type = "Sub"

    def damage(self, model: ir.Model, node: ir.Node) -> None:
        left, right = node.inputs
        node.replace_input_with(0, right)
        node.replace_input_with(1, left)


class UnrunnablePass(_Broken):
    """Gives a transposition a permutation of too many axes, which no engine takes."""

    op_type = "Transpose"

    def damage(self, model: ir.Model, node: ir.Node) -> None:
        node.attributes["perm"] = ir.AttrInt64s("perm", [0, 1, 2, 3])


BROKEN: dict[str, type[_Broken]] = {
    "Tanh": OtherOperatorPass,
    "Softmax": OtherAttributePass,
    "MatMul": OtherWeightPass,
    "Sub": OtherOperandsPass,
}
"""By the operator that each does wrong to; the others do what an engine refuses."""

NET = """
<ir_version: 10, opset_import: ["" : 21]>
net (float[n, 8] x) => (float[n, 4] y, float[8, n] z) {
    a = Relu(x)
    same = Identity(a)
    b = MatMul(same, w)
    c = Add(b, bias)
    d = Tanh(c)
    e = Exp(d)
    f = Sub(e, d)
    g = Softmax<axis = 1>(f)
    h = Mul(g, two)
    i = Add(h, g)
    y = Neg(i)
    j = Abs(x)
    z = Transpose<perm = [1, 0]>(j)
}
"""
