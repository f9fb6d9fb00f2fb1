"""Which nodes of an optimizer section are taken out of it, and what is left."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import parser

from samba_onnx.pef.manifest import Region, Symbol
from samba_onnx.pef.target_summary import Tier
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.runtime.engine.lowerings.elementwise_blocks import (
    Split,
    split_elementwise,
    take_out_components,
)
from samba_onnx.runtime.engine.lowerings.stage_model import StageModel
from samba_onnx.runtime.memory import DeviceMemory
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
    # Vectors of any length, and a number.
    declared = [len(value.type.tensor_type.shape.dim) for value in first.model.graph.input]
    assert declared == [1, 0, 1]
    assert len(first.model.graph.output[0].type.tensor_type.shape.dim) == 1


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


def test_a_graph_taken_apart_computes_what_it_did() -> None:
    """With omitted operands, attributes, scalars that are computed or returned, and several that are left."""
    model = parser.parse_model(
        f"""{HEADER}
        g (float[2,3] a, float[2,3] b, float[4] c, float[2,3] e, float r, float16 h, float[5] k, float[5] l)
        => (float[2,3] a1, float16[4] c1, float[2,3] e1, float s1, float[5] k1, float[5] l1)
        <float two = {{2}}> {{
            e0 = Softmax(e) e1 = Add(e0, b)
            s = Cast<to=1>(h) t = Mul(s, two)
            a0 = Clip(a, , r) a1 = Sub(a0, t)
            c0 = Mul(c, t) c1 = Cast<to=10>(c0)
            s1 = Add(t, r) k1 = Exp(k) l1 = Neg(l)
        }}"""
    )
    generator = np.random.default_rng(0)
    shapes = {
        "a": (2, 3),
        "b": (2, 3),
        "c": (4,),
        "e": (2, 3),
        "r": (),
        "h": (),
        "k": (5,),
        "l": (5,),
    }
    inputs = {
        name: np.asarray(generator.standard_normal(s), np.float32) for name, s in shapes.items()
    }
    inputs["h"] = inputs["h"].astype(np.float16)
    expected = run_all(model, inputs)
    found = split_elementwise(model, lambda name: name)
    assert [component.outputs for component in found.components] == [("a1",), ("c1",), ("l1",)]
    assert found.rest is not None
    actual = run_all(found.rest, inputs)
    assert sorted(actual) == ["e1", "k1", "s1"]
    for component in found.components:
        onnx.checker.check_model(component.model, full_check=True)
        # Blocks are vectors, of any length; scalars stay scalars.
        vectors = [
            inputs[name] if name in component.scalars else inputs[name].ravel()
            for name in component.inputs
        ]
        names = [value.name for value in component.model.graph.input]
        results = run_all(component.model, dict(zip(names, vectors, strict=True)))
        for name, result in zip(component.outputs, results.values(), strict=True):
            actual[name] = result.reshape(component.shape)
    for name, array in expected.items():
        assert actual[name].dtype == array.dtype
        np.testing.assert_array_equal(actual[name], array)


def run_all(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return all outputs of a model by name; inputs that it does not have are none of its own."""
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    given = {value.name: inputs[value.name] for value in session.get_inputs()}
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(None, given), strict=True))


def test_operators_of_others_are_left() -> None:
    model = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21, "mine" : 1]>
        g (float[4] a, float[4] c) => (float[4] b, float[4] d) { b = mine.Neg(a) d = Neg(c) }"""
    )
    (component,) = split_elementwise(model, lambda name: name).components
    assert component.outputs == ("d",)


def test_a_scalar_that_is_read_keeps_nothing_together_and_a_vector_does() -> None:
    text = "g (float[4] a, float[4] b, float[4] v, float r) => (float[4] c, float[4] d) "
    assert len(split(f"{text} {{ c = Mul(a, r) d = Mul(b, r) }}").components) == 2
    assert len(split(f"{text} {{ c = Mul(a, v) d = Mul(b, v) }}").components) == 1
    between = "{ t = Mul(a, v) c = Neg(t) d = Mul(b, t) }"
    (one,) = split(text + between).components
    assert one.outputs == ("c", "d")


def test_numbers_that_two_parameters_read_keep_nothing_together() -> None:
    """Nor does an operand that both of them leave out."""
    found = split(
        "g (float[4] a, float[4] b) => (float[4] c, float[4] d) <float two = {2}> "
        "{ e = Clip(a, , two) c = Mul(e, two) f = Clip(b, , two) d = Mul(f, two) }"
    )
    assert [component.outputs for component in found.components] == [("c",), ("d",)]


def test_a_number_that_is_returned_is_computed_once() -> None:
    """It is no part of a component, and neither is what reads it."""
    model = parser.parse_model(
        f"{HEADER} g (float[4] a, float r) => (float s, float[4] b) {{ s = Neg(r) b = Mul(a, s) }}"
    )
    found = split_elementwise(model, lambda name: name)
    assert found.components == ()
    assert found.rest is model


STAGES = {
    # What is computed, where b is, how much is taken out, and what is left.
    "nothing": ("b = Neg(a) d = Neg(c)", "b", 2, []),
    "another operator": ("b = Exp(a) d = Neg(c)", "b", 1, ["Exp"]),
    "an operand written over": ("b = Neg(a) d = Mul(a, c)", "a", 0, ["Neg", "Mul"]),
    "an operand written over by its only reader": ("b = Mul(a, c) d = Neg(c)", "a", 1, []),
}


@pytest.mark.parametrize(("body", "place", "count", "left"), STAGES.values(), ids=STAGES.keys())
def test_a_stage_keeps_what_is_not_taken_out(
    body: str, place: str, count: int, left: list[str]
) -> None:
    text = f"{HEADER} g (float[4] a, float[4] c) => (float[4] b, float[4] d) {{ {body} }}"
    places = {"a": "a", "b": place, "c": "c", "d": "d"}
    symbols = [
        Symbol(name, SymbolKind.ACTIVATION, "tensor(float)", (4,), region)
        for name, region in places.items()
    ]
    regions = [Region(name, 16, "hbm") for name in sorted({*places.values()})]
    memory = DeviceMemory([Tier("hbm", 2000, 1.0)], regions, symbols)
    model = parser.parse_model(text)
    stage = StageModel(model, memory=memory, splits=True)
    take_out_components(stage)
    assert len(stage.components) == count
    assert [node.op_type for node in stage.model.graph.node] == left
    assert stage.model.ir_version == model.ir_version
    assert stage.model.opset_import == model.opset_import
    for apart in (StageModel(model, memory=memory), StageModel(model, splits=True)):
        take_out_components(apart)
        assert apart.components == ()
        assert apart.model is model


def test_numbers_of_four_bits_are_not_split_into_blocks() -> None:
    """Two of them share a byte, which a block may cut apart."""
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (int4[4] a) => (int4[4] b) { b = Identity(a) }'
    )
    symbols = [Symbol(n, SymbolKind.ACTIVATION, "tensor(int4)", (4,), n) for n in "ab"]
    regions = [Region(n, 2, "hbm") for n in "ab"]
    memory = DeviceMemory([Tier("hbm", 2000, 1.0)], regions, symbols)
    stage = StageModel(model, memory=memory, splits=True)
    assert len(split_elementwise(model, lambda name: name).components) == 1
    take_out_components(stage)
    assert stage.components == ()
