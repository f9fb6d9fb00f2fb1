"""Which nodes of an optimizer section are taken out of it, and what is left."""

from __future__ import annotations

import onnx
import pytest
from onnx import parser

from samba_onnx.runtime.engine.lowerings.elementwise_blocks import Split, split_elementwise
from tests.runtime.building import HEADER


def split(text: str, regions: dict[str, str] | None = None) -> Split:
    places = regions or {}
    model = parser.parse_model(HEADER + text)
    return split_elementwise(model, lambda name: places.get(name, name))


def test_equal_parameters_become_equal_components() -> None:
    found = split(
        "g (float[4] a, float[4] ga, float[2,3] b, float[2,3] gb, float r, float s) => "
        "(float[4] a1, float[2,3] b1) "
        "{ u = Mul(ga, r) a1 = Sub(a, u) v = Mul(gb, s) b1 = Sub(b, v) }",
        {"a1": "a", "b1": "b"},
    )
    first, second = found.components
    assert found.rest is None
    assert first.model.SerializeToString() == second.model.SerializeToString()
    assert (first.inputs, first.outputs, first.shape) == (("ga", "r", "a"), ("a1",), (4,))
    assert (second.inputs, second.scalars) == (("gb", "s", "b"), {"s"})


def test_scalar_arithmetic_is_part_of_every_component_that_needs_it() -> None:
    found = split(
        "g (float[4] a, float[5] b, float16 r) => (float[4] a1, float[5] b1) "
        "<float two = {2}> { s = Cast<to=1>(r) t = Mul(s, two) a1 = Mul(a, t) b1 = Mul(b, t) }"
    )
    assert [
        [node.op_type for node in component.model.graph.node] for component in found.components
    ] == [["Cast", "Mul", "Mul"]] * 2
    assert found.rest is None


@pytest.mark.parametrize(
    "body",
    [
        "b = Softmax(a)",
        "b = Add(a, row)",
        "b = Mul(a, one)",
        "n = ReduceMax<keepdims=0>(a) b = Div(a, n)",
        "b = Exp(a)",
    ],
)
def test_what_is_left_to_the_ordinary_session(body: str) -> None:
    found = split(
        f"g (float[2,3] a, float[3] row, float[2,3] c) => (float[2,3] b, float[2,3] d) "
        f"<float[1] one = {{1}}> {{ {body} d = Neg(c) }}"
    )
    (component,) = found.components
    assert component.outputs == ("d",)
    assert found.rest is not None
    assert [value.name for value in found.rest.graph.output] == ["b"]
    assert "c" not in [value.name for value in found.rest.graph.input]
    onnx.checker.check_model(found.rest)


def test_nodes_that_share_a_region_stay_together() -> None:
    text = (
        "g (float[4] a, float[4] b, float[4] c) => (float[4] a1, float[4] d) "
        "{ a1 = Neg(b) d = Mul(a, c) }"
    )
    assert len(split(text).components) == 2
    assert len(split(text, {"a1": "a"}).components) == 1
