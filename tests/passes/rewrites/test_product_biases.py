from __future__ import annotations

import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.product_biases import fold_biases
from tests.passes.rewrites.applying import add_weights, numbers, operators, parse


def folded(text: str, times: int = 1) -> ir.Model:
    weights = {"w": numbers(3, 3), "b": numbers(3)}
    model = InferShapesPass()(add_weights(parse(text), weights)).model
    assert fold_biases(model) == times
    return model


@pytest.mark.parametrize("addition", ["Add(h, b)", "Add(b, h)"])
@pytest.mark.parametrize("rows", [1, 2])
def test_rows_and_a_bias_on_either_side_are_one_operator(addition: str, rows: int) -> None:
    model = folded(
        f"g (float[{rows},3] x, float[3,3] w, float[3] b) => (float[{rows},3] y)"
        f"{{ h = MatMul(x, w)\n y = {addition} }}"
    )
    assert operators(model) == ["Gemm"]
    assert [value.name for value in model.graph[0].inputs if value] == ["x", "w", "b"]


def test_more_axes_are_laid_together_under_names_that_tell_so() -> None:
    model = folded(
        "g (float[2,1,3] x, float[3,3] w, float[3] b) => (float[2,1,3] y)"
        "{ h = MatMul(x, w)\n y = Add(h, b) }"
    )
    assert operators(model) == ["Reshape", "Gemm", "Reshape"]
    assert [n.outputs[0].name for n in model.graph] == ["y_as_rows", "y_product", "y"]


@pytest.mark.parametrize(
    "body",
    [
        "h = Mul(x, w)\n y = Add(h, b)",
        "h = MatMul(x, w)\n t = Exp(h)\n s = Add(h, b)\n y = Add(s, t)",
    ],
)
def test_what_is_no_product_or_read_elsewhere_stays(body: str) -> None:
    text = f"g (float[3,3] x, float[3,3] w, float[3] b) => (float[3,3] y) {{ {body} }}"
    assert "Gemm" not in operators(folded(text, times=0))


def test_products_of_no_rows_stay() -> None:
    text = """g (float[0,3] x, float[3,3] w, float[3] b) => (float[0,3] y)
    { h = MatMul(x, w) y = Add(h, b) }"""
    assert operators(folded(text, times=0)) == ["MatMul", "Add"]
