"""Models of 16 bits read in float32: the same arrays go in, and nothing is rounded inside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from samba_onnx.runtime.engine.evaluation import open_original
from samba_onnx.runtime.engine.registry import ENGINES
from samba_onnx.runtime.engine.widening import has_narrow_floats, widened

TYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
BRANCHES = """
<ir_version: 10, opset_import: ["" : 21, "own" : 1]>
g ({0}[3,4] x, bool c) => ({0}[3,4] y, {0}[3,4] z, float[3,4] f, {0}[3,4] same) {{
  a = own.Twice(x)
  k = Constant<value = {0}[4] {{0, 0, 0, 0}}>()
  e = Exp(a)
  y = Add(e, k)
  z = If(c) <
    then_branch = t () => ({0}[3,4] q) {{ q = Mul(y, x) }},
    else_branch = n () => ({0}[3,4] r) {{ r = Add(y, w) }}
  >
  p = Cast<to = 1>(y)
  f = Tanh(p)
  same = Identity(x)
}}
<domain: "own", opset_import: ["" : 21]> Twice (u) => (v) {{ v = Add(u, u) }}
"""


def branches(element: str) -> tuple[onnx.ModelProto, np.ndarray]:
    """Return a model with a function, subgraphs, a constant and a weight; and that weight."""
    model = parser.parse_model(BRANCHES.format(element))
    weight = np.random.default_rng(1).standard_normal((3, 4)).astype(TYPES[element])
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    return model, weight.astype(np.float32)


def types(model: onnx.ModelProto) -> Iterator[int]:
    """Yield the element types that a graph states, those of its inputs and weights excepted."""
    yield from (value.type.tensor_type.elem_type for value in model.graph.output)
    for node in model.graph.node:
        yield from (item.i for item in node.attribute if item.name == "to")
        yield from (item.t.data_type for item in node.attribute if item.HasField("t"))
        for item in node.attribute:
            if item.HasField("g"):
                yield from types(onnx.ModelProto(graph=item.g))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("element", TYPES)
@pytest.mark.parametrize("condition", [True, False])
def test_the_answer_is_that_of_float32(engine: str, element: str, condition: bool) -> None:
    model, weight = branches(element)
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(TYPES[element])
    original = open_original(model, engine=engine, threads=1, wide=True)
    feeds: dict[str, Any] = {"x": x, "c": np.asarray(condition)}
    wide = original.run_wide(feeds)
    assert wide is not None
    exact = x.astype(np.float32)
    y = np.exp(2 * exact)
    expected = {
        "y": y,
        "z": y * exact if condition else y + weight,
        "f": np.tanh(y),
        "same": exact,
    }
    for name, array in expected.items():
        assert wide[name].dtype == np.float32
        np.testing.assert_allclose(wide[name], array, rtol=1e-6, atol=1e-6)
    own = original.run(feeds)
    assert own["y"].dtype == TYPES[element]
    assert not np.array_equal(own["y"].astype(np.float32), wide["y"])


@pytest.mark.parametrize("element", TYPES)
def test_types_are_replaced_everywhere_but_where_arrays_come_from(element: str) -> None:
    model, _ = branches(element)
    before = model.SerializeToString()
    wide = widened(model)
    assert wide is not None
    assert model.SerializeToString() == before
    assert {TensorProto.FLOAT16, TensorProto.BFLOAT16}.isdisjoint(types(wide))
    assert wide.graph.input[0].type == model.graph.input[0].type
    assert wide.graph.initializer[0].data_type == model.graph.initializer[0].data_type
    assert not wide.functions


def test_models_without_such_numbers_have_no_other_form() -> None:
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[2] x) => (float[2] y) { y = Abs(x) }'
    )
    assert not has_narrow_floats(model)
    assert widened(model) is None
    assert (
        open_original(model, threads=1, wide=True).run_wide({"x": np.ones(2, np.float32)}) is None
    )


def test_a_model_that_looks_at_bits_has_no_other_form() -> None:
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 26]> g (float16[2] x) => (int16[2] y) '
        "{ y = BitCast<to = 5>(x) }"
    )
    assert has_narrow_floats(model)
    assert widened(model) is None


@pytest.mark.parametrize(
    "text",
    [
        "g (float[2] x) => (float[2] y) { h = Cast<to = 10>(x) y = Cast<to = 1>(h) }",
        "g (seq(float16[2]) x) => (seq(float16[2]) y) { y = Identity(x) }",
        "g (float[2] x, bool c) => (float[2] y) { y = If(c) <then_branch = t () => (float[2] q) "
        "{ h = Cast<to = 16>(x) q = Cast<to = 1>(h) }, else_branch = n () => (float[2] r) "
        "{ r = Abs(x) }> }",
        "g (optional(float16[2]) x) => (optional(float16[2]) y) { y = Identity(x) }",
    ],
)
def test_numbers_of_16_bits_are_found_wherever_they_are(text: str) -> None:
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    assert has_narrow_floats(model)
    assert widened(model) is not None


@pytest.mark.parametrize(
    "text",
    [
        "g (float[10] x) => (float[1] y) <float[10] w = {1,1,1,1,1,1,1,1,1,1}> "
        "{ a = Add(x, w) y, b, c, d, e, f, h, i, j, k = Split<num_outputs = 10>(a) }",
        "g (float[2] x) => (int64[2] y) { c = Constant<value = float[2] {1, 2}>() a = Add(x, c) "
        "y = Cast<to = 7>(a) }",
        "g (optional(float[2]) x) => (optional(float[2]) y) { y = Identity(x) }",
    ],
)
def test_numbers_of_other_widths_are_none_of_16_bits(text: str) -> None:
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    assert not has_narrow_floats(model)
    assert widened(model) is None


X = np.linspace(0.05, 2, 10, dtype=np.float16)
FORMS = {
    # Ten is float16 where it names a type, and nowhere else.
    "ten results": ("a, b, c, d, e, f, h, i, j, y = Split<num_outputs = 10>(x)", X[-1:]),
    "a type inside": ("p = Cast<to = 10>(third) y = Add(x, p)", X + np.float32(1 / 3)),
    "another type inside": ("p = Cast<to = 7>(x) q = Cast<to = 10>(p) y = Neg(q)", -np.trunc(X)),
    "a weight that is returned": ("y = Identity(x)", X),
}


@pytest.mark.parametrize(("body", "wanted"), FORMS.values(), ids=FORMS.keys())
def test_only_types_of_16_bits_are_widened(body: str, wanted: np.ndarray) -> None:
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> '
        f"g (float16[10] x, float third) => (float16[{wanted.size}] y, float16[10] w) {{ {body} }}"
    )
    model.graph.initializer.append(numpy_helper.from_array(X[::-1], "w"))
    original = open_original(model, threads=1, wide=True)
    wide = original.run_wide({"x": X, "third": np.asarray(1 / 3, np.float32)})
    assert wide is not None
    for name, array in (("y", wanted), ("w", X[::-1])):
        assert wide[name].dtype == np.float32
        np.testing.assert_array_equal(wide[name], array.astype(np.float32))


def test_the_type_of_something_optional_is_widened_too() -> None:
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float16[2] x) => (bool y) '
        "{ y = OptionalHasElement(o) }"
    )
    kind = onnx.helper.make_tensor_type_proto(TensorProto.FLOAT16, [2])
    model.graph.node.insert(0, onnx.helper.make_node("Optional", [], ["o"], type=kind))
    wide = widened(model)
    assert wide is not None
    (attribute,) = next(node for node in wide.graph.node if node.op_type == "Optional").attribute
    assert attribute.tp.tensor_type.elem_type == TensorProto.FLOAT


WINDOWED = """
<ir_version: 10, opset_import: ["" : 21]>
g ({0}[8] x) => ({0}[8] y) {{
  n = Constant<value = int64 {{8}}>()
  w = HannWindow<output_datatype = {1}>(n)
  y = Mul(x, w)
}}
"""


@pytest.mark.parametrize(("element", "number"), [("float16", 10), ("bfloat16", 16)])
def test_windows_are_computed_in_float32_too(element: str, number: int) -> None:
    """Their attribute for the type of the result has another name than that of all others."""
    wide = widened(parser.parse_model(WINDOWED.format(element, number)))
    assert wide is not None
    onnx.checker.check_model(wide, full_check=True)
    x = np.linspace(-1, 1, 8).astype(TYPES[element])
    (found,) = ReferenceEvaluator(wide).run(None, {"x": x})
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(8) / 8)
    # The window is of float32, whose last digit is 6e-8.
    np.testing.assert_allclose(found.astype(np.float64), x.astype(np.float64) * window, atol=1e-7)
