"""The passes that prepare a model for training: what shall be trained stays apart."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from samba_onnx.errors import InternalError
from samba_onnx.passes import pipeline
from samba_onnx.passes.order import PassContext
from samba_onnx.passes.pipeline import run_pipeline, run_training_pipeline
from samba_onnx.pef.rewrite_records import PassSummary
from tests.passes.rewrites.applying import Knows, KnowsAll, operators, parse

EQUAL = """g (float[2] x) => (float[2] y) <float[2] v = {1, 2}, float[2] w = {1, 2}> {
    a = Mul (x, v)
    b = Mul (x, w)
    i = Identity (a)
    y = Add (i, b)
}"""


class Lifts(ir.passes.InPlacePass):
    """Makes inputs of initializers, and looks at what there is to choose from."""

    def __init__(self, *kept: str) -> None:
        super().__init__()
        self.kept = kept
        self.seen: list[str] = []

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        self.seen = list(model.graph.initializers)
        for name in [name for name in self.seen if name not in self.kept]:
            value = model.graph.initializers.pop(name)
            value.const_value = None
            model.graph.inputs.append(value)
        return ir.passes.PassResult(model, modified=bool(self.seen))


def names(summaries: tuple[PassSummary, ...]) -> list[str]:
    return [summary.name for summary in summaries]


def test_equal_weights_are_trained_apart_and_run_as_one() -> None:
    trained, lifts = parse(EQUAL), Lifts()
    run_training_pipeline(trained, KnowsAll(), lifts)
    assert lifts.seen == ["v", "w"]
    assert [value.name for value in trained.graph.inputs] == ["x", "v", "w"]
    assert operators(trained) == ["Mul", "Mul", "Add"]
    ran = parse(EQUAL)
    run_pipeline(ran, KnowsAll())
    assert operators(ran) == ["Mul", "Add"]


def test_state_that_is_equal_now_stays_apart() -> None:
    trained = parse(EQUAL)
    run_training_pipeline(trained, KnowsAll(), Lifts("v", "w"))
    assert sorted(trained.graph.initializers) == ["v", "w"]
    assert operators(trained) == ["Mul", "Mul", "Add"]


def test_statistics_that_move_are_not_folded_into_weights() -> None:
    text = """g (float[1, 1, 2, 2] x) => (float[1, 1, 2, 2] y) <
        float[1, 1, 1, 1] w = {3}, float[1] s = {2}, float[1] b = {1}, float[1] m = {0}, float[1] v = {4}
    > {
        h = Conv (x, w)
        y = BatchNormalization (h, s, b, m, v)
    }"""
    trained, ran = parse(text), parse(text)
    run_training_pipeline(trained, KnowsAll(), Lifts("w", "s", "b", "m", "v"))
    run_pipeline(ran, KnowsAll())
    assert operators(trained) == ["Conv", "BatchNormalization"]
    assert operators(ran) == ["Conv"]


def test_weights_are_chosen_before_anything_folds_them() -> None:
    text = """g (float[2] x) => (float[2] y) <float[2] v = {1, 2}, float[2] w = {3, 4}> {
        s = Mul (v, w)
        y = Add (x, s)
    }"""
    trained, lifts = parse(text), Lifts()
    run_training_pipeline(trained, KnowsAll(), lifts)
    assert lifts.seen == ["v", "w"]
    assert operators(trained) == ["Mul", "Add"]


def test_a_module_takes_any_size_so_that_dimensions_stay_dynamic() -> None:
    trained = parse("g (float[n, 2] x) => (float[n, 2] y) { y = Relu (x) }")
    summaries = run_training_pipeline(trained, KnowsAll(), Lifts())
    assert str(trained.graph.inputs[0].shape) == "[n,2]"
    assert "BindDimensions" not in names(summaries)


def test_operators_are_expanded_that_are_not_known() -> None:
    text = "g (float[2, 2] x) => (float[2, 2] y) { y = Softplus (x) }"
    whole, expanded = parse(text), parse(text)
    run_training_pipeline(whole, KnowsAll(), Lifts())
    run_training_pipeline(expanded, Knows("Exp", "Add", "Log", "CastLike", "Cast"), Lifts())
    assert operators(whole) == ["Softplus"]
    assert "Softplus" not in operators(expanded)


def test_what_each_pass_did_is_told_in_order() -> None:
    trained = parse(EQUAL)
    summaries = run_training_pipeline(trained, KnowsAll(), Lifts())
    by_name = {summary.name: summary for summary in summaries if summary.modified}
    assert names(summaries)[0] == "ForgetShapes"
    assert {"Lifts", "RemoveNoops"} <= set(by_name)
    assert (by_name["RemoveNoops"].nodes_before, by_name["RemoveNoops"].nodes_after) == (4, 3)
    assert all(summary.seconds >= 0 for summary in summaries)


def test_passes_for_training_need_a_choice_of_weights() -> None:
    runner = pipeline._Runner(parse(EQUAL), None)
    with pytest.raises(InternalError, match="without a choice of its weights"):
        runner.run(pipeline.TRAINING, PassContext(KnowsAll()))
