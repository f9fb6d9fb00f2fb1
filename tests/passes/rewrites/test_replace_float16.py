from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.interface import Interface
from samba_onnx.passes.rewrites.replace_float16 import ReplaceFloat16Pass
from samba_onnx.passes.rewrites.rewriting import each_graph
from tests.passes.rewrites.applying import TRACE, add_weights, numbers, operators, parse, run

HALF, WIDE = ir.DataType.FLOAT16, ir.DataType.FLOAT


def replaced(
    text: str,
    weights: dict[str, np.ndarray] | None = None,
    *,
    inputs: list[np.ndarray] | None = None,
    dtype: ir.DataType = WIDE,
    imports: str = "",
) -> ir.Model:
    """Replace; the interface stays, and results are those of float16 but for its roundings."""
    model = add_weights(parse(text, imports=imports), weights or {})
    model = InferShapesPass()(model).model
    interface = Interface.of(model)
    before = None if inputs is None else run(model, inputs)
    rewrite = ReplaceFloat16Pass(dtype)
    assert rewrite(model).modified
    interface.check(model, "under test", static_inputs=False, static_outputs=False)
    assert "mine" in imports or not rewrite(model).modified
    assert all(
        TRACE in node.metadata_props
        for node in model.graph.all_nodes()
        if not all(value.is_initializer() for value in node.inputs if value is not None)
    )
    onnx.checker.check_model(ir.to_proto(model), full_check=not imports)
    if inputs is not None and before is not None:
        for old, new in zip(before, run(model, inputs), strict=True):
            assert old.dtype == new.dtype
            np.testing.assert_allclose(new.astype(np.float32), old.astype(np.float32), rtol=2e-3)
    return model


def inner_types(model: ir.Model) -> set[ir.DataType | None]:
    """Return the types of what nodes compute, without the model's outputs."""
    return {
        value.dtype
        for graph in each_graph(model)
        for node in graph
        for value in node.outputs
        if value not in model.graph.outputs
    }


def test_values_and_weights_change_and_the_interface_stays() -> None:
    weight = numbers(3, 4).astype(np.float16)
    model = replaced(
        "g (float16[2,3] x, float16[3,4] w) => (float16[2,4] y) { h = MatMul(x, w)\n y = Relu(h) }",
        {"w": weight},
        inputs=[numbers(2, 3).astype(np.float16)],
    )
    assert operators(model) == ["Cast", "MatMul", "Relu", "Cast"]
    assert inner_types(model) == {WIDE}
    tensor = model.graph.initializers["w"].const_value
    assert isinstance(tensor, ir.LazyTensor)
    np.testing.assert_array_equal(tensor.numpy(), weight.astype(np.float32))


def test_bfloat16_takes_its_place_where_it_is_asked_for() -> None:
    weight = numbers(3).astype(np.float16)
    model = replaced(
        "g (float16[2,3] x, float16[3] w) => (float16[2,3] y) { y = Add(x, w) }",
        {"w": weight},
        dtype=ir.DataType.BFLOAT16,
    )
    tensor = model.graph.initializers["w"].const_value
    assert tensor is not None
    np.testing.assert_array_equal(tensor.numpy(), weight.astype(ml_dtypes.bfloat16))


def test_attributes_that_name_or_hold_the_type() -> None:
    model = replaced(
        """g (int64[1] n, float[3] x) => (float16[?] y)
        { z = ConstantOfShape<value=float16[1] {16640}>(n)
        c = Cast<to=10>(x)
        y = Mul(z, c) }""",
        inputs=[np.array([3]), np.array([1.5, -2, 70], np.float32)],
    )
    assert inner_types(model) == {WIDE}


def test_both_sides_of_a_branch_change() -> None:
    model = replaced(
        """g (bool c, float16[2] x) => (float16[2] y)
        { r = If (c) <
            then_branch = t () => (float16[2] a) { a = Add(x, x) },
            else_branch = e () => (float16[2] b) { k = Constant<value=float16[2] {15360, 16384}>() b = Mul(k, x) }>
          y = Neg(r) }""",
        inputs=[np.array(False), numbers(2).astype(np.float16)],
    )
    assert inner_types(model) == {WIDE}


def test_an_input_that_is_an_output_stays_what_it_is() -> None:
    text = "g (float16[2,3] x) => (float16[2,3] y, float16[2,3] x) { z = Relu(x)\n y = Add(z, x) }"
    model = replaced(text, inputs=[numbers(2, 3).astype(np.float16)])
    assert model.graph.outputs[1] is model.graph.inputs[0]
    assert inner_types(model) == {WIDE}


def test_outputs_that_no_node_computes_keep_their_numbers() -> None:
    weight = numbers(3).astype(np.float16)
    model = replaced(
        "g (float16[3] x, float16[3] w) => (float16[3] y, float16[3] w) { y = Add(x, w) }",
        {"w": weight},
        inputs=[numbers(3).astype(np.float16)],
    )
    assert [value.name for value in model.graph.outputs] == ["y", "w"]


def test_a_mask_of_the_lowest_number_still_masks() -> None:
    """In float16 two of them make -inf, and a row of these makes NaN; float32 has room for the sum."""
    lowest = np.array(-65504, np.float16)
    model = replaced(
        """g (float16[1,3] x, float16 m, int64[2] r) => (float16[1,3] y)
        { a = Constant<value=float16[1,2] {0, 0}>()
        b = Reshape(m, r)
        z = Concat<axis=1>(a, b)
        s = Add(x, z)
        y = Softmax(s) }""",
        {"m": lowest, "r": np.array([1, 1])},
        inputs=[np.array([[1, 2, -60000]], np.float16)],
    )
    (weights,) = run(model, [np.array([[1, 2, -60000]], np.float16)])
    assert weights[0, 2] == 0
    assert np.isclose(weights.sum(), 1, atol=1e-3)


def test_custom_operators_keep_their_types() -> None:
    text = """g (float16[2] x) => (float16[2] y)
    <float16[2] u> { h = Neg(x)\n u = mine.Op(h)\n y = Abs(u) }"""
    model = replaced(text, imports=', "mine": 1')
    assert operators(model) == ["Cast", "Neg", "Cast", "Op", "Cast", "Abs", "Cast"]
    custom = model.graph[3]
    assert custom.inputs[0] is not None
    assert custom.inputs[0].dtype == custom.outputs[0].dtype == HALF


def test_sequences_of_halves_are_sequences_of_floats() -> None:
    model = replaced(
        """g (float16[2,3] x, int64 i) => (float16[1,3] y)
        { s = SplitToSequence<axis=0>(x)
        a = SequenceAt(s, i)
        y = Neg(a) }""",
        inputs=[numbers(2, 3).astype(np.float16), np.array(1)],
    )
    (sequence,) = (v for n in model.graph for v in n.outputs if v.name == "s")
    assert sequence.type == ir.SequenceType(ir.TensorType(WIDE))


def test_what_is_noted_counts_weights_and_the_interface() -> None:
    model = add_weights(
        parse("g (float16[2] x, float16[2] w) => (float16[2] y) { y = Add(x, w) }"),
        {"w": np.ones(2, np.float16)},
    )
    rewrite = ReplaceFloat16Pass(WIDE)
    rewrite(model)
    assert rewrite.notes == [
        "float16 runs as float32, which the target has: its weights take 8e-06 MB of the device for 4e-06 "
        "in the model; 2 of its inputs and outputs stay float16 and are converted on the host"
    ]
    assert model.graph.initializers["w"].const_value.name == "w"  # type: ignore[union-attr]
    inner = parse(
        "g (float[2] x) => (float[2] y) { h = Cast<to=10>(x) a = Neg(h) y = Cast<to=1>(a) }"
    )
    rewrite = ReplaceFloat16Pass(WIDE)
    rewrite(InferShapesPass()(inner).model)
    assert rewrite.notes == ["float16 runs as float32, which the target has"]


def test_old_models_and_functions_stay() -> None:
    old = parse("g (float16[2] x) => (float16[2] y) { y = Neg(x) }", opset=5)
    rewrite = ReplaceFloat16Pass(WIDE)
    assert not rewrite(old).modified
    assert rewrite.notes == [
        "float16 stays, and runs on the CPU: operator set 5 names types by texts"
    ]
    called = ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["": 21, "mine": 1]>
        g (float16[2] x) => (float16[2] y) { y = mine.twice(x) }
        <domain: "mine", opset_import: ["": 21]> twice (a) => (b) { b = Add(a, a) }"""
    )
    rewrite = ReplaceFloat16Pass(WIDE)
    assert not rewrite(called).modified
    assert rewrite.notes == [
        "float16 stays, and runs on the CPU: it calls functions that could not be inlined"
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "g (float16[2] x) => (int16[2] y) { y = BitCast<to=5>(x) }",
            "BitCast '' reads the bits of numbers",
        ),
        (
            "g (float16[2] x) => (float16[2] y) { h = mine.Op(x)\n y = Abs(h) }",
            "nobody knows of what type the results of mine::Op '' are",
        ),
        (
            "g (seq(float16[2]) x, int64 i) => (float16[2] y) { y = SequenceAt(x, i) }",
            "'x' of its interface is no tensor",
        ),
    ],
)
def test_models_that_stay(text: str, reason: str) -> None:
    model = parse(text, imports=', "mine": 1')
    for node in model.graph:
        node.name = ""
    rewrite = ReplaceFloat16Pass(WIDE)
    assert not rewrite(model).modified
    assert rewrite.notes == [f"float16 stays, and runs on the CPU: {reason}"]


def test_weights_stay_in_their_file(tmp_path: Path) -> None:
    """No weight is read before it is written, and none is kept when it was."""
    model = add_weights(
        parse("g (float16[2,64] x, float16[64,64] w) => (float16[2,64] y) { y = MatMul(x, w) }"),
        {"w": numbers(64, 64).astype(np.float16)},
    )
    ir.save(model, tmp_path / "m.onnx", external_data="m.data", size_threshold_bytes=0)
    loaded = ir.load(tmp_path / "m.onnx")
    ReplaceFloat16Pass(WIDE)(loaded)
    (tmp_path / "m.data").unlink()
    tensor = loaded.graph.initializers["w"].const_value
    assert tensor is not None
    with pytest.raises(FileNotFoundError):
        tensor.numpy()


def test_what_an_output_says_of_itself_stays() -> None:
    model = parse("g (float16[2] x) => (float16[2] y) { y = Neg(x) }")
    model.graph.outputs[0].doc_string = "the opposite"
    ReplaceFloat16Pass(WIDE)(model)
    assert [(value.name, value.doc_string) for value in model.graph.outputs] == [
        ("y", "the opposite")
    ]


def test_custom_operators_that_only_read_or_only_compute_halves_keep_their_types() -> None:
    text = """g (float16[2] x) => (float[2] y)
    <float[2] r, float16[2] m> { h = Neg(x)\n r = mine.Read(h)\n m = mine.Make(r)\n y = Cast<to=1>(m) }"""
    model = replaced(text, imports=', "mine": 1')
    read, make = (node for node in model.graph if node.domain == "mine")
    assert read.inputs[0] is not None
    assert read.inputs[0].dtype == make.outputs[0].dtype == HALF


def test_a_custom_operator_that_ends_a_branch_keeps_its_type() -> None:
    model = parse(
        """g (bool c, float[2] x) => (float[2] y) {
        r = If (c) <then_branch = t () => (float16[2] a) { a = mine.Op(x) },
                    else_branch = e () => (float16[2] b) { b = Cast<to=10>(x) }>
        y = Cast<to=1>(r) }""",
        imports=', "mine": 1',
    )
    assert ReplaceFloat16Pass(WIDE)(model).modified
    branch = model.graph[0].attributes["then_branch"].as_graph()
    assert [node.op_type for node in branch] == ["Op", "Cast"]
    assert branch.outputs[0] is branch[1].outputs[0]
    assert (branch[0].outputs[0].dtype, branch.outputs[0].dtype) == (HALF, WIDE)


@pytest.mark.parametrize(
    "text",
    [
        # an output that no Cast computes, and a Cast in the middle of the graph
        "g (int64[1] n) => (float16[?] y) { y = ConstantOfShape<value=float16[1] {16640}>(n) }",
        "g (float[2] x) => (float[2] y) <float16[2] h> { h = Cast<to=10>(x)\n y = Cast<to=1>(h) }",
    ],
)
def test_only_a_cast_at_the_border_may_stay(text: str) -> None:
    assert ReplaceFloat16Pass(WIDE)(parse(text)).modified


def test_the_oldest_version_and_numbers_that_are_no_types() -> None:
    model = parse(
        """g (float16[2] x) => (int64[?] s, float16[2] y) { h = Neg(x)\n s = Shape<end=10>(h)\n y = Abs(h) }""",
        opset=6,
    )
    assert ReplaceFloat16Pass(WIDE)(model).modified
    (shape,) = (node for node in model.graph if node.op_type == "Shape")
    assert shape.attributes["end"].as_int() == 10
