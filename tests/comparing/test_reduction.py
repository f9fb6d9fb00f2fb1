"""Delta debugging: what is left fails, and no item of it can be left out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samba_onnx.comparing import reduction as reductions
from samba_onnx.comparing.both_sides import plain_engine
from samba_onnx.comparing.reduction import (
    Reducer,
    Reduction,
    RefusedByEngineError,
    Results,
    smallest_failing,
)


@given(st.integers(1, 60), st.data())
def test_what_is_left_fails_and_nothing_of_it_can_go(count: int, data: st.DataObject) -> None:
    guilty = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=5))
    left = smallest_failing(range(count), lambda items: guilty <= set(items))
    assert set(left) == guilty
    assert list(left) == sorted(left)


@given(st.integers(2, 24), st.randoms(use_true_random=False))
def test_a_fault_of_any_shape_is_reduced_until_no_item_can_go(count: int, random: object) -> None:
    # Subsets fail or not by chance, as parts do that a pass cannot be run on; the whole fails.
    answers: dict[tuple[int, ...], bool] = {tuple(range(count)): True}

    def fails(items: Sequence[int]) -> bool:
        key = tuple(items)
        return answers.setdefault(key, random.random() < 0.3)  # type: ignore[attr-defined]

    left = smallest_failing(range(count), fails)
    assert fails(left)
    if len(left) > 1:
        assert not any(fails(rest) for rest in itertools.combinations(left, len(left) - 1))


@pytest.mark.parametrize("guilty", [0, 511, 1023])
def test_one_of_a_thousand_is_found_in_few_trials(guilty: int) -> None:
    trials: list[int] = []

    def fails(items: Sequence[int]) -> bool:
        trials.append(len(items))
        return guilty in items

    assert list(smallest_failing(range(1024), fails)) == [guilty]
    assert len(trials) <= 2 * 10  # two halves in each of ten rounds


MODEL = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[2, 4] x) => (float[2, 4] y, float[2, 4] z, bool[2, 4] t) {
    a = Relu(x)
    b = Tanh(a)
    c = Exp(b)
    y = Neg(c)
    z = Abs(b)
    t = Greater(x, z)
}
"""
X = np.linspace(-2, 2, 8, dtype=np.float32).reshape(2, 4)


def _answers(model: onnx.ModelProto, feeds: Results) -> dict[str, Any]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    names = [output.name for output in session.get_outputs()]
    used = {entry.name: feeds[entry.name] for entry in session.get_inputs()}
    return dict(zip(names, session.run(names, used), strict=True))


def _sigmoid_for_tanh(part: onnx.ModelProto, feeds: Results) -> Results:
    wrong = onnx.ModelProto()
    wrong.CopyFrom(part)
    for node in wrong.graph.node:
        if node.op_type == "Tanh":
            node.op_type = "Sigmoid"
    return _answers(wrong, feeds)


def _reducer(
    recompute: Callable[[onnx.ModelProto, Results], Results] = _sigmoid_for_tanh, depth: int = 4
) -> Reducer:
    model = onnx.parser.parse_model(MODEL)
    return Reducer(model, {"x": X}, plain_engine(1), recompute, depth)


def _operators(part: Reduction) -> list[str]:
    return [node.op_type for node in part.model.graph.node]


def test_a_model_is_reduced_to_the_node_that_is_recomputed_wrongly() -> None:
    part = _reducer().reduce()
    assert part is not None
    assert _operators(part) == ["Tanh"]
    assert (part.nodes, part.of) == (1, 6)
    whole = onnx.parser.parse_model(MODEL)
    whole.graph.output.extend(onnx.ValueInfoProto(name=name) for name in "ab")
    values = _answers(whole, {"x": X})
    assert part.inputs.keys() == {"a"}
    np.testing.assert_array_equal(part.inputs["a"], values["a"])
    assert part.expected.keys() == {"b"}
    np.testing.assert_array_equal(part.expected["b"], values["b"])
    assert part.actual is not None
    # float32 of another formula for the sigmoid.
    np.testing.assert_allclose(part.actual["b"], 1 / (1 + np.exp(-values["a"])), rtol=1e-6)
    assert [(output.name, output.passed) for output in part.outputs] == [("b", False)]
    # The whole, its two halves, ...: fewer than one for each set of its nodes, and counted.
    assert 3 < part.trials < 20
    (output,) = part.model.graph.output
    assert [dim.dim_value for dim in output.type.tensor_type.shape.dim] == [2, 4]
    assert output.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    onnx.checker.check_model(part.model, full_check=True)


def test_a_part_that_shows_it_is_looked_at_before_the_whole() -> None:
    seen: list[int] = []

    def recompute(part: onnx.ModelProto, feeds: Results) -> Results:
        seen.append(len(part.graph.node))
        return _sigmoid_for_tanh(part, feeds)

    reducer = _reducer(recompute)
    part = reducer.reduce([1])
    assert part is not None
    assert (_operators(part), part.trials) == (["Tanh"], 2)  # it is enough, and is returned
    assert seen == [1, 1]
    part = reducer.reduce([3])  # a node that is right: the whole is looked at
    assert part is not None
    assert _operators(part) == ["Tanh"]
    assert seen[2:4] == [1, 6]


def test_values_are_outputs_where_the_model_declares_them_or_no_node_of_the_part_reads_them() -> (
    None
):
    outputs: list[list[str]] = []

    def recompute(part: onnx.ModelProto, feeds: Results) -> Results:
        outputs.append([output.name for output in part.graph.output])
        return _answers(part, feeds)

    reducer = _reducer(recompute)
    assert reducer.reduce([1, 2, 4, 5]) is None
    assert outputs == [["c", "z", "t"], ["y", "z", "t"]]


def test_what_is_right_has_no_part_and_what_cannot_be_recomputed_shows_nothing() -> None:
    assert _reducer(_answers).reduce() is None

    def confused(part: onnx.ModelProto, feeds: Results) -> Results:
        raise ZeroDivisionError

    assert _reducer(confused).reduce() is None


def test_what_an_engine_refuses_is_a_fault_without_an_answer() -> None:
    def refuse(part: onnx.ModelProto, feeds: Results) -> Results:
        if any(node.op_type == "Exp" for node in part.graph.node):
            raise RefusedByEngineError("no Exp")
        return _answers(part, feeds)

    part = _reducer(refuse).reduce()
    assert part is not None
    assert _operators(part) == ["Exp"]
    assert (part.actual, part.outputs, part.nodes, part.of) == (None, (), 1, 6)
    assert part.expected.keys() == {"c"}


def test_the_search_ends_after_so_many_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reductions, "MOST_TRIALS", 1)
    reducer = _reducer()
    assert reducer.reduce([1]) is None  # nothing is left in order to tell what was found
    monkeypatch.setattr(reductions, "MOST_TRIALS", 3)
    part = _reducer().reduce([1])
    assert part is not None
    assert part.trials == 2


def test_an_input_that_keeps_its_default_is_a_weight_of_the_part() -> None:
    """As every weight of a model of an old version is."""
    model = onnx.parser.parse_model(
        """
        <ir_version: 3, opset_import: ["" : 21]>
        g (float[2, 4] x, float[4] d) => (float[2, 4] y) <float[4] d = {4, 3, 2, 1}>
        { a = Mul(x, d) y = Tanh(a) }
        """
    )

    def doubled(part: onnx.ModelProto, feeds: Results) -> Results:
        return {name: 2 * value for name, value in _answers(part, feeds).items()}

    reducer = Reducer(model, {"x": X}, plain_engine(1), doubled, 2)
    part = reducer.reduce([0])
    assert part is not None
    assert (_operators(part), list(part.inputs)) == (["Mul"], ["x"])
    np.testing.assert_array_equal(part.expected["a"], X * np.array([4, 3, 2, 1], np.float32))
    taken = reducer.with_values([0], {"a": X}, 2)
    np.testing.assert_array_equal(_answers(taken.model, taken.inputs)["a"], part.expected["a"])


def test_errors_are_measured_by_the_depth_of_the_model() -> None:
    def off_by(part: onnx.ModelProto, feeds: Results) -> Results:
        return {name: value * np.float16(1.02) for name, value in _answers(part, feeds).items()}

    model = onnx.parser.parse_model(
        """
        <ir_version: 10, opset_import: ["" : 21]>
        g (float16[4] x) => (float16[4] y) { y = Relu(x) }
        """
    )
    x = np.array([1, 2, 3, 4], np.float16)
    # Two per cent are some twenty roundings: few of a deep model, and many of a flat one.
    assert Reducer(model, {"x": x}, plain_engine(1), off_by, 1).reduce() is not None
    assert Reducer(model, {"x": x}, plain_engine(1), off_by, 10_000).reduce() is None
    reducer, wrong = (
        Reducer(model, {"x": x}, plain_engine(1), off_by, 1),
        {"y": x * np.float16(1.02)},
    )
    flat, deep = (reducer.with_values([0], wrong, depth).outputs[0].passed for depth in (1, 10_000))
    assert (flat, deep) == (False, True)


def test_what_lies_between_a_value_and_those_that_agree() -> None:
    reducer = _reducer()
    assert reducer.between("y", {"b", "x"}) == [2, 3]
    assert reducer.between("t", {"a"}) == [1, 4, 5]
    assert reducer.between("b", ()) == [0, 1]


def test_a_part_takes_values_that_somebody_else_computed() -> None:
    reducer = _reducer()
    wrong = {"c": np.zeros((2, 4), np.float32)}
    part = reducer.with_values([1, 2], wrong, 4)
    assert _operators(part) == ["Tanh", "Exp"]
    assert (part.nodes, part.of, part.trials) == (2, 6, 0)
    assert part.inputs.keys() == {"a"}
    assert part.actual is wrong
    np.testing.assert_allclose(part.expected["c"], np.exp(np.tanh(part.inputs["a"])), rtol=1e-6)
    assert [(output.name, output.passed) for output in part.outputs] == [("c", False)]
    (output,) = part.model.graph.output
    assert [dim.dim_value for dim in output.type.tensor_type.shape.dim] == [2, 4]


def test_a_part_is_written_with_all_its_values(tmp_path: Path) -> None:
    part = _reducer().reduce()
    assert part is not None
    paths = part.write(tmp_path / "part")
    assert paths == (str(tmp_path / "part.onnx"), str(tmp_path / "part.npz"))
    written = onnx.load(paths[0])
    with np.load(paths[1]) as arrays:
        assert set(arrays) == {"a", "expected/b", "actual/b"}
        np.testing.assert_array_equal(arrays["expected/b"], part.expected["b"])
        np.testing.assert_array_equal(arrays["actual/b"], part.actual["b"])  # type: ignore[index]
        # Whoever reads the two files finds what was expected.
        np.testing.assert_array_equal(_answers(written, arrays)["b"], arrays["expected/b"])


def test_texts_and_sequences_are_left_as_they_are() -> None:
    model = onnx.parser.parse_model(
        """
        <ir_version: 10, opset_import: ["" : 21]>
        g (string[2] x) => (string[2] y, seq(string[1]) s) {
            y = Identity(x)
            s = SplitToSequence<axis = 0>(y)
        }
        """
    )
    x = np.array(["a", "b"], object)

    def refuse(part: onnx.ModelProto, feeds: Results) -> Results:
        raise RefusedByEngineError

    part = Reducer(model, {"x": x}, plain_engine(1), refuse, 1).reduce([0, 1])
    assert part is not None
    assert _operators(part) == ["Identity"]
    (output,) = part.model.graph.output
    assert output.type.tensor_type.elem_type == onnx.TensorProto.STRING
    assert [dim.dim_value for dim in output.type.tensor_type.shape.dim] == [2]
