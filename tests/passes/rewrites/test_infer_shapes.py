from __future__ import annotations

import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass, ShapeWriter
from samba_onnx.passes.rewrites.inference_limits import unsafe_nodes
from samba_onnx.passes.rewrites.interface import dimensions
from samba_onnx.passes.rewrites.rewriting import static_shape
from samba_onnx.program.value_types import type_text
from tests.passes.rewrites.applying import check, numbers, parse
from tests.versions import needs


def test_types_and_shapes_of_graphs_and_branches() -> None:
    model = parse("""g (bool c, float[N,4] x) => (float[M,4] y, int64[K] s) {
 s = Shape(x)
 h = Cast<to=10>(x)
 q = SequenceConstruct(h, h)
 y = If (c) <then_branch = t () => (float[A,4] a) { r = Relu(x)
 a = Neg(r) }, else_branch = e () => (float[B,4] b) { b = Abs(x) }> }""")
    assert InferShapesPass()(model).modified
    types = {v.name: type_text(v) for n in model.graph.all_nodes() for v in n.outputs}
    assert types["h"] == "tensor(float16)"
    assert types["q"] == "seq(tensor(float16))"
    assert types["r"] == "tensor(float)"
    assert dimensions(model.graph[1].outputs[0].shape) == ("N", 4)
    assert not InferShapesPass()(model).modified


def test_known_dimensions_stay_and_unknown_ones_become_static() -> None:
    model = parse(
        "g (float[2,8] x) => (float[rows,?] y) <float[odd,z] h> { h = Relu(x)\n y = Relu(h) }"
    )
    InferShapesPass()(model)
    assert dimensions(model.graph.outputs[0].shape) == (2, 8)
    dynamic = parse("g (float[n,?] x) => (float[?,?] y) { y = Relu(x) }")
    InferShapesPass()(dynamic)
    assert dimensions(dynamic.graph.outputs[0].shape) == (None, None)


def test_names_need_not_be_unique() -> None:
    model = parse(
        "g (float[2,3] x) => (float[2,1] y) { h = Relu(x)\n k = ReduceSum(h)\n y = Sub(h, k) }"
    )
    model.graph[1].outputs[0].name = "h"
    InferShapesPass()(model)
    assert [dimensions(node.outputs[0].shape) for node in model.graph][:2] == [(2, 3), (1, 1)]


class Unreadable(ir.ExternalTensor):
    """A weight that must not be read."""

    def numpy(self) -> object:  # type: ignore[override]
        raise AssertionError("a weight was read")

    tobytes = numpy  # type: ignore[assignment]


def test_weights_are_not_read() -> None:
    model = parse("g (float[2,1024] x, float[1024,4096] w) => (float[?,?] y) { y = MatMul(x, w) }")
    weight = model.graph.inputs.pop()
    weight.const_value = Unreadable(
        "missing.bin", 0, 1 << 24, ir.DataType.FLOAT, shape=ir.Shape((1024, 4096)), name="w"
    )
    model.graph.register_initializer(weight)
    InferShapesPass()(model)
    assert dimensions(model.graph.outputs[0].shape) == (2, 4096)


@pytest.mark.parametrize(
    "body",
    [
        "y = Add(x, x)",
        "h = Cast<to=11>(x)\n y = Cast<to=1>(h)",
        "h = Relu(x)\n i = Squeeze(h)\n y = Mul(i, i)",
        "y = MeanVarianceNormalization<axes=[0]>(x)",
    ],
)
def test_long_vectors_are_not_materialised(body: str) -> None:
    # 2^33 messages of 150 bytes would end the process
    model = parse(f"g (float[8589934592] x) => (float[?] y) {{ {body} }}")
    InferShapesPass()(model)
    assert dimensions(model.graph.outputs[0].shape) == (1 << 33,)


@needs("onnx", "1.23")
def test_a_vector_whose_length_a_shape_states_is_not_materialised() -> None:
    model = parse("""g (float[131072,1] x, int64[1] zero) => (int64[?] y) {
 s = Shape(x)
 n = Gather(s, zero)
 m = Mul(n, n)
 t = ConstantOfShape(m)
 c = Cast<to=7>(t)
 y = Concat<axis=0>(c, c) }""")
    zero = model.graph.inputs.pop()
    zero.const_value = ir.tensor([0], dtype=ir.DataType.INT64)
    model.graph.register_initializer(zero)
    InferShapesPass()(model)
    assert dimensions(model.graph[3].outputs[0].shape) == (1 << 34,)
    InferShapesPass()(model)
    assert dimensions(model.graph.outputs[0].shape) == (1 << 35,)


def test_many_vectors_are_not_all_materialised() -> None:
    lines = "\n".join(f"h{n + 1} = Add(h{n}, h0)" for n in range(2000))
    model = parse(f"g (int64[1024] h0) => (int64[?] h2000) {{ {lines} }}")
    unsafe = unsafe_nodes(model)
    assert len(unsafe) > 1500
    InferShapesPass()(model)
    assert dimensions(model.graph.outputs[0].shape) == (1024,)


def test_the_pieces_of_a_shape_are_safe_although_nothing_is_inferred_yet() -> None:
    model = parse("""g (float[N,64] x, float[?,?] z, int64[1] i) => (float y) {
 s = Shape(x)
 a = Slice(s, i, i)
 b = Squeeze(a)
 c = Unsqueeze(b, i)
 d = Gather(s, i)
 e = Add(c, d)
 f = Cast<to=6>(e)
 g = Cast<to=7>(f)
 h = Concat<axis=0>(g, c)
 k = Expand(x, h)
 l = Cast<to=10>(k)
 y = Add(l, l) }""")
    assert [node.op_type for node in model.graph if node in unsafe_nodes(model)] == ["Cast", "Add"]


def test_names_of_dimensions_reach_through_floats_of_unknown_rank() -> None:
    model = parse("""g (float[N,64] x, int64[1] i) => (float[?,?] y) {
 s = Shape(x)
 k = Reshape(x, s)
 h = Cast<to=10>(k)
 y = Cast<to=1>(h) }""")
    InferShapesPass()(model)
    assert dimensions(model.graph[2].outputs[0].shape) == ("N", 64)


def lengths(body: str, inputs: str = "float[N,64] x", constants: str = "") -> list[str]:
    """Return the operators of nodes whose vectors could be long."""
    model = parse(f"g ({inputs}) => (y) {constants} {{ {body} }}")
    unsafe = unsafe_nodes(model)
    return [node.op_type for node in model.graph.all_nodes() if node in unsafe]


@pytest.mark.parametrize(
    ("inputs", "unsafe"),
    [
        ("int64[1024] x", []),
        ("int64[1025] x", ["Squeeze"]),
        ("int64[N] x", ["Squeeze"]),
        ("int64 x", []),
        ("int64[4096,4096] x", []),
        ("seq(int64[9]) x", []),
        ("float[1024] x", []),
    ],
)
def test_a_vector_is_judged_by_its_declared_length(inputs: str, unsafe: list[str]) -> None:
    model = parse(f"g ({inputs}) => (y) {{ y = Squeeze(x) }}")
    assert [node.op_type for node in unsafe_nodes(model)] == unsafe


def test_what_is_declared_nowhere_may_be_long_and_an_initializer_is_as_long_as_it_is() -> None:
    model = parse("g (int64[2] x) => (y) { t = Squeeze(x)\n y = Squeeze(t) }")
    model.graph.inputs[0].shape = None
    assert len(unsafe_nodes(model)) == 2
    value = model.graph.inputs.pop()
    value.const_value = ir.tensor([1, 2])
    model.graph.register_initializer(value)
    assert not unsafe_nodes(model)


@pytest.mark.parametrize(
    ("body", "unsafe"),
    [
        ("s = Shape(x)\n y = Concat<axis=0>(s, s)", []),
        ("s = Size(x)\n y = Cast<to=6>(s)", []),
        # sixteen shapes of at most 64 elements are 1024, seventeen may be more
        ("s = Shape(x)\n y = Concat<axis=0>(s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s)", []),
        ("s = Shape(x)\n y = Concat<axis=0>(s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s)", ["Concat"]),
        ("s = Shape(x)\n y = Add(s, long)", []),
        ("s = Shape(x)\n y = Add(s, longer)", ["Add"]),
        ("s = Shape(x)\n t = Add(s, long)\n y = Concat<axis=0>(t, s)", ["Concat"]),
        ("s = Shape(x)\n y = Gather(s, i)", []),
        ("s = Shape(x)\n y = Gather(s, longer)", ["Gather"]),
        ("s = Shape(x)\n g = Gather(s, long)\n y = Concat<axis=0>(g, s)", ["Concat"]),
        ("s = Slice(long, i, i)\n y = Concat<axis=0>(s, i)", ["Concat"]),
        ("s = my.Op(x)\n y = Gather(s, i)", ["Gather"]),
        ("y = Relu(w)", []),
        ("y = my.Cast(longer)", []),
        ("y = Mul(f, f)", ["Mul"]),
        ("y = Mul(i, i)", []),
        ("y = Div(f, f)", []),
    ],
)  # fmt: skip
def test_a_result_is_judged_by_what_made_it(body: str, unsafe: list[str]) -> None:
    inputs = (
        "float[N,64] x, int64[1] i, int64[1024] long, int64[1025] longer, float[2] f, float[N] w"
    )
    model = parse(f"g ({inputs}) => (y) {{ {body} }}", imports=', "my": 1')
    found = unsafe_nodes(model)
    assert [node.op_type for node in model.graph if node in found] == unsafe


def test_all_vectors_of_a_graph_together_are_bounded() -> None:
    lines = "\n".join(f"h{n + 1} = Cast<to=7>(h{n})" for n in range(600))
    model = parse(f"g (int64[1024] h0) => (int64[?] h600) {{ {lines} }}")
    unsafe = unsafe_nodes(model)
    # each materialises 1024 elements of its operand and of its result, of 2^20 in all
    assert [node in unsafe for node in model.graph] == [False] * 512 + [True] * 88


def test_nodes_of_branches_count() -> None:
    body = """y = If (c) <then_branch = t () => (int64[N] a) { a = Squeeze(x) },
                       else_branch = e () => (int64[N] b) { b = Abs(x) }>"""
    assert lengths(body, "bool c, int64[N] x") == ["Squeeze"]


def test_a_model_with_stamped_nodes_waits_for_its_conversion() -> None:
    model = parse("g (float[2] x) => (y) { y = Relu(x) }")
    model.graph[0].version = 11
    assert not InferShapesPass()(model).modified
    model.graph[0].version = None
    assert InferShapesPass()(model).modified


@pytest.mark.parametrize(
    ("stated", "found"),
    [("?,?", ("N", 4)), ("M,?", ("M", 4)), ("M,9", ("M", 9)), ("7,?", (7, 4)), ("?", (None,))],
)
def test_what_is_stated_stays_and_the_rest_is_inferred(
    stated: str, found: tuple[int | str | None, ...]
) -> None:
    model = parse(f"g (float[N,4] x) => (y) <float[{stated}] h> {{ h = Relu(x)\n y = Exp(h) }}")
    InferShapesPass()(model)
    assert dimensions(model.graph[0].outputs[0].shape) == found


def test_an_output_without_a_shape_takes_sizes_and_no_names() -> None:
    model = parse("g (float[N,4] x) => (y) { y = Relu(x) }")
    InferShapesPass()(model)
    assert dimensions(model.graph.outputs[0].shape) == ("N", 4)
    stated = parse("g (float[N,4] x) => (float[?,?] y) { y = Relu(x) }")
    assert InferShapesPass()(stated).modified
    assert dimensions(stated.graph.outputs[0].shape) == (None, 4)


def test_functions_tell_the_types_of_their_results() -> None:
    model = parse("""g (float[2,3] x) => (float[2,3] y) { h = my.cast(x)
 y = Cast<to=1>(h) }
<domain: "my", opset_import: ["": 21]>
cast (a) => (b) { b = Cast<to=10>(a) }""", imports=', "my": 1')  # fmt: skip
    assert InferShapesPass()(model).modified
    value = model.graph[0].outputs[0]
    assert (type_text(value), dimensions(value.shape)) == ("tensor(float16)", (2, 3))


@needs("onnx", "1.23")
def test_sizes_follow_from_short_vectors_and_from_no_long_ones() -> None:
    for length, found in ((1024, (2,) * 1024), (1025, None)):
        model = parse(f"g (float[2] x, int64[{length}] s) => (y) {{ y = ConstantOfShape(s) }}")
        value = model.graph.inputs.pop()
        value.const_value = ir.tensor([2] * length, dtype=ir.DataType.INT64)
        model.graph.register_initializer(value)
        InferShapesPass()(model)
        shape = dimensions(model.graph.outputs[0].shape)
        assert shape == found


def test_an_old_file_format_is_inferred_like_a_new_one() -> None:
    model = parse("g (float[2,3] x, int64[1] s) => (y) { h = Abs(x)\n y = Reshape(h, s) }", ir_version=3, opset=8)  # fmt: skip
    value = model.graph.inputs.pop()
    value.const_value = ir.tensor([6], dtype=ir.DataType.INT64)
    model.graph.register_initializer(value)
    assert InferShapesPass()(model).modified
    assert dimensions(model.graph.outputs[0].shape) == (6,)


def test_an_attribute_that_is_a_parameter_is_left_out() -> None:
    model = parse("g (float[2,3] x) => (y) { y = Flatten<axis=0>(x) }")
    model.graph[0].attributes["axis"] = ir.RefAttr("axis", "outer", ir.AttributeType.INT)
    rewrite = InferShapesPass()
    assert rewrite(model).modified
    assert not rewrite.notes
    assert type_text(model.graph.outputs[0]) == "tensor(float)"
    model = parse("g (float[2,3] x) => (y) { y = Gemm<alpha=2.0, transA=1>(x, x) }")
    model.graph[0].attributes["alpha"] = ir.RefAttr("alpha", "outer", ir.AttributeType.FLOAT)
    assert next(iter(model.graph[0].attributes)) == "alpha"
    InferShapesPass()(model)
    assert dimensions(model.graph.outputs[0].shape) == (3, 3)


def test_what_nothing_is_inferred_of_is_no_change() -> None:
    model = parse("g (float[2] x) => (y) { y = my.Own(x) }", imports=', "my": 1')
    assert not InferShapesPass()(model).modified


def test_what_is_stated_is_left_out_but_for_types_that_onnx_cannot_infer() -> None:
    model = parse(
        """g (float[2] x) => (float[2] y, float[2] z) <float[2] h, float[2] own, float[2] hidden> {
        h = Relu(x)
        z, own = my.Two(h)
        hidden = Exp(own)
        y = Neg(hidden)
    }""",
        imports=', "my": 1',
    )
    for stated, declared, ranks in (
        (False, ["own", "hidden"], []),
        (True, ["h", "own", "hidden"], [1]),
    ):
        writer = ShapeWriter(frozenset({model.graph[2]}), stated=stated)
        graph = writer.write(model).graph
        infos = graph.value_info
        assert [writer.values[info.name].name for info in infos] == declared
        assert {
            len(info.type.tensor_type.shape.dim)
            for info in (*infos, *graph.output)
            if info.type.tensor_type.HasField("shape")
        } == set(ranks)
        assert all(info.type.tensor_type.elem_type == 1 for info in (*infos, *graph.output))


@pytest.mark.parametrize(
    ("error", "note"),
    [(RuntimeError("boom\nmore"), "boom"), (MemoryError(), "MemoryError()")],
)
def test_failure_is_noted(error: Exception, note: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr("onnx.shape_inference.infer_shapes", fail)
    rewrite = InferShapesPass()
    assert not rewrite(parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")).modified
    assert rewrite.notes == [f"shapes could not be inferred: {note}"]


def test_values_without_names_are_inferred() -> None:
    model = parse("g (float[2,3] x) => (y) { h = Relu(x)\n y = Exp(h) }")
    model.graph[0].outputs[0].name = None
    InferShapesPass()(model)
    assert dimensions(model.graph.outputs[0].shape) == (2, 3)


def test_shapes_behind_the_defaults_of_inputs_are_read() -> None:
    model = parse("""g (float[2,3] x, float[1] d) => (y, z)
<float[1] d = {1.0}, int64[1] s = {6}> { y = Reshape(x, s)\n z = Neg(d) }""")
    assert next(iter(model.graph.initializers)) == "d"
    InferShapesPass()(model)
    assert dimensions(model.graph.outputs[0].shape) == (6,)


def test_tensors_of_a_sequence_get_no_name_for_sizes_that_differ() -> None:
    """Two values of one named dimension share a buffer in onnxruntime."""
    model = parse("""g (float[2,7] x) => (float[2,a] y, float[2,b] z)
<int64[2] sizes = {5, 2}, int64 zero = {0}, int64 one = {1}> {
 s = SplitToSequence<axis=1>(x, sizes)
 p = SequenceAt(s, zero)
 q = SequenceAt(s, one)
 y = Neg(p)
 z = Neg(q) }""")
    check(model, InferShapesPass(), inputs=[numbers(2, 7)])


@pytest.mark.parametrize(("stopwords", "shape"), [("", (3,)), ("<stopwords = ['a']>", None)])
def test_texts_that_are_only_normalised_stay_as_many(
    stopwords: str, shape: tuple[int, ...] | None
) -> None:
    model = parse(
        f"g (string[3] x) => (y) {{ n = StringNormalizer{stopwords.replace(chr(39), chr(34))}(x)\n y = Identity(n) }}"
    )
    InferShapesPass()(model)
    assert static_shape(model.graph.outputs[0]) == shape


def test_eight_scales_of_a_resize_are_looked_at_and_a_weight_of_nine_floats_is_not() -> None:
    model = parse(
        """g (float[1,1,1,1,1,1,2,2] x, float[9] w) => (y, z)
        <float[8] s = {1.0,1.0,1.0,1.0,1.0,1.0,2.0,3.0}> { y = Resize(x, , s) z = Neg(w) }"""
    )
    value = model.graph.inputs.pop()
    value.const_value = ir.LazyTensor(
        lambda: pytest.fail("a weight was read"), dtype=ir.DataType.FLOAT, shape=ir.Shape([9])
    )
    model.graph.register_initializer(value)
    InferShapesPass()(model)
    assert dimensions(model.graph.outputs[0].shape) == (1, 1, 1, 1, 1, 1, 4, 6)
    assert dimensions(model.graph.outputs[1].shape) == (9,)


def test_a_type_that_has_no_shape_is_a_change() -> None:
    model = parse("g (float[2] x) => (int64[k] y) { h = Neg(x) y = Shape(h) }")
    model.graph.inputs[0].shape = None
    assert InferShapesPass()(model).modified
    assert not InferShapesPass()(model).modified
