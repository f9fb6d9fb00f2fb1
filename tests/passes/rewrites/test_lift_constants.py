from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.lift_constants import LiftConstantsPass
from samba_onnx.passes.rewrites.rewriting import WEIGHT
from tests.passes.rewrites.applying import check, numbers, operators, parse, run


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
    model.graph.insert_before(model.graph[0], ir.node("Constant", [], {"value_float": 1.0}))
    assert LiftConstantsPass()(model).modified
    assert operators(model) == ["Constant", "Add"]


@pytest.mark.parametrize(
    ("attribute", "kind", "content"),
    [
        ('value_string: string = "ab"', "string", [b"ab"]),
        ('value_strings: strings = ["a", "b"]', "string[2]", [b"a", b"b"]),
    ],
)
def test_one_string_is_a_scalar_and_several_are_a_vector(
    attribute: str, kind: str, content: list[bytes]
) -> None:
    model = parse(f"g () => ({kind} y) {{ a = Constant<{attribute}>()\n y = Identity(a) }}")
    assert LiftConstantsPass()(model).modified
    tensor = model.graph.initializers["a"].const_value
    assert isinstance(tensor, ir.StringTensor)
    assert tensor.shape == ir.Shape(() if len(content) == 1 else (len(content),))
    assert list(tensor.string_data()) == content


def test_a_constant_of_two_attributes_is_none() -> None:
    model = parse("g () => (float y) { y = Constant<value_float: float = 1.0>() }")
    model.graph[0].attributes["value_int"] = ir.AttrInt64("value_int", 1)
    assert not LiftConstantsPass()(model).modified
    model.graph[0].attributes.pop("value_float")
    value = model.graph[0].attributes.pop("value_int")
    model.graph[0].attributes["sparse_value"] = value
    assert not LiftConstantsPass()(model).modified


def test_an_initializer_is_named_after_the_constant_or_its_node() -> None:
    text = "g (float x) => (float y) { a = Constant<value_float: float = 1.0>()\n y = Add(x, a) }"
    for name, node_name, expected in (("a", "n", "a"), (None, "n", "n"), (None, None, "constant")):
        model = parse(text)
        node = model.graph[0]
        node.name, node.outputs[0].name = node_name, name
        node.outputs[0].metadata_props["key"] = "text"
        LiftConstantsPass()(model)
        assert list(model.graph.initializers) == [expected]
        assert model.graph.initializers[expected].metadata_props["key"] == "text"
        assert operators(model) == ["Add"]


@pytest.mark.parametrize(("size", "weight"), [(1024, False), (1025, True)])
def test_a_long_constant_is_a_weight(size: int, weight: bool) -> None:
    model = parse(f"g () => (float[{size}] y) {{ y = Constant() }}")
    model.graph[0].attributes["value"] = ir.AttrTensor("value", ir.tensor(numbers(size)))
    check(model, LiftConstantsPass(), inputs=[])
    assert model.graph.initializers["y_value"].meta.get(WEIGHT, False) == weight


BRANCH = """g (bool c, float[2] x) => (float[2] y) {
 y = If (c) <then_branch = t () => (float[2] a) <float[2] w = {1.0, 3.0}> { a = Add(x, w) },
             else_branch = e () => (float[2] b) { b = Neg(x) }> }"""


def test_a_weight_of_a_branch_stays_one_and_what_comes_behind_is_lifted_too() -> None:
    model = parse(BRANCH)
    (branch, other) = model.graph.subgraphs()
    weight = branch.initializers["w"]
    weight.meta[WEIGHT] = True
    extra = ir.Value(name="k", const_value=ir.tensor(numbers(2)))
    branch.register_initializer(extra)
    check(model, LiftConstantsPass(), inputs=[np.array(True), numbers(2)])
    flags = {name: WEIGHT in value.meta for name, value in model.graph.initializers.items()}
    assert flags == {"w": True, "k": False}
    assert not branch.initializers
    assert not other.initializers


def test_an_initializer_that_a_branch_returns_becomes_an_identity() -> None:
    model = parse(BRANCH)
    (branch, _) = model.graph.subgraphs()
    branch.outputs.clear()
    branch.outputs.append(branch.initializers["w"])
    assert LiftConstantsPass()(model).modified
    assert [value.name for value in branch.outputs] == ["w"]
    assert branch[0].op_type == "Identity"
    np.testing.assert_array_equal(run(model, [np.array(True), numbers(2)])[0], [1, 3])


def strings(name: str) -> ir.Value:
    return ir.Value(
        name=name, type=ir.TensorType(ir.DataType.STRING), shape=ir.Shape([1]),
        const_value=ir.StringTensor([b"a"], shape=ir.Shape((1,))),
    )  # fmt: skip


@pytest.mark.parametrize("empty", [True, False])
def test_strings_that_are_an_output_are_one_of_a_node(empty: bool) -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Neg(x) }")
    if empty:
        model.graph.outputs.clear()
        model.graph.remove(model.graph[0], safe=True)
    output, number, inner = strings("s"), ir.Value(name="n", const_value=ir.tensor([1.0])), strings("i")  # fmt: skip
    for value in (number, output, inner):
        model.graph.register_initializer(value)
    model.graph.outputs.extend([output, number])
    assert LiftConstantsPass()(model).modified
    assert operators(model) == ["Identity", *([] if empty else ["Neg"])]
    assert set(model.graph.initializers) == {"s_value", "n", "i"}
    new = model.graph[0].outputs[0]
    assert (new.name, new.dtype, new.shape) == ("s", ir.DataType.STRING, ir.Shape([1]))
    assert model.graph[0].name == "s_output"
    assert [value.name for value in model.graph.outputs][-2:] == ["s", "n"]
    assert not LiftConstantsPass()(model).modified


def test_no_integers_are_integers_too() -> None:
    model = parse("g () => (int64[0] y) { y = Constant<value_ints: ints = [1]>() }")
    model.graph[0].attributes.add(ir.AttrInt64s("value_ints", []))
    LiftConstantsPass()(model)
    assert model.graph.initializers["y_value"].dtype == ir.DataType.INT64
