"""Sizes that only hold for the exporter's example do not reach placement."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from samba_onnx.passes.order import PipelineOptions
from samba_onnx.passes.pipeline import run_pipeline
from samba_onnx.passes.rewrites.forget_shapes import ForgetShapesPass
from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.interface import Interface, dimensions
from tests.passes.rewrites.applying import TRACE, KnowsAll, check, parse

DYNAMIC = "g (float[batch, n] x) => (float[batch, n] y) { t = Relu(x) y = Neg(t) }"
STATIC = "g (float[2, 3] x) => (float[2, 3] y) { t = Relu(x) y = Neg(t) }"


def _state(model: ir.Model, *shape: int | str) -> ir.Value:
    """Give the value between the two nodes a stated shape."""
    [value] = model.graph[0].outputs
    value.type = ir.TensorType(ir.DataType.FLOAT)
    value.shape = ir.Shape(shape)
    return value


def test_a_stated_size_of_a_dynamic_model_is_inferred_anew() -> None:
    model = parse(DYNAMIC)
    value = _state(model, "batch", 6)
    interface = Interface.of(model)
    assert ForgetShapesPass()(model).modified
    assert value.shape is not None
    assert [str(size) for size in value.shape] == ["None", "None"]
    InferShapesPass()(model)
    assert [str(size) for size in value.shape] == ["batch", "n"]
    assert Interface.of(model) == interface
    assert all(TRACE in node.metadata_props for node in model.graph)


def test_binding_dimensions_gives_the_bound_size_and_not_the_stated_one() -> None:
    model = parse(DYNAMIC)
    _state(model, "batch", 6)
    result = run_pipeline(model, KnowsAll(), PipelineOptions({"batch": 2, "n": 4}, {}))
    assert [str(size) for size in result.model.graph[0].outputs[0].shape or ()] == ["2", "4"]


def test_numbers_do_not_change() -> None:
    model = parse(DYNAMIC)
    _state(model, "batch", 6)
    check(model, ForgetShapesPass(), inputs=[np.array([[1.0, -2.0]], np.float32)])


def test_a_static_model_keeps_what_it_states() -> None:
    model = parse(STATIC)
    value = _state(model, 2, 3)
    assert not ForgetShapesPass()(model).modified
    assert value.shape == ir.Shape([2, 3])


def test_nothing_stated_is_nothing_to_forget() -> None:
    assert not ForgetShapesPass()(parse(DYNAMIC)).modified


def test_ranks_types_and_outputs_of_branches_stay_as_they_are_stated() -> None:
    model = parse("""g (bool c, float[batch, 4] x) => (float[batch, 4] y) {
 r = Relu(x)
 y = If (c) <then_branch = t () => (float[6, 4] a) { h = Neg(r)
 a = Abs(h) }, else_branch = e () => (float[6, 4] b) { b = Exp(r) }> }""")
    branch, _ = model.graph.subgraphs()
    inner = branch[0].outputs[0]
    inner.type, inner.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([6, 4])
    assert ForgetShapesPass()(model).modified
    assert (inner.dtype, inner.shape) == (ir.DataType.FLOAT, ir.Shape([None, None]))
    assert branch.outputs[0].shape == ir.Shape([6, 4])
    assert not ForgetShapesPass()(model).modified


def test_one_dynamic_input_among_others_makes_a_model_dynamic() -> None:
    for inputs, forgets in (
        ("float[2] z, float[n] x", True),
        ("float[2] z, float[?] x", True),
        ("float[2] z, float[2] x", False),
    ):
        model = parse(f"g ({inputs}) => (y) {{ t = Relu(x) y = Neg(t) }}")
        value = _state(model, 6)
        assert ForgetShapesPass()(model).modified == forgets
        assert value.shape == ir.Shape([None if forgets else 6])
    model = parse("g (float[2] x) => (y) { t = Relu(x) y = Neg(t) }")
    model.graph.inputs[0].shape = None
    _state(model, 6)
    assert not ForgetShapesPass()(model).modified


def test_what_is_unknown_already_is_not_forgotten() -> None:
    model = parse(DYNAMIC)
    _state(model, "batch", "n")
    assert not ForgetShapesPass()(model).modified


IMPORTS = ', "com.example": 1'
CUSTOM = """g (float[batch, n] x) => (float[batch, n] y) <float[batch, 6] t>
{ t = com.example.Thing(x) y = Relu(t) }"""


@pytest.mark.parametrize(
    ("dims", "shape"),
    [({"batch": 2, "n": 4}, (2, 6)), ({"n": 4}, ("batch", 6)), ({}, ("batch", 6))],
)
def test_what_is_stated_of_a_custom_operator_stays_and_is_bound(
    dims: dict[str, int], shape: tuple[int | str, ...]
) -> None:
    model = parse(CUSTOM, imports=IMPORTS)
    assert not ForgetShapesPass()(model).modified
    result = run_pipeline(model, KnowsAll(), PipelineOptions(dims, {}))
    assert [dimensions(node.outputs[0].shape) for node in result.model.graph] == [shape, shape]
    assert all(node.outputs[0].dtype is ir.DataType.FLOAT for node in result.model.graph)


def test_a_custom_operator_in_a_branch_keeps_what_is_stated() -> None:
    model = parse(
        """g (bool c, float[batch, 4] x) => (float[batch, 4] y) {
 y = If (c) <then_branch = t () => (float[batch, 4] a) <float[batch, 4] h> {
 h = com.example.Thing(x)
 a = Abs(h) }, else_branch = e () => (float[batch, 4] b) { b = Exp(x) }> }""",
        imports=IMPORTS,
    )
    result = run_pipeline(model, KnowsAll(), PipelineOptions({"batch": 3}, {}))
    [inner] = [node for node in result.model.graph.all_nodes() if node.op_type == "Thing"]
    assert dimensions(inner.outputs[0].shape) == (3, 4)


def test_a_call_of_a_function_is_inferred_anew() -> None:
    body = '<domain: "com.example", opset_import: ["": 21]> Thing (a) => (b) { b = Neg(a) }'
    model = parse(f"{CUSTOM} {body}", imports=IMPORTS)
    assert ForgetShapesPass()(model).modified
    result = run_pipeline(model, KnowsAll(), PipelineOptions({"batch": 2, "n": 4}, {}))
    assert dimensions(result.model.graph[0].outputs[0].shape) == (2, 4)


def test_what_a_function_states_of_a_custom_operator_is_bound() -> None:
    text = """g (float[batch, 3] x) => (float[batch, 3] y) { y = own.F(x) }
<domain: "own", opset_import: ["": 21, "com.example": 1]> F (a) => (b)
{ t = com.example.Thing(a) b = Abs(t) }"""
    model = parse(text, imports=f'{IMPORTS}, "own": 1')
    [function] = model.functions.values()
    value = function[0].outputs[0]
    value.type, value.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(["batch", 3])
    result = run_pipeline(model, KnowsAll(), PipelineOptions({"batch": 2}, {}))
    inlined = [node.outputs[0] for node in result.model.graph]
    assert [dimensions(value.shape) for value in inlined] == [(2, 3), (2, 3)]


def test_what_comes_behind_a_custom_operator_is_forgotten() -> None:
    model = parse(
        """g (float[batch,4] x) => (y) <float[3,4] h, float[3,4] k> {
 h = com.example.Thing(x)
 k = Abs(h)
 y = Neg(k) }""",
        imports=IMPORTS,
    )
    assert ForgetShapesPass()(model).modified
    shapes = [dimensions(node.outputs[0].shape) for node in model.graph]
    assert shapes == [(3, 4), (None, None), None]
