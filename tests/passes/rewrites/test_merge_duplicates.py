from __future__ import annotations

import numpy as np
import onnx_ir as ir

from samba_onnx.passes.rewrites.merge_duplicates import MergeInitializersPass, MergeNodesPass
from samba_onnx.passes.rewrites.rewriting import WEIGHT
from samba_onnx.pef.sources import FileRegion
from tests.passes.rewrites.applying import add_weights, check, numbers, operators, parse


def test_equal_small_initializers_become_one_and_different_ones_stay() -> None:
    model = parse("""g (float[2] x) => (float[2] y)
<float[2] a = {1.0, 2.0}, float[2] b = {1.0, 2.0}, float[1,2] c = {1.0, 2.0}, float[2] d = {1.0, 3.0}> {
 p = Add(x, a)
 q = Mul(p, b)
 r = Squeeze(c)
 s = Add(q, r)
 y = Sub(s, d) }""")
    model.graph.initializers["b"].meta[WEIGHT] = True
    check(model, MergeInitializersPass(), inputs=[numbers(2)])
    assert list(model.graph.initializers) == ["a", "c", "d"]
    assert model.graph.initializers["a"].meta[WEIGHT]
    assert not MergeInitializersPass()(model).modified


def test_large_initializers_are_compared_by_place() -> None:
    class Mapped(ir.ExternalTensor):
        """A weight in a file that does not exist: reading it would fail."""

        @property
        def region(self) -> FileRegion:
            return FileRegion(self.location, self.offset or 0, self.length or 0)

    def external(name: str, offset: int) -> ir.ExternalTensor:
        return Mapped(
            "missing.bin", offset, 8192, ir.DataType.FLOAT, shape=ir.Shape((2048,)), name=name
        )

    model = parse("""g (float[2048] a, float[2048] b, float[2048] c) => (float[2048] y) {
 p = Add(a, b)
 y = Mul(p, c) }""")
    add_weights(model, {name: np.zeros(2048, np.float32) for name in "abc"})
    for name, offset in (("a", 0), ("b", 0), ("c", 8192)):
        model.graph.initializers[name].const_value = external(name, offset)
    assert MergeInitializersPass()(model).modified
    assert list(model.graph.initializers) == ["a", "c"]


def test_equal_nodes_become_one() -> None:
    model = parse("""g (float[2] x) => (float[2] y) { a = Exp(x)
 b = Exp(x)
 c = Log(x)
 d = Add(a, b)
 y = Add(d, c) }""")
    check(model, MergeNodesPass(), inputs=[numbers(2)])
    assert operators(model) == ["Exp", "Log", "Add", "Add"]


def test_nodes_behind_one_that_stays_are_merged() -> None:
    model = parse("""g (float[2] x) => (float[2] y) { n = Dropout(x)
 a = Exp(x)
 b = Exp(x)
 d = Add(a, b)
 y = Add(d, n) }""")
    check(model, MergeNodesPass(), inputs=[numbers(2)])
    assert operators(model) == ["Dropout", "Exp", "Add", "Add"]


def test_random_and_custom_nodes_stay_apart() -> None:
    model = parse(
        """g (float[2] x, bool t) => (float[2] y) { a = Bernoulli(x)
 b = Bernoulli(x)
 c = RandomNormalLike(x)
 d = RandomNormalLike(x)
 e = my.Op(x)
 f = my.Op(x)
 y = Sum(a, b, c, d, e, f) }""",
        imports=', "my": 1',
    )
    assert not MergeNodesPass()(model).modified
    assert all(not node.attributes for node in model.graph)


def test_equal_outputs_keep_their_names() -> None:
    model = parse("g (float[2] x) => (float[2] y, float[2] z) { y = Exp(x)\n z = Exp(x) }")
    before = [value.name for value in model.graph.outputs]
    for node in model.graph:
        node.name = f"of {node.outputs[0].name}"
    MergeNodesPass()(model)
    assert [value.name for value in model.graph.outputs] == before
    assert operators(model) == ["Exp", "Identity"]
    assert [node.name for node in model.graph] == ["of y", "of z"]


def merged(**tensors: ir.TensorProtocol) -> list[str]:
    """Return which initializers of a model stay that reads all of them."""
    model = parse("g (float[2] x) => (float[2] y) { y = Neg(x) }")
    for name, tensor in tensors.items():
        value = ir.Value(name=name, const_value=tensor)
        model.graph.register_initializer(value)
        model.graph.append(ir.node("Identity", [value]))
    assert MergeInitializersPass()(model).modified == (len(model.graph.initializers) < len(tensors))
    return list(model.graph.initializers)


def test_types_and_shapes_tell_equal_bytes_apart() -> None:
    zeros = np.zeros(2, np.float32)
    assert merged(
        a=ir.tensor(zeros), b=ir.tensor(zeros.astype(np.int32)), c=ir.tensor(zeros[:, None]),
        d=ir.tensor(zeros),
    ) == ["a", "b", "c"]  # fmt: skip


def test_content_is_read_up_to_4096_bytes_and_identity_counts_beyond() -> None:
    small, large = np.zeros(1024, np.float32), np.zeros(1025, np.float32)
    assert merged(a=ir.tensor(small), b=ir.tensor(small.copy())) == ["a"]
    assert merged(a=ir.tensor(large), b=ir.tensor(large.copy())) == ["a", "b"]
    shared = ir.tensor(large)
    assert merged(a=shared, b=shared, c=ir.tensor(small)) == ["a", "c"]


def test_strings_stay_and_what_comes_behind_is_merged() -> None:
    text = ir.StringTensor([b"a"], shape=ir.Shape((1,)))
    number = np.ones(2)
    assert merged(a=text, b=text, c=ir.tensor(number), d=ir.tensor(number)) == ["a", "b", "c"]


def test_initializers_that_are_inputs_or_outputs_stay() -> None:
    model = parse("g (float[1] d) => (float[1] y, float[1] o) <float[1] d = {1.0}, float[1] o = {1.0}, float[1] a = {1.0}, float[1] b = {1.0}> { p = Add(d, o)\n q = Mul(p, a)\n y = Sub(q, b) }")  # fmt: skip
    assert MergeInitializersPass()(model).modified
    assert list(model.graph.initializers) == ["d", "o", "a"]


def test_of_equal_outputs_one_node_computes_and_nothing_changes_again() -> None:
    outputs = ", ".join(f"float[2] y{i}" for i in range(5))
    body = " ".join(f"y{i} = Exp(x)" for i in range(5))
    model = parse(f"g (float[2] x) => ({outputs}) {{ {body} }}")
    check(model, MergeNodesPass(), inputs=[numbers(2)])
    assert operators(model) == ["Exp", *["Identity"] * 4]
    assert not MergeNodesPass()(model).modified


def test_an_inner_node_gives_its_place_to_an_output() -> None:
    model = parse("g (float[2] x) => (float[2] y, float[2] z) { a = Exp(x)\n y = Neg(a)\n z = Exp(x) }")  # fmt: skip
    check(model, MergeNodesPass(), inputs=[numbers(2)])
    assert operators(model) == ["Exp", "Neg"]


def test_nodes_of_several_outputs_and_of_branches_are_merged() -> None:
    model = parse("""g (bool c, float[4] x) => (float[2] y, float[2] z, float[2] w) {
 a, y = Split<num_outputs=2>(x)
 b, z = Split<num_outputs=2>(x)
 w = If (c) <then_branch = t () => (float[2] p) { m = Neg(a)
 n = Neg(a)
 p = Add(m, n) }, else_branch = e () => (float[2] q) { q = Exp(b) }> }""")
    check(model, MergeNodesPass(), inputs=[np.array(True), numbers(4)])
    assert operators(model) == ["Split", "Identity", "If"]
    assert [node.op_type for node in model.graph.all_nodes()].count("Neg") == 1


def test_tensors_in_attributes_are_compared() -> None:
    shape = "int64[1] s = {2}"
    zero, one = (f"ConstantOfShape<value = float[1] {{{number}}}>(s)" for number in ("0.0", "1.0"))
    model = parse(f"g (float[2] x) => (float[2] y) <{shape}> {{ a = {zero}\n b = {zero}\n c = {one}\n y = Sum(a, b, c, x) }}")  # fmt: skip
    check(model, MergeNodesPass(), inputs=[numbers(2)])
    assert operators(model).count("ConstantOfShape") == 2


def test_nodes_with_texts_in_a_tensor_stay() -> None:
    model = parse("""g (int64 i) => (string y, string z) {
 a = Constant<value = string[1] {"a"}>()
 b = Constant<value = string[1] {"a"}>()
 y = Gather(a, i)
 z = Gather(b, i) }""")
    assert not MergeNodesPass()(model).modified
    assert operators(model) == ["Constant", "Constant", "Gather", "Gather"]
