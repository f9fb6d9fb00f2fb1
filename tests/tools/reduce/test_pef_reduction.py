"""``reduce``: a PEF that disagrees becomes the one node that shows it, whoever is at fault."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import samba_onnx
from samba_onnx.comparing import both_sides, value_comparison
from samba_onnx.comparing.reduction import RefusedByEngineError
from samba_onnx.errors import ExecutionError, ModelLimitError
from samba_onnx.tools.reduce import pef_reduction
from samba_onnx.tools.reduce.pef_reduction import _Converter, _whole, reduce_pef
from tests.comparing.broken_passes import BROKEN
from tests.comparing.test_value_comparison import net, with_pass


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return net(tmp_path / "net.onnx")


def test_there_is_nothing_to_reduce_where_all_values_agree(model: Path, tmp_path: Path) -> None:
    with samba_onnx.convert(model, tmp_path / "net.pef") as pef:
        steps: list[str] = []
        result = reduce_pef(model, pef, progress=steps.append)
        assert steps == ["compare"]
    assert result.reduction is None
    assert result.comparison.passed
    assert result.comparison.inputs == "random inputs of seed 0"
    assert not result.converts_wrongly


def _recorded(monkeypatch: pytest.MonkeyPatch) -> tuple[list[object], list[object]]:
    """Return, once they are called, the threads that the engine and the comparison are given."""
    engines: list[object] = []
    comparisons: list[object] = []
    engine, compare = both_sides.plain_engine, value_comparison.compare_values

    def of_parts(threads: int | None) -> Any:
        engines.append(threads)
        return engine(threads)

    def of_values(*operands: Any, **options: Any) -> Any:
        comparisons.append(options["threads"])
        return compare(*operands, **options)

    monkeypatch.setattr(pef_reduction, "plain_engine", of_parts)
    monkeypatch.setattr(pef_reduction, "compare_values", of_values)
    return engines, comparisons


@pytest.mark.parametrize("operator", ["Tanh", "Softmax"])
def test_what_the_compiler_does_wrong_is_one_node(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operator: str
) -> None:
    with_pass(monkeypatch, BROKEN[operator])
    engines, comparisons = _recorded(monkeypatch)
    steps: list[str] = []
    with samba_onnx.convert(model, tmp_path / "net.pef", dims={"n": 3}) as pef:
        result = reduce_pef(model, pef, seed=3, threads=1, progress=steps.append)
    assert steps == ["compare", "run the original", "reduce"]
    assert (engines, comparisons) == ([1], [1])
    assert result.comparison.inputs == "random inputs of seed 3"
    assert result.converts_wrongly
    assert result.reduction is not None
    assert [node.op_type for node in result.reduction.model.graph.node] == [operator]
    assert not all(output.passed for output in result.reduction.outputs)


def test_a_pef_of_another_compiler_is_reduced_to_what_lies_between_values_that_agree(
    model: Path, tmp_path: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        with_pass(patch, BROKEN["Sub"])
        pef = samba_onnx.convert(model, tmp_path / "net.pef", dims={"n": 3})
    x = np.linspace(-2, 2, 24, dtype=np.float32).reshape(3, 8)
    with pef:  # the passes are right again
        result = reduce_pef(model, pef, inputs={"x": x})
    assert result.comparison.inputs == "the inputs given"
    assert not result.converts_wrongly
    reduction = result.reduction
    assert reduction is not None
    assert [node.op_type for node in reduction.model.graph.node] == ["Sub"]
    assert reduction.actual is not None
    # The other way round: what is f - e and not e - f.
    np.testing.assert_allclose(reduction.actual["f"], -reduction.expected["f"], rtol=1e-6)


def test_weights_are_read_from_beside_the_model_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = '<ir_version: 10, opset_import: ["": 21]> g (float[64] x) => (float[64] y) { y = Add(x, w) }'
    proto = onnx.parser.parse_model(text)
    weight = np.arange(64, dtype=np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    assert _whole(proto) is proto
    path = tmp_path / "g.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="g.data", size_threshold=0)
    size = path.stat().st_size + weight.nbytes
    monkeypatch.setattr(pef_reduction, "MOST_BYTES", size)
    (tensor,) = _whole(path).graph.initializer
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(tensor), weight)
    monkeypatch.setattr(pef_reduction, "MOST_BYTES", size - 1)
    with pytest.raises(ModelLimitError, match=r"g\.onnx: has 0\.0 GB of weights"):
        _whole(path)


def test_a_part_that_the_engine_refuses_is_refused_in_its_words(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pef: Any) -> Any:
        raise ExecutionError("no such kernel")

    monkeypatch.setattr(pef_reduction, "convert", lambda *_, **__: contextlib.nullcontext())
    monkeypatch.setattr(pef_reduction, "Device", refuse)
    converter: Any = _Converter(None, "o1")  # type: ignore[arg-type]
    with pytest.raises(RefusedByEngineError, match=r"^no such kernel$"):
        converter.recompute(onnx.ModelProto(), {})
