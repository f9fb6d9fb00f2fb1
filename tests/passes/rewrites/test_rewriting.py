"""What all rewrites rely on when they replace nodes and values."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.refusals import Refusal
from samba_onnx.passes.rewrites.rewriting import (
    SMALL,
    WEIGHT,
    add_constant,
    add_initializer,
    add_integers,
    constant,
    count_nodes,
    each_graph,
    folded_name,
    forward,
    inherit,
    integers,
    is_operator,
    is_read_once,
    mark_weights,
    replace_node,
    replace_node_output,
    small_array,
    static_shape,
    substitute,
)
from tests.passes.rewrites.applying import TRACE, add_weights, numbers, operators, parse

CHAIN = "g (float[2] x) => (float[2] y) { a = Relu(x)\n b = Neg(a)\n y = Exp(b) }"
NESTED = """g (bool c, float[2] x) => (float[2] y) {
 y = If (c) <then_branch = t () => (float[2] a) { h = Neg(x)
 a = Abs(h) }, else_branch = e () => (float[2] b) { b = Exp(x) }> }"""


def test_outer_graphs_come_first_and_all_nodes_are_counted() -> None:
    model = parse(NESTED)
    graphs = list(each_graph(model))
    assert graphs[0] is model.graph
    assert [graph.name for graph in graphs[1:]] == ["t", "e"]
    assert count_nodes(model) == 4


def test_an_operator_is_known_by_domain_and_type() -> None:
    model = parse("g (float[2] x) => (float[2] y) { a = Relu(x)\n y = my.Relu(a) }", imports=', "my": 1')  # fmt: skip
    first, second = model.graph
    assert is_operator(first, "Relu")
    assert is_operator(first, "Neg", "Relu")
    assert not is_operator(first, "Neg")
    assert not is_operator(second, "Relu")
    assert not is_operator(None, "Relu")


def test_only_initializers_that_are_no_inputs_are_constants() -> None:
    model = parse("g (float[2] x, float[2] d) => (float[2] y) <float[2] d = {1.0, 2.0}, float[2] w = {3.0, 4.0}> { a = Add(x, d)\n y = Add(a, w) }")  # fmt: skip
    tensor = constant(model.graph.initializers["w"])
    assert tensor is not None
    assert tensor.numpy().tolist() == [3, 4]
    assert constant(model.graph.initializers["d"]) is None
    assert constant(model.graph.inputs[0]) is None
    assert constant(None) is None
    computed = model.graph[0].outputs[0]
    computed.const_value = ir.tensor([1.0])  # as other tools note what they found out
    assert constant(computed) is None


def value_of(array: np.ndarray) -> ir.Value:
    return ir.Value(name="v", const_value=ir.tensor(array))


def test_small_content_is_read_and_large_is_not() -> None:
    found = small_array(value_of(np.zeros(SMALL)))
    assert found is not None
    assert found.size == SMALL
    assert small_array(value_of(np.zeros(SMALL + 1))) is None
    assert small_array(value_of(np.zeros(3)), 2) is None
    assert small_array(ir.Value(const_value=ir.StringTensor([b"a"], shape=ir.Shape((1,))))) is None
    assert integers(value_of(np.array([[1, 2], [3, 4]], np.uint8))) == [1, 2, 3, 4]
    assert integers(value_of(np.array(5))) == [5]
    assert integers(value_of(np.array([1.0]))) is None
    assert integers(None) is None


def test_a_static_shape_knows_every_dimension() -> None:
    for dims, found in (([2, 3], (2, 3)), ([], ()), ([2, "n"], None), ([None], None)):
        assert static_shape(ir.Value(shape=ir.Shape(dims))) == found
    assert static_shape(ir.Value()) is None
    assert static_shape(None) is None


def test_a_value_is_read_once_by_one_input_and_nobody_else() -> None:
    model = parse("g (float[2] x) => (float[2] y, float[2] a) { a = Relu(x)\n b = Neg(a)\n c = Exp(b)\n y = Add(c, c) }")  # fmt: skip
    read = {node.outputs[0].name: is_read_once(node.outputs[0]) for node in model.graph}
    assert read == {"a": False, "b": True, "c": False, "y": False}


def test_new_initializers_get_free_names_of_their_own() -> None:
    model = parse(CHAIN)
    values = [add_integers(model, "axes", [1, 2]), add_integers(model, "axes", [])]
    assert [value.name for value in values] == ["axes", "axes_1"]
    for value, content in zip(values, ([1, 2], []), strict=True):
        tensor = constant(value)
        assert tensor is not None
        assert (value.dtype, value.shape) == (ir.DataType.INT64, ir.Shape([len(content)]))
        assert tensor.numpy().tolist() == content
        assert tensor.name == value.name
        assert WEIGHT not in value.meta
    assert model.graph.initializers["axes_1"] is values[1]
    weight = add_initializer(model, "w", ir.tensor(np.ones(2, np.float32)), weight=True)
    assert weight.meta[WEIGHT]


def test_a_constant_keeps_rank_and_content_whatever_its_layout() -> None:
    model = parse(CHAIN)
    for array in (np.array(5.0), np.arange(6).reshape(2, 3).T, np.zeros((0, 2))):
        tensor = constant(add_constant(model, "c", array))
        assert tensor is not None
        assert tensor.numpy().shape == array.shape
        np.testing.assert_array_equal(tensor.numpy(), array)
        assert tensor.numpy().flags.c_contiguous


def test_what_replaces_a_graph_output_has_another_name() -> None:
    model = parse(CHAIN)
    assert folded_name(model.graph[0].outputs[0]) == "a"
    assert folded_name(model.graph[2].outputs[0]) == "y_folded"
    assert folded_name(ir.Value()) == "value"


def test_metadata_is_inherited_and_never_overwritten() -> None:
    old, new = ir.node("Relu", []), ir.node("Neg", [])
    old.metadata_props.update({"trace": "old", "line": "1"})
    new.metadata_props["trace"] = "own"
    inherit([new], old)
    assert dict(new.metadata_props) == {"trace": "own", "line": "1"}


def test_a_new_node_takes_over_name_place_types_and_readers() -> None:
    model = parse(CHAIN)
    _, old, reader = model.graph
    output = old.outputs[0]
    old.name, output.doc_string = "old", "what it is"
    output.type, output.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([2])
    output.metadata_props["key"] = "text"
    first = ir.node("Abs", [old.inputs[0]])
    second = ir.node("Neg", first.outputs)
    replace_node(old, [first, second], second.outputs)
    assert operators(model) == ["Relu", "Abs", "Neg", "Exp"]
    assert second.name == "old"
    new = second.outputs[0]
    assert reader.inputs[0] is new
    assert [use.node for use in model.graph[0].outputs[0].uses()] == [first]
    assert (new.name, new.doc_string, new.dtype, new.shape) == ("b", "what it is", ir.DataType.FLOAT, ir.Shape([2]))  # fmt: skip
    assert new.metadata_props["key"] == "text"
    assert all(TRACE in node.metadata_props for node in model.graph)


def test_a_new_node_keeps_a_name_and_types_that_the_old_one_lacked() -> None:
    model = parse(CHAIN)
    old = model.graph[1]
    old.outputs[0].type, old.outputs[0].shape = None, None
    new = ir.node("Abs", [old.inputs[0]], name="new")
    new.outputs[0].type, new.outputs[0].shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([2])
    replace_node(old, new, new.outputs)
    assert (new.name, new.outputs[0].dtype, new.outputs[0].shape) == ("new", ir.DataType.FLOAT, ir.Shape([2]))  # fmt: skip


def test_a_node_is_replaced_by_values_that_are_there() -> None:
    model = parse(CHAIN)
    replace_node(model.graph[1], [], [model.graph[0].outputs[0]])
    assert operators(model) == ["Relu", "Exp"]


def test_a_node_of_no_graph_cannot_be_replaced() -> None:
    with pytest.raises(ValueError, match="node 'loose' is in no graph"):
        replace_node(ir.node("Relu", [ir.Value()], name="loose"), [], [])


def test_a_node_of_which_more_is_read_cannot_be_replaced_by_one_output() -> None:
    text = "g (float[2] x) => ({outputs}) <int64[1] k = {{1}}> {{ v, i = TopK(x, k)\n y = Exp(v){more} }}"
    for outputs, more in (("float[1] y, int64[1] i", ""), ("float[1] y, int64[1] z", "\n z = Neg(i)")):  # fmt: skip
        model = parse(text.format(outputs=outputs, more=more))
        with pytest.raises(ValueError, match=r"output 'i' of node .* is still read"):
            replace_node_output(model.graph[0], ir.node("ReduceMax", [model.graph.inputs[0]]))
    model = parse(text.format(outputs="float[1] y", more=""))
    replace_node_output(model.graph[0], ir.node("ReduceMax", [model.graph.inputs[0]]))
    assert operators(model) == ["ReduceMax", "Exp"]


def test_readers_of_an_inner_value_read_its_substitute() -> None:
    model = parse(CHAIN)
    relu, neg, reader = model.graph
    substitute(neg, neg.outputs[0], relu.outputs[0])
    assert reader.inputs[0] is relu.outputs[0]
    assert operators(model) == ["Relu", "Neg", "Exp"]


def test_the_substitute_of_a_graph_output_is_an_identity_of_its_name() -> None:
    model = parse(CHAIN)
    old = model.graph[2]
    output = old.outputs[0]
    old.name, output.doc_string = "last", "what it is"
    output.metadata_props["key"] = "text"
    substitute(old, output, model.graph[0].outputs[0])
    assert operators(model) == ["Relu", "Neg", "Identity", "Exp"]
    identity = model.graph[2]
    (new,) = model.graph.outputs
    assert new.producer() is identity
    assert (identity.name, new.name, output.name) == ("last", "y", None)
    assert (new.dtype, new.shape, new.doc_string) == (ir.DataType.FLOAT, ir.Shape([2]), "what it is")  # fmt: skip
    assert new.metadata_props["key"] == "text"
    assert TRACE in identity.metadata_props


def test_a_dropped_node_leaves_its_readers_its_operand() -> None:
    model = parse(CHAIN)
    relu, neg, reader = model.graph
    relu.outputs[0].type = relu.outputs[0].shape = None
    neg.outputs[0].type, neg.outputs[0].shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([2])
    assert forward(neg, relu.outputs[0]) is None
    assert reader.inputs[0] is relu.outputs[0]
    assert [use.node for use in relu.outputs[0].uses()] == [reader]
    assert (relu.outputs[0].dtype, relu.outputs[0].shape) == (ir.DataType.FLOAT, ir.Shape([2]))
    assert operators(model) == ["Relu", "Exp"]
    assert isinstance(forward(neg, relu.outputs[0]), Refusal)


def test_what_is_known_of_an_operand_stays_when_its_reader_is_dropped() -> None:
    model = parse(CHAIN)
    relu, neg, _ = model.graph
    relu.outputs[0].type, relu.outputs[0].shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([2])
    neg.outputs[0].type, neg.outputs[0].shape = ir.TensorType(ir.DataType.DOUBLE), ir.Shape(["n"])
    forward(neg, relu.outputs[0])
    assert (relu.outputs[0].dtype, relu.outputs[0].shape) == (ir.DataType.FLOAT, ir.Shape([2]))


def test_an_operand_takes_over_the_name_and_shape_of_a_graph_output() -> None:
    model = parse(CHAIN)
    _, neg, last = model.graph
    output, value = last.outputs[0], neg.outputs[0]
    output.doc_string, output.metadata_props["key"] = "what it is", "text"
    value.type, value.shape = ir.TensorType(ir.DataType.DOUBLE), ir.Shape(["n"])
    assert forward(last, value) is None
    assert model.graph.outputs == [value]
    assert (value.name, value.doc_string, value.dtype, value.shape) == ("y", "what it is", ir.DataType.FLOAT, ir.Shape([2]))  # fmt: skip
    assert value.metadata_props["key"] == "text"
    untyped = parse(CHAIN)
    untyped.graph.outputs[0].type = None
    value = untyped.graph[1].outputs[0]
    value.type = ir.TensorType(ir.DataType.FLOAT)
    forward(untyped.graph[2], value)
    assert untyped.graph.outputs[0].dtype == ir.DataType.FLOAT


@pytest.mark.parametrize("operand", ["input", "weight", "output", "outside"])
def test_an_operand_that_cannot_carry_the_name_gets_an_identity(operand: str) -> None:
    if operand == "outside":
        model = parse(NESTED.replace("h = Neg(x)\n a = Abs(h)", "a = Abs(x)"))
        graph = list(each_graph(model))[1]
        node, value = graph[0], model.graph.inputs[1]
    else:
        model = parse("g (float[2] x, float[2] w) => (float[2] y, float[2] a) { a = Relu(x)\n y = Add(a, w) }")  # fmt: skip
        add_weights(model, {"w": numbers(2)})
        graph, node = model.graph, model.graph[1]
        value = {
            "input": model.graph.inputs[0],
            "weight": model.graph.initializers["w"],
            "output": model.graph[0].outputs[0],
        }[operand]
    names = [output.name for output in graph.outputs]
    assert forward(node, value) is None
    assert [output.name for output in graph.outputs] == names
    identity = graph.outputs[0].producer()
    assert identity is not None
    assert (identity.op_type, identity.inputs[0]) == ("Identity", value)
    refused = forward(identity, value)
    assert isinstance(refused, Refusal)
    assert "name of the graph's output" in refused.reason


@pytest.mark.parametrize(
    ("dtype", "size", "marked"),
    [
        (np.float32, 1, True),
        (np.float16, 1, True),
        (np.int8, 1, False),
        (np.int8, 2, True),
        (np.uint8, 2, True),
        (np.int16, 2, False),
        (np.int64, 1024, False),
        (np.int64, 1025, True),
        (np.bool_, 2, False),
    ],
)
def test_weights_are_numbers_or_narrow_or_many_integers(
    dtype: Any, size: int, marked: bool
) -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Neg(x) }")
    value = ir.Value(name="w", const_value=ir.tensor(np.zeros(size, dtype)))
    model.graph.register_initializer(value)
    mark_weights(model)
    assert value.meta.get(WEIGHT, False) is marked
