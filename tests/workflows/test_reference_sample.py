"""One maker of reference samples, whoever ran the original model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import samba_onnx
from samba_onnx.facts.tolerances import OUTPUT
from samba_onnx.program.program import DEFAULT_GRAPH
from samba_onnx.workflows import reference_sample
from samba_onnx.workflows.reference_sample import keep_sample

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
        assert len(own.runs) == 6


def test_a_model_that_takes_fewer_integers_than_it_shows_is_sampled_with_0_and_1(
    tmp_path: Path,
) -> None:
    model = _embedding(TensorProto.FLOAT, broken=True)
    with samba_onnx.convert(model, tmp_path / "m.pef") as pef:
        assert set(np.unique(pef.reference_inputs()["i"]).tolist()) == {0, 1}
        assert samba_onnx.verify(model, pef).runs[0] == "seed 0, integers 0 and 1, weights mapped"
