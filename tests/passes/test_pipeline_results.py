"""What the pipeline tells besides the model: weights, inputs with defaults, dynamic dimensions, notes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from samba_onnx.passes.pipeline import dynamic_dimensions, run_pipeline
from tests.passes.rewrites.applying import KnowsAll, numbers, operators, parse, run


def with_defaults(*names: str) -> ir.Model:
    heads = ", ".join(f"float[2] {name}" for name in names)
    defaults = ", ".join(f"float[2] {name} = {{1.0, 2.0}}" for name in names)
    return parse(
        f"g (float[2] x, {heads}) => (float[2] y) <{defaults}> {{ y = Sum (x, {', '.join(names)}) }}"
    )


def test_inputs_with_defaults_stay_inputs_and_keep_them() -> None:
    model = with_defaults("a", "b")
    result = run_pipeline(model, KnowsAll())
    graph = result.model.graph
    assert [value.name for value in graph.inputs] == ["x", "a", "b"]
    assert sorted(graph.initializers) == ["a", "b"]
    x = numbers(2)
    (y,) = run(model, [x])
    np.testing.assert_allclose(y, x + 2 * np.float32([1, 2]))
    assert operators(model) == ["Sum"]  # two equal defaults may be overridden apart


@pytest.mark.parametrize(
    ("names", "told"),
    [("a", "1 inputs have defaults (a) "), ("bac", "3 inputs have defaults (a, b, c) "),
     ("dbac", "4 inputs have defaults (a, b, c, ...) ")],
)  # fmt: skip
def test_inputs_with_defaults_are_noted(names: str, told: str) -> None:
    (note,) = run_pipeline(with_defaults(*names), KnowsAll()).notes
    assert note.startswith(told)


def test_a_model_without_defaults_has_no_note_of_them() -> None:
    assert (
        run_pipeline(parse("g (float[2] x) => (float[2] y) { y = Relu (x) }"), KnowsAll()).notes
        == ()
    )


@pytest.mark.parametrize(("version", "inputs"), [(3, ["x"]), (4, ["x", "w"])])
def test_from_version_4_on_an_initializer_that_is_an_input_is_a_default(
    version: int, inputs: list[str]
) -> None:
    text = "g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1.0, 2.0}> { y = Add (x, w) }"
    model = parse(text, opset=9, ir_version=version)
    run_pipeline(model, KnowsAll())
    assert [value.name for value in model.graph.inputs] == inputs


@pytest.mark.parametrize(
    ("array", "weight"),
    [
        (np.zeros(1, np.float32), True),
        (np.zeros(1, np.float16), True),
        (np.zeros(1, ml_dtypes.bfloat16), True),
        (np.zeros(2, np.int8), True),
        (np.zeros(2, np.uint8), True),
        (np.zeros(2, ml_dtypes.int4), True),
        (np.zeros(1, np.int8), False),
        (np.zeros(2, np.int16), False),
        (np.zeros(1024, np.int64), False),
        (np.zeros(1025, np.int64), True),
        (np.zeros(2, np.bool_), False),
        (np.zeros(1024, np.bool_), False),
    ],
    ids=lambda item: f"{item.dtype}{item.shape}" if isinstance(item, np.ndarray) else "",
)
def test_weights_are_initializers_of_numbers_and_long_ones_of_integers(
    array: np.ndarray, weight: bool
) -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu (x) }")
    value = ir.Value(name="w", const_value=ir.tensor(array, name="w"))
    value.type, value.shape = ir.TensorType(value.const_value.dtype), ir.Shape(array.shape)  # type: ignore[union-attr]
    model.graph.register_initializer(value)
    model.graph.outputs.append(value)
    assert run_pipeline(model, KnowsAll()).weight_names == ({"w"} if weight else set())


def test_dynamic_dimensions_come_with_the_option_that_makes_them_static() -> None:
    model = parse("""g (float[n, 3, m] x, float[?, 5, n] z, float[2] s) => (float[n, 3, m] y) {
        y = Relu (x)
    }""")
    found = [(d.name, d.inputs, d.option) for d in dynamic_dimensions(model)]
    assert found == [
        ("n", ("x[0]", "z[2]"), "--dim n=1"),
        ("m", ("x[2]",), "--dim m=1"),
        ("", ("z[0]",), "--input-shape z=1,5,1"),
    ]


def test_inputs_without_a_rank_have_no_dimensions_and_hide_no_others() -> None:
    model = parse("g (float[] s, float q, float[n] x) => (float[n] y) { y = Relu (x) }")
    model.graph.inputs[0].shape = None
    assert [d.inputs for d in dynamic_dimensions(model)] == [("x[0]",)]
