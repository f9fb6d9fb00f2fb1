"""One maker of reference samples, whoever ran the original model."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

import samba_onnx
from samba_onnx.comparing import reference_sample, sample_limits
from samba_onnx.comparing.reference_sample import (
    _dimensions,
    _specifications,
    keep_sample,
    make_sample,
)
from samba_onnx.comparing.sample import Sample, is_tried
from samba_onnx.comparing.sample_inputs import random_inputs
from samba_onnx.comparing.sample_limits import obstacle
from samba_onnx.errors import InvalidModelError, UsageError
from samba_onnx.facts.tolerances import OUTPUT
from samba_onnx.loading import load_model
from samba_onnx.passes.sharding.collectives import CONTENT, SHARDED
from samba_onnx.program.program import DEFAULT_GRAPH
from samba_onnx.safety.sampling import SampleRun
from tests.safety.small_models import model, node, relu, value

NUMBERS = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_a_sample_says_what_it_is_compared_with_and_how_closely() -> None:
    sample = keep_sample([{"x": NUMBERS}], [{"y": NUMBERS, "z": NUMBERS}], seed=7)
    record = sample.record
    assert record is not None
    assert (record.graph, record.seed) == (DEFAULT_GRAPH, 7)
    assert (record.inputs, record.outputs) == (("x",), ("y", "z"))
    assert (record.rtol, record.atol) == (OUTPUT.relative, OUTPUT.absolute)
    assert sample.content
    assert not sample.notes
    unseeded = keep_sample([{"x": NUMBERS}], [{"y": NUMBERS}]).record
    assert unseeded is not None
    assert (unseeded.seed, unseeded.depth) == (0, 1)


@pytest.mark.parametrize("place", ["inputs", "outputs"])
def test_what_is_no_number_is_not_kept(place: str) -> None:
    values: dict[str, dict[str, Any]] = {"inputs": {"x": NUMBERS}, "outputs": {"y": NUMBERS}}
    values[place] = {"text": np.array(["a", "b"], dtype=object)}
    sample = keep_sample([values["inputs"]], [values["outputs"]])
    assert (sample.record, sample.content) == (None, None)
    assert sample.notes == (
        "The PEF carries no reference sample: its inputs or outputs are not all numbers.",
    )


def test_inputs_and_outputs_count_towards_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = 3 << 20
    monkeypatch.setattr(reference_sample, "KEPT_BYTES", limit)
    half = np.zeros(limit // 2, np.int8)
    assert keep_sample([{"x": half}], [{"y": half}]).record is not None
    (note,) = keep_sample([{"x": half}], [{"y": np.zeros(limit, np.int8)}]).notes
    assert "inputs and outputs take 4 MiB, the limit is 3" in note


def test_as_many_runs_are_kept_as_the_limit_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_sample, "KEPT_BYTES", 50)
    run = {"x": NUMBERS}  # 24 bytes, and as many for the output
    record = keep_sample([run] * 3, [{"y": NUMBERS}] * 3).record
    assert record is not None
    assert record.runs == 1


def test_nothing_beyond_the_limit_is_kept_and_all_up_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reference_sample, "KEPT_BYTES", 96)
    run = {"x": NUMBERS}  # 24 bytes, and as many for the output
    record = keep_sample([run] * 3, [{"y": NUMBERS}] * 3).record
    assert record is not None
    assert record.runs == 2
    monkeypatch.setattr(reference_sample, "KEPT_BYTES", 48)
    assert keep_sample([run], [{"y": NUMBERS}]).record is not None


def test_a_sample_of_nothing_takes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_sample, "KEPT_BYTES", 3)
    empty = np.zeros((0, 3), np.float32)
    record = keep_sample([{"x": empty}] * 3, [{"y": empty}] * 3).record
    assert record is not None
    assert record.runs == 3


def test_only_outputs_of_16_bits_are_kept_in_float32() -> None:
    narrow = NUMBERS.astype(np.float16)
    wide = {"y": NUMBERS, "z": NUMBERS}
    sample = keep_sample([{"x": NUMBERS}], [{"y": narrow, "z": NUMBERS}], [wide], depth=5)
    assert sample.record is not None
    assert (sample.record.wide, sample.record.depth) == (("y",), 5)


def _embedding(element: int, *, broken: bool = False) -> onnx.ModelProto:
    """Rows of a table, transformed; ``broken`` adds a node that takes no index but 0 and 1."""
    table = np.random.default_rng(0).standard_normal((1000, 8)).astype(np.float32)
    nodes = [helper.make_node("Gather", ["table", "i"], ["rows"])]
    nodes.append(helper.make_node("Tanh", ["rows"], ["y"]))
    outputs = [helper.make_tensor_value_info("y", element, [2, 16, 8])]
    if broken:  # makes as many elements of one as the largest index says
        nodes.append(helper.make_node("ReduceMax", ["i"], ["largest"], keepdims=0))
        nodes.append(helper.make_node("Unsqueeze", ["largest", "first"], ["size"]))
        nodes.append(helper.make_node("Reshape", ["single", "size"], ["z"]))
        outputs.append(helper.make_tensor_value_info("z", element, ["n"]))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("i", TensorProto.INT64, [2, 16])],
        outputs,
        [
            helper.make_tensor("table", element, table.shape, table.reshape(-1)),
            helper.make_tensor("single", element, [1], [2.0]),
            helper.make_tensor("first", TensorProto.INT64, [1], [0]),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


Runs = list[dict[str, Any]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Runs, dict[str, Any]]]:
    """What the original was asked: it is taken for a Relu, and answers in this process."""
    questions: list[tuple[Runs, dict[str, Any]]] = []

    def run_sample(_model: object, inputs: Runs, **options: Any) -> SampleRun:
        questions.append((inputs, options))
        outputs = tuple({"y": np.maximum(run["x"], 0)} for run in inputs)
        return SampleRun(outputs, (), "")

    monkeypatch.setattr(reference_sample, "run_sample", run_sample)
    return questions


def sampled(proto: onnx.ModelProto, seed: int = 0, **options: Any) -> Sample:
    loaded = load_model(proto)
    return make_sample(proto, loaded, loaded.model, seed, **{"wanted": None, **options})


def test_runs_of_a_sample_have_neighbouring_seeds_and_small_dynamic_sizes(asked: Any) -> None:
    proto = model([node("Exp", ["x"], ["y"])], inputs=[value("x", ["n", 3])])
    sample = sampled(proto, seed=5, seconds=7.0)
    assert sample.record is not None
    assert (sample.record.seed, sample.record.runs, sample.record.depth) == (5, 3, 1)
    ((inputs, options),) = asked
    assert [list(run) for run in inputs] == [["x"]] * 3
    for number, run in enumerate(inputs):
        drawn = random_inputs({"x": ("tensor(float)", (2, 3))}, 5 + number)
        np.testing.assert_array_equal(run["x"], drawn["x"])
    assert (options["seconds"], options["wide"]) == (7.0, False)
    assert options["threads"] == 1, "sums of several threads depend on how many there are"


@pytest.mark.parametrize(("seconds", "legal"), [(0, False), (0.25, True), (math.inf, False)])
def test_any_time_above_zero_may_be_given(asked: Any, seconds: float, legal: bool) -> None:
    if legal:
        assert sampled(relu(), seconds=seconds).record is not None
        return
    with pytest.raises(UsageError, match=f"sample_seconds is {seconds}: expected a number"):
        sampled(relu(), seconds=seconds)
    assert asked == []


def test_a_sample_is_of_the_graph_that_is_named(asked: Any) -> None:
    record = sampled(relu(), wanted=True, graph="other").record
    assert record is not None
    assert record.graph == "other"


def test_who_wants_no_sample_gets_none_and_no_note(asked: Any) -> None:
    assert sampled(relu(), wanted=False) == Sample()
    assert asked == []


@pytest.mark.parametrize("operator", ["RandomUniformLike", "RandomNormalLike", "Bernoulli"])
def test_a_model_that_draws_numbers_has_no_sample(asked: Any, operator: str) -> None:
    proto = model([node(operator, ["x"], ["z"]), node("Multinomial", ["z"], ["y"])])
    for wanted in (None, True):
        (note,) = sampled(proto, wanted=wanted).notes
        assert f"{', '.join(sorted(['Multinomial', operator]))} draws other numbers" in note
    assert asked == []


def test_very_large_weights_are_read_for_a_sample_on_request_only(
    asked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = [helper.make_tensor(name, TensorProto.FLOAT, (2, 3), [0.5] * 6) for name in "vw"]
    proto = model(
        [node("Add", ["x", "w"], ["s"]), node("Add", ["s", "v"], ["y"])], initializers=weights
    )
    monkeypatch.setattr(sample_limits, "WEIGHT_BYTES", 47)
    (note,) = sampled(proto).notes
    assert "it has 0.0 GB of weights; ask for one with --sample" in note
    assert asked == []
    assert sampled(proto, wanted=True).record is not None
    monkeypatch.setattr(sample_limits, "WEIGHT_BYTES", 48)
    assert sampled(proto).record is not None


def test_what_the_engine_is_asked_to_prepare() -> None:
    plain, custom = (ir.from_proto(relu()) for _ in range(2))
    next(iter(custom.graph)).domain = "mine"
    assert is_tried(plain)
    assert not is_tried(custom)
    assert is_tried(plain, ("/own.so",))
    assert is_tried(custom, ("/own.so",))


def test_an_original_that_takes_none_of_our_inputs_has_no_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = []

    def run_sample(_model: object, inputs: Runs, **_: Any) -> SampleRun:
        calls.append(inputs)
        return SampleRun((), (), "an index is out of range")

    monkeypatch.setattr(reference_sample, "run_sample", run_sample)
    notes = ("The PEF carries no reference sample: an index is out of range.",)
    assert sampled(relu()).notes == notes
    assert len(calls) == 1, "there are no integers that could be drawn otherwise"
    assert sampled(_embedding(TensorProto.FLOAT)).notes == notes
    ranged, plain = calls[1:]
    assert {-1000, 999} < set(np.unique([run["i"] for run in ranged]).tolist())
    assert set(np.unique([run["i"] for run in plain]).tolist()) == {0, 1}


def test_a_model_whose_input_is_no_tensor_has_no_sample(asked: Any) -> None:
    sequence = helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, None)
    proto = model([node("SequenceLength", ["x"], ["y"])], inputs=[sequence])
    (note,) = sampled(proto).notes
    assert "input 'x' has type seq(tensor(float))" in note
    assert asked == []


@pytest.mark.parametrize(
    ("declared", "kind", "text"),
    [
        ([2, 4], TensorProto.FLOAT, r"tensor\(float\) \[2, 4\], .* computes float32 \[2, 3\]"),
        (None, TensorProto.INT64, r"tensor\(int64\) \[\?\], .* computes float32"),
        (["n", None], TensorProto.INT64, r"tensor\(int64\) \[n, \?\], .* computes float32"),
    ],
)
def test_an_answer_that_contradicts_the_model_is_refused_with_its_name(
    asked: Any, declared: list[Any] | None, kind: int, text: str
) -> None:
    proto = relu()
    loaded = load_model(proto)
    loaded.model.graph.outputs[0].shape = None if declared is None else ir.Shape(declared)
    loaded.model.graph.outputs[0].type = ir.TensorType(ir.DataType(kind))
    with pytest.raises(InvalidModelError, match=rf"^main: output 'y' is taken to be {text}"):
        make_sample(proto, loaded, loaded.model, 0, wanted=None)
    assert len(asked) == 1


@pytest.mark.parametrize("element", [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_a_sample_reads_all_of_a_table_in_three_runs(element: int, tmp_path: Path) -> None:
    with samba_onnx.convert(_embedding(element), tmp_path / "m.pef") as pef:
        sample = pef.manifest.reference
        assert sample is not None
        assert sample.runs == 3
        indices = np.concatenate([pef.reference_inputs(run)["i"] for run in range(3)], axis=None)
        assert {-1000, -1, 0, 999} <= set(indices.tolist())
        assert len(np.unique(indices % 1000)) > 60
        narrow = element != TensorProto.FLOAT
        for run in range(3):
            wide = pef.reference_wide(run)
            assert list(wide) == (["y"] if narrow else [])
            for name, array in wide.items():
                assert array.dtype == np.float32
                rows = pef.reference_outputs(run)[name].astype(np.float32)
                np.testing.assert_allclose(rows, array, rtol=2**-8)
                assert not np.array_equal(rows, array)
        own = samba_onnx.self_test(pef)
        assert own.passed
        assert len(own.runs) == (9 if element == TensorProto.FLOAT16 else 6)


def test_a_model_that_takes_fewer_integers_than_it_shows_is_sampled_with_0_and_1(
    tmp_path: Path,
) -> None:
    model = _embedding(TensorProto.FLOAT, broken=True)
    with samba_onnx.convert(model, tmp_path / "m.pef") as pef:
        assert set(np.unique(pef.reference_inputs()["i"]).tolist()) == {0, 1}
        assert samba_onnx.verify(model, pef).runs[0] == "seed 0, integers 0 and 1, weights mapped"


def test_sizes_of_an_output_are_those_of_all_its_parts() -> None:
    output = ir.val("y", ir.DataType.FLOAT, (2, 3))
    assert _dimensions(output) == (2, 3)
    output.meta[SHARDED] = SimpleNamespace(shape=ir.Shape((8, 3)))
    assert _dimensions(output) == (8, 3)


def test_inputs_are_drawn_in_whole_and_shards_of_weights_are_not() -> None:
    names = ("weight", "shard", "plain", "scalar")
    weight, shard, plain, scalar = (ir.val(name, ir.DataType.FLOAT, (2, 3)) for name in names)
    weight.meta[CONTENT] = "the whole weight"
    shard.meta[SHARDED] = SimpleNamespace(shape=ir.Shape((8, "n")))
    scalar.shape = None
    graph = ir.Graph([weight, shard, plain, scalar], [], nodes=[], name="g")
    assert _specifications(ir.Model(graph, ir_version=10)) == {
        "shard": ("tensor(float)", (8, 2)),
        "plain": ("tensor(float)", (2, 3)),
        "scalar": ("tensor(float)", ()),
    }


def test_large_weights_are_told_in_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    content = np.zeros(30_000_000, np.float32)
    weight = ir.val("w", const_value=ir.tensor(content, name="w"))
    graph = ir.Graph([], [], nodes=[], initializers=[weight], name="g")
    large = ir.Model(graph, ir_version=10)
    assert obstacle(large, explicit=False) == ""
    monkeypatch.setattr(sample_limits, "WEIGHT_BYTES", content.nbytes - 1)
    words = "it has 0.1 GB of weights; ask for one with --sample"
    assert obstacle(large, explicit=False) == words
    assert obstacle(large, explicit=True) == ""
    monkeypatch.setattr(sample_limits, "WEIGHT_BYTES", content.nbytes)
    assert obstacle(large, explicit=False) == ""
