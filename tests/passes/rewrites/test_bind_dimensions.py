from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from samba_onnx.errors import UsageError
from samba_onnx.passes.rewrites.bind_dimensions import (
    ASSUMED,
    DEFAULT_SHAPE,
    BindDimensionsPass,
    BindOutputsPass,
    Shapes,
)
from samba_onnx.passes.rewrites.interface import Interface, dimensions
from tests.passes.rewrites.applying import numbers, parse, run

GRAPH = """g (float[batch,seq,4] x, float[batch,?] m, float[2,n] w) => (float[batch,seq,4] y)
<float[batch,seq,4] a> { a = Relu(x)
 y = Relu(a) }"""


def bound(dims: dict[str, int], shapes: Shapes | None = None) -> list[str]:
    model = parse(GRAPH)
    result = BindDimensionsPass(dims, shapes or {})(model)
    assert result.modified == bool(dims or shapes)
    interface = Interface.of(model)
    return [str(port).split("[")[1].rstrip("]") for port in (*interface.inputs, *interface.outputs)]


def test_a_name_is_bound_wherever_it_occurs() -> None:
    assert bound({"batch": 8}) == ["8,seq,4", "8,?", "2,n", "batch,seq,4"]
    model = parse(GRAPH)
    BindDimensionsPass({"seq": 5}, {})(model)
    assert str(model.graph[0].outputs[0].shape) == "[batch,5,4]"


def test_input_shapes_set_nameless_dimensions_and_names_everywhere() -> None:
    assert bound({}, {"m": (3, 7)}) == ["3,seq,4", "3,7", "2,n", "batch,seq,4"]
    assert bound({}, {"x": (None, "seq", 4), "w": (2, 6)}) == [
        "batch,seq,4",
        "batch,?",
        "2,6",
        "batch,seq,4",
    ]


def test_an_input_that_has_its_shape_already_does_not_hide_that_another_got_one() -> None:
    model = parse("g (float[?] x, float[4] w) => (float[4] y) { y = Add(x, w) }")
    assert BindDimensionsPass({}, {"x": (4,), "w": (4,)})(model).modified
    assert not BindDimensionsPass({}, {"x": (4,), "w": (4,)})(model).modified


def test_nothing_asked_nothing_changed() -> None:
    assert bound({}) == ["batch,seq,4", "batch,?", "2,n", "batch,seq,4"]


@pytest.mark.parametrize(
    ("dims", "shapes", "message"),
    [
        ({"bach": 8}, {}, "no dimension 'bach'; it has batch, n, seq"),
        ({"batch": 0}, {}, "must be at least 1, not 0"),
        ({}, {"z": (1,)}, "no input 'z'; it has x, m, w"),
        ({}, {"m": (1, 2, 3)}, "has 2 dimensions, the given shape 3"),
        ({}, {"w": (3, 3)}, "dimension 0 of input 'w' is 2, not 3"),
        ({}, {"m": (1, -1)}, "dimension 1 of input 'm' must be at least 1"),
        ({"batch": 8}, {"m": (4, 4)}, "dimension 'batch' is given two sizes, 8 and 4"),
        ({}, {"x": (2, 3, 4), "m": (3, 3)}, "two sizes, 2 and 3"),
    ],
)
def test_wrong_wishes_are_refused(dims: dict[str, int], shapes: Shapes, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        BindDimensionsPass(dims, shapes)(parse(GRAPH))


def test_the_smallest_size_is_one() -> None:
    assert bound({"batch": 1}, {"m": (1, 1)}) == ["1,seq,4", "1,1", "2,n", "batch,seq,4"]


def test_a_dimension_that_is_not_given_stays_and_the_next_is_set() -> None:
    assert bound({}, {"m": (None, 7)}) == ["batch,seq,4", "batch,7", "2,n", "batch,seq,4"]
    assert bound({}, {"m": ("batch", 7)}) == ["batch,seq,4", "batch,7", "2,n", "batch,seq,4"]
    with pytest.raises(UsageError, match="dimension 1 of input 'm' must be at least 1, not 0"):
        bound({}, {"m": (None, 0)})


def test_an_input_of_unknown_rank_takes_the_shape_that_is_given() -> None:
    model = parse("g (float[?] x) => (y) { y = Relu(x) }")
    model.graph.inputs[0].shape = None
    assert BindDimensionsPass({}, {"x": (2, None, 3)})(model).modified
    assert str(Interface.of(model).inputs[0]) == "x: tensor(float)[2,?,3]"


def test_sizes_that_are_there_already_change_nothing() -> None:
    model = parse("g (float[2,3] x, float[4] w) => (float[2,3] y) { y = Relu(x) }")
    assert not BindDimensionsPass({}, {"x": (2, 3), "w": (None,)})(model).modified


def test_values_of_branches_are_bound_too() -> None:
    model = parse("""g (bool c, float[n] x) => (float[n] y) {
 y = If (c) <then_branch = t () => (float[n] a) { h = Neg(x)
 a = Abs(h) }, else_branch = e () => (float[n] b) { b = Exp(x) }> }""")
    assert BindDimensionsPass({"n": 3}, {})(model).modified
    (branch, _) = model.graph.subgraphs()
    assert dimensions(branch.outputs[0].shape) == (3,)


@pytest.mark.parametrize(
    ("graph", "dims", "shapes", "message"),
    [
        ("(float[2] x)", {"n": 2}, {}, "no dimension 'n'; it has no named dimensions"),
        ("()", {}, {"x": (2,)}, "no input 'x'; it has none"),
    ],
)
def test_a_model_that_has_nothing_to_bind_says_so(
    graph: str, dims: dict[str, int], shapes: Shapes, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        BindDimensionsPass(dims, shapes)(parse(f"g {graph} => () {{ }}"))


def test_elements_of_sequences_keep_sizes_of_their_own() -> None:
    text = """g (seq(float[n]) s, float[n] x, float[m] z, int64 i) => (int64[1] y, float[m] w) {
        a = SequenceAt(s, i)
        y = Shape(a)
        w = Add(z, z)
    }"""
    model = parse(text)
    BindDimensionsPass({}, {}, 1)(model)
    shapes = [dimensions(value.shape) for value in model.graph.inputs]
    assert shapes == [("n",), ("n",), (1,), ()]
    elements = [numbers(3), numbers(5)]
    inputs = [elements, numbers(5), numbers(1), np.array(1)]
    assert run(model, inputs)[0].tolist() == [5]


def test_a_shape_without_a_name_is_that_of_the_only_input() -> None:
    text = "g (float[n,?] x) => (float[n,?] y) { y = Neg(x) }"
    for shapes in ({"": (2, 3)}, {"": (2, 3), "x": (2, 3)}):
        model = parse(text)
        BindDimensionsPass({}, shapes)(model)
        assert dimensions(model.graph.inputs[0].shape) == (2, 3)
    with pytest.raises(UsageError, match="input 'x' is given two shapes"):
        BindDimensionsPass({}, {"": (2, 3), "x": (2, 4)})(parse(text))
    message = r"for models with one; this one has 3 \(x, m, w\): say which is meant, as in x=\.\.\."
    with pytest.raises(UsageError, match=message):
        BindDimensionsPass({}, {"": (2, 3)})(parse(GRAPH))
    with pytest.raises(UsageError, match=r"this one has 0 \(\): say which is meant, as in x="):
        BindDimensionsPass({}, {"": (2,)})(parse("g () => () { }"))


def test_what_is_not_stated_is_assumed_and_remembered() -> None:
    model = parse(GRAPH)
    assert BindDimensionsPass({"seq": 5}, {}, 7)(model).modified
    assert [dimensions(value.shape) for value in model.graph.inputs] == [(7, 5, 4), (7, 7), (2, 7)]
    assert model.meta[ASSUMED] == {"batch": 7, "m[1]": 7, "n": 7}
    assert not BindDimensionsPass({}, {}, 7)(model).modified
    # What was stated is a change, too, where there is nothing to assume.
    stated = parse("g (float[?] x) => (float[?] y) { y = Neg(x) }")
    assert BindDimensionsPass({}, {"x": (3,)}, 1)(stated).modified


def test_the_default_of_an_input_knows_its_sizes_and_those_of_the_same_name() -> None:
    model = parse("g (float[n,?] x, float[?,n,m] d) => (float[n] y) { y = Neg(x) }")
    model.graph.inputs[1].meta[DEFAULT_SHAPE] = (4, 5, 6)
    assert BindDimensionsPass({}, {}, 1)(model).modified
    assert [dimensions(value.shape) for value in model.graph.inputs] == [(5, 1), (4, 5, 6)]
    assert model.meta[ASSUMED] == {"x[1]": 1}


def test_values_of_functions_are_bound_beside_those_of_the_graph() -> None:
    model = ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["": 21, "mine": 1]>
        g (float[n] x) => (float[n] y) <float[n] a> { a = Neg(x) y = mine.twice(a) }
        <domain: "mine", opset_import: ["": 21]> twice (p) => (q) { r = Neg(p) q = Add(r, r) }"""
    )
    (function,) = model.functions.values()
    inner = function[0].outputs[0]
    inner.shape = ir.Shape(["n"])
    BindDimensionsPass({"n": 3}, {})(model)
    assert dimensions(inner.shape) == dimensions(model.graph[0].outputs[0].shape) == (3,)


def test_what_stays_dynamic_does_not_hide_what_follows() -> None:
    model = parse("g (seq(float[n]) s, float[n,m] x, float[?] z) => () { }")
    BindDimensionsPass({}, {}, 1)(model)
    assert [dimensions(value.shape) for value in model.graph.inputs[1:]] == [("n", 1), (1,)]


def test_an_assumed_size_of_a_nameless_dimension_alone_is_a_change() -> None:
    assert BindDimensionsPass({}, {}, 1)(parse("g (float[?] x) => () { }")).modified


def test_outputs_get_the_sizes_of_their_names_and_none_before() -> None:
    model = parse(GRAPH)
    assert not BindOutputsPass()(model).modified
    BindDimensionsPass({"batch": 8}, {})(model)
    assert BindOutputsPass()(model).modified
    assert dimensions(model.graph.outputs[0].shape) == (8, "seq", 4)
