from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest

from samba_onnx.facts.precisions import Precision, describe_precision, stored_precision
from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.interface import Interface
from samba_onnx.passes.rewrites.reduce_precision import ReducePrecisionPass
from samba_onnx.runtime.engine.evaluation import evaluate
from tests.passes.rewrites.applying import TRACE, add_weights, numbers, operators, parse

NARROW, WIDE = ir.DataType.BFLOAT16, ir.DataType.FLOAT


def reduced(
    text: str,
    precision: Precision = Precision.BF16,
    weights: dict[str, np.ndarray] | None = None,
    imports: str = "",
) -> tuple[ir.Model, ReducePrecisionPass]:
    model = InferShapesPass()(add_weights(parse(text, imports=imports), weights or {})).model
    interface = Interface.of(model)
    rewrite = ReducePrecisionPass(precision)
    assert rewrite(model).modified
    interface.check(model, "under test", static_inputs=False, static_outputs=False)
    assert all(TRACE in node.metadata_props for node in model.graph)
    onnx.checker.check_model(ir.to_proto(model))
    return model, rewrite


def computed(model: ir.Model) -> list[tuple[str, ir.DataType | None]]:
    """Return operators other than Casts with the types of their results."""
    return [(n.op_type, n.outputs[0].dtype) for n in model.graph if n.op_type != "Cast"]


def answer(model: ir.Model, *inputs: np.ndarray) -> np.ndarray:
    names = [value.name or "" for value in model.graph.inputs]
    results = evaluate(ir.to_proto(model), dict(zip(names, inputs, strict=True)))
    return np.asarray(next(iter(results.values())))


def rounded(array: np.ndarray) -> np.ndarray:
    return array.astype(ml_dtypes.bfloat16).astype(np.float32)


def test_own_types_stay() -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    assert not ReducePrecisionPass(Precision.FP32)(model).modified


def test_weights_are_stored_narrow_and_a_linear_layer_rounds_once() -> None:
    weight, bias, x = numbers(3, 4), numbers(4), numbers(2, 5, 3)
    model, rewrite = reduced(
        "g (float[2,5,3] x, float[3,4] w, float[4] b) => (float[2,5,4] y) "
        "{ h = MatMul(x, w)\n y = Add(h, b) }",
        weights={"w": weight, "b": bias},
    )
    assert operators(model) == ["Cast", "Reshape", "Gemm", "Reshape", "Cast"]
    stored = model.graph.initializers["w"].const_value
    assert stored is not None
    assert stored.dtype == NARROW
    assert stored.nbytes == weight.nbytes // 2
    exact = rounded(x).astype(np.float64) @ rounded(weight) + rounded(bias)
    np.testing.assert_array_equal(answer(model, x), rounded(exact.astype(np.float32)))
    assert stored_precision(rewrite.metadata) is Precision.BF16


@pytest.mark.parametrize(
    ("precision", "types"),
    [
        (Precision.MIXED, [NARROW, NARROW, WIDE, NARROW]),
        (Precision.BF16, [NARROW, NARROW, NARROW, NARROW]),
    ],
)
def test_mixed_leaves_what_multiplies_no_matrices(
    precision: Precision, types: list[ir.DataType]
) -> None:
    model, rewrite = reduced(
        "g (float[3,3] x) => (float[3,3] y) "
        "{ a = MatMul(x, x)\n b = Relu(a)\n c = Exp(b)\n y = MatMul(c, b) }",
        precision,
    )
    assert computed(model) == list(zip(["MatMul", "Relu", "Exp", "MatMul"], types, strict=True))
    sentences = " ".join(describe_precision(rewrite.metadata))
    assert ("no matrix product in them: Exp (1)" in sentences) == (precision is Precision.MIXED)
    x = numbers(3, 3)
    inner = rounded(np.maximum(rounded(rounded(x) @ rounded(x)), 0))
    expected = rounded(rounded(np.exp(inner)) @ inner)
    np.testing.assert_allclose(answer(model, x), expected, rtol=2**-7)


@pytest.mark.parametrize(
    ("precision", "types"),
    [
        (Precision.BF16, [WIDE, WIDE, NARROW]),
        (Precision.BF16_THROUGHOUT, [NARROW, NARROW, NARROW]),
    ],
)
def test_what_the_model_converts_stays_up_to_a_product(
    precision: Precision, types: list[ir.DataType]
) -> None:
    model, _ = reduced(
        "g (int64[3,3] i, float[3,3] x) => (float[3,3] y) "
        "{ f = Cast<to=1>(i)\n s = Sin(f)\n a = Add(s, x)\n y = MatMul(a, x) }",
        precision,
    )
    assert [kind for _, kind in computed(model)] == types


def test_graphs_inside_and_custom_operators_read_float32() -> None:
    model, _ = reduced(
        "g (bool[1] k, float[2] x) => (float[2] z, float[2] y) { a = Neg(x)\n"
        "y = If(k) <then_branch = t () => (float[2] r) { r = Exp(a) }, "
        "else_branch = e () => (float[2] s) { s = Identity(a) }>\n z = mine.Op(a) }",
        imports=', "mine": 1',
    )
    inner = [node for graph in model.graph.subgraphs() for node in graph]
    assert [node.inputs[0].dtype for node in inner if node.inputs[0]] == [WIDE, WIDE]
    custom = next(node for node in model.graph if node.op_type == "Op")
    assert custom.inputs[0] is not None
    assert custom.inputs[0].dtype == WIDE


def test_a_weight_of_both_types_is_there_twice() -> None:
    model, _ = reduced(
        "g (float[2,2] x, float[2,2] w) => (float[2,2] y) { a = MatMul(x, w)\n y = Add(a, w) }",
        Precision.MIXED,
        {"w": numbers(2, 2)},
    )
    wide, narrow = model.graph.initializers.values()
    assert (wide.dtype, narrow.dtype) == (WIDE, NARROW)
    assert operators(model) == ["Cast", "MatMul", "Cast", "Add"]


def test_masks_of_the_largest_numbers_stay_finite() -> None:
    lowest = np.array([np.finfo(np.float32).min, 0, -np.inf], np.float32)
    model, _ = reduced(
        "g (float[3] x, float[3] m) => (float[3] y) { y = Add(x, m) }", weights={"m": lowest}
    )
    stored = model.graph.initializers["m"].const_value
    assert stored is not None
    assert np.isfinite(stored.numpy().astype(np.float32)).tolist() == [True, True, False]


def test_values_keep_their_names_where_conversions_would_be_called_so() -> None:
    """What compares a PEF with its model goes by names."""
    model, _ = reduced(
        """g (float[2] x) => (float[2] y) {
            x_bfloat16 = Exp(x)
            y_bfloat16 = Neg(x_bfloat16)
            y = Add(y_bfloat16, x)
        }"""
    )
    names = {node.op_type: node.outputs[0].name for node in model.graph if node.op_type != "Cast"}
    assert names["Exp"] == "x_bfloat16"
    assert names["Neg"] == "y_bfloat16"
    every = [output.name for node in model.graph for output in node.outputs]
    assert len(set(every)) == len(every)


def test_of_a_model_of_integers_it_says_that_it_changes_nothing() -> None:
    model, rewrite = reduced("g (int64[4] x) => (int64[4] y) { y = Add(x, x) }")
    assert [node.op_type for node in model.graph] == ["Add"]
    (sentence,) = describe_precision(rewrite.metadata)
    assert sentence.startswith("Precision bf16 changes nothing")


def test_of_models_that_have_no_bfloat16_it_says_why_nothing_changes() -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    for version, modified in ((12, False), (13, True)):
        rewrite = ReducePrecisionPass(Precision.BF16)
        model.graph.opset_imports[""] = version
        assert rewrite(model).modified == modified
        sentence = "precision bf16 is not applied: the model is of operator set 12"
        assert rewrite.notes == ([] if modified else [sentence])
    other = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    body = ir.Function("mine", "F", graph=ir.Graph([], [], nodes=[]), attributes=[])
    other.functions[body.identifier()] = body
    rewrite = ReducePrecisionPass(Precision.BF16)
    assert not rewrite(other).modified
    assert rewrite.notes == ["precision bf16 is not applied: the model calls functions"]


def test_operators_are_counted_and_what_only_carries_numbers_is_not_reported() -> None:
    text = """g (int64[2,2] i, float[2,2] x) => (float[2,2] y) {
        c = CastLike(i, x)
        r = Relu(x)
        e = Exp(r)
        f = Exp(e)
        n = RandomNormal<shape=[2, 2]>()
        d = Add(n, c)
        y = Sum(f, d)
    }"""
    _, rewrite = reduced(text, Precision.MIXED)
    (sentence,) = (s for s in describe_precision(rewrite.metadata) if "no matrix" in s)
    assert "Exp (2)" in sentence
    assert not {"CastLike", "Relu", "RandomNormal"} & set(sentence.replace(",", "").split())
    assert "conver" not in " ".join(describe_precision(rewrite.metadata))
    assert "X" not in str(rewrite.metadata).replace("Exp", "")


def test_a_product_of_converted_numbers_alone_stays_in_float32() -> None:
    text = """g (int64[2,2] i, float[2,2] x, float[2,2] w) => (float[2,2] y) {
        f = CastLike(i, x)
        a = MatMul(f, f)
        b = MatMul(f, w)
        c = MatMul(f, x)
        d = Sum(a, b)
        y = Softmax<axis=0>(c)
    }"""
    model, _ = reduced(text, weights={"w": numbers(2, 2)})
    types = {node.outputs[0].name: node.outputs[0].dtype for node in model.graph}
    assert [types[name] for name in "fabcd"] == [WIDE, WIDE, WIDE, NARROW, WIDE]
    assert dict(computed(model))["Softmax"] == NARROW


def test_what_chooses_between_bfloat16_and_a_constant_is_bfloat16() -> None:
    text = """g (bool[2,2] k, float[2,2] x, float[2,2] w) => (float[4,2] y, float[2,2] z) {
        a = MatMul(x, x)
        b = Where(k, a, w)
        c = Concat<axis=0>(b, w)
        y = Identity(c)
        z = Exp(b)
    }"""
    model, _ = reduced(text, Precision.MIXED, {"w": numbers(2, 2)})
    assert [kind for _, kind in computed(model)] == [NARROW, NARROW, NARROW, NARROW, WIDE]
    names = [node.outputs[0].name for node in model.graph if node.op_type == "Cast"]
    assert names == ["x_bfloat16", "b_float32", "y"]


def test_sizes_are_read_of_any_type_and_outputs_keep_what_is_said_of_them() -> None:
    text = "g (float[2,3] x) => (float[2,3] y, int64[2] s) { s = Shape(x)\n y = Exp(x) }"
    model = parse(text)
    model.graph.outputs[0].doc_string = "what it is"
    model = InferShapesPass()(model).model
    assert ReducePrecisionPass(Precision.BF16)(model).modified
    shape = next(node for node in model.graph if node.op_type == "Shape")
    assert shape.inputs[0] is model.graph.inputs[0]
    assert sorted(operators(model)) == ["Cast", "Cast", "Exp", "Shape"]
    assert model.graph.outputs[0].doc_string == "what it is"


def test_an_operator_that_onnx_does_not_have_reads_float32() -> None:
    model = parse("g (float[2] x) => (float[2] y) { a = Nonsense(x)\n y = Exp(a) }")
    model.graph[0].outputs[0].dtype = WIDE
    ReducePrecisionPass(Precision.BF16)(model)
    assert operators(model) == ["Nonsense", "Cast", "Exp", "Cast"]
