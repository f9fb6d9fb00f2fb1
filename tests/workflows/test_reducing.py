"""``reduce``: a PEF that disagrees becomes the one node that shows it, whoever is at fault."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import samba_onnx
from samba_onnx.workflows.reducing import reduce_pef
from tests.workflows.broken_passes import BROKEN
from tests.workflows.test_value_comparison import net, with_pass


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return net(tmp_path / "net.onnx")


def test_there_is_nothing_to_reduce_where_all_values_agree(model: Path, tmp_path: Path) -> None:
    with samba_onnx.convert(model, tmp_path / "net.pef") as pef:
        result = reduce_pef(model, pef)
    assert result.reduction is None
    assert result.comparison.passed


@pytest.mark.parametrize("operator", ["Tanh", "Softmax"])
def test_what_the_compiler_does_wrong_is_one_node(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operator: str
) -> None:
    with_pass(monkeypatch, BROKEN[operator])
    with samba_onnx.convert(model, tmp_path / "net.pef", dims={"n": 3}) as pef:
        result = reduce_pef(model, pef)
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
    with pef:  # the passes are right again
        result = reduce_pef(model, pef)
    assert not result.converts_wrongly
    reduction = result.reduction
    assert reduction is not None
    assert [node.op_type for node in reduction.model.graph.node] == ["Sub"]
    assert reduction.actual is not None
    # The other way round: what is f - e and not e - f.
    np.testing.assert_allclose(reduction.actual["f"], -reduction.expected["f"], rtol=1e-6)
