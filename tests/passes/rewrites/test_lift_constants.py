from __future__ import annotations

import numpy as np
import onnx_ir as ir

from samba_onnx.passes.rewrites.lift_constants import LiftConstantsPass
from tests.passes.rewrites.applying import check, numbers, operators, parse


def test_every_kind_of_dense_constant_becomes_an_initializer() -> None:
    model = parse("""g (float[2] x) => (float[2] y, float[2] z, int64[2] s) {
 a = Constant<value = float[2] {1.0, 2.0}>()
 b = Constant<value_float: float = 3.0>()
 c = Constant<value_floats: floats = [4.0, 5.0]>()
 i = Constant<value_ints: ints = [1, 2]>()
 j = Constant<value_int: int = 7>()
 u = Add(x, a)
 v = Mul(u, b)
 y = Add(v, c)
 z = Identity(a)
 s = Add(i, j) }""")
    result = check(model, LiftConstantsPass(), inputs=[numbers(2)])
    assert "Constant" not in operators(result)
    assert set(result.graph.initializers) == {"a", "b", "c", "i", "j"}


def test_strings_keep_their_bytes() -> None:
    model = parse(
        'g (float[1] x) => (string[2] y) { y = Constant<value_strings: strings = ["a", "bc"]>() }'
    )
    LiftConstantsPass()(model)
    tensor = model.graph.initializers["y_value"].const_value
    assert isinstance(tensor, ir.StringTensor)
    assert list(tensor.string_data()) == [b"a", b"bc"]


def test_outputs_keep_their_names_in_graphs_and_branches() -> None:
    model = parse("""g (bool c) => (float[2] y, float[2] k) {
 k = Constant<value = float[2] {1.0, 2.0}>()
 y = If (c) <then_branch = t () => (float[2] a) { a = Constant<value = float[2] {5.0, 6.0}>() },
             else_branch = e () => (float[2] b) <float[2] w = {1.0, 3.0}> { b = Neg(w) }> }""")
    result = check(model, LiftConstantsPass(), inputs=[np.array(True)])
    assert all(not graph.initializers for graph in result.graph.subgraphs())
    assert [node.op_type for node in result.graph.all_nodes()].count("Constant") == 0


def test_sparse_constants_and_references_stay() -> None:
    model = parse(
        "g (float[2] x) => (float[2] y) { a = Constant<value_float: float = 1.0>()\n y = Add(x, a) }"
    )
    model.graph[0].attributes["value_float"] = ir.RefAttr(
        "value_float", "outer", ir.AttributeType.FLOAT
    )
    assert not LiftConstantsPass()(model).modified
