"""How much of a reference sample is worth its time, and what becomes of one that takes more."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

import samba_onnx
from samba_onnx.comparing.sample_limits import WORK, count_of_runs, may_never_end
from samba_onnx.errors import TimeLimitError
from tests.safety.small_models import model, node, value
from tests.test_sample import HOSTILE


def product(size: int) -> onnx.ModelProto:
    """Return ``x @ x`` of square matrices."""
    shape = [size, size]
    return model(
        [node("MatMul", ["x", "x"], ["y"])],
        inputs=[value("x", shape)],
        outputs=[value("y", shape)],
    )


@pytest.mark.parametrize(("share", "runs"), [(0.9, 1), (0.49, 2), (0.3, 3), (0.001, 3), (3, 1)])
def test_a_model_that_computes_for_seconds_runs_once(share: float, runs: int) -> None:
    size = round((share * WORK / 2) ** (1 / 3))
    assert count_of_runs(ir.from_proto(product(size))) == runs


def test_a_pef_keeps_as_many_runs_as_were_worth_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("samba_onnx.comparing.sample_limits.WORK", 2 * 2 * 8**3)
    with samba_onnx.convert(product(8), tmp_path / "m.pef") as pef:
        assert pef.manifest.reference is not None
        assert pef.manifest.reference.runs == 2


@pytest.mark.parametrize("runs", [1, 2, 3])
def test_a_pef_is_verified_with_as_many_inputs(
    runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("samba_onnx.comparing.sample_limits.WORK", runs * 2 * 8**3)
    with samba_onnx.convert(product(8), tmp_path / "m.pef", sample=False) as pef:
        seeds = {run.split(",")[0] for run in samba_onnx.verify(product(8), pef).runs}
    assert seeds == {f"seed {number}" for number in range(runs)}


def test_a_slow_model_is_converted_without_a_sample(tmp_path: Path) -> None:
    with samba_onnx.convert(product(8), tmp_path / "m.pef", sample_seconds=0.001) as pef:
        assert pef.manifest.reference is None
        (note,) = (text for text in pef.manifest.notes if "sample" in text)
    assert "the original needs more time than it was given (--sample-seconds)" in note


def test_of_a_slow_model_a_sample_that_was_asked_for_is_not_left_out(tmp_path: Path) -> None:
    with pytest.raises(TimeLimitError, match="give the sample more time"):
        samba_onnx.convert(product(8), tmp_path / "m.pef", sample=True, sample_seconds=0.001)
    assert not list(tmp_path.iterdir())


def test_only_loops_and_operators_of_others_may_never_end() -> None:
    assert may_never_end(ir.from_proto(HOSTILE["endless_loop"]))
    assert not may_never_end(ir.from_proto(product(2)))
    foreign = model([helper.make_node("Wait", ["x"], ["y"], domain="of.others")])
    foreign.opset_import.append(helper.make_opsetid("of.others", 1))
    assert may_never_end(ir.from_proto(foreign))
    branch = helper.make_graph(
        list(HOSTILE["endless_loop"].graph.node),
        "branch",
        [],
        [helper.make_tensor_value_info("o", TensorProto.FLOAT, None)],
    )
    assert may_never_end(
        ir.from_proto(
            model([helper.make_node("If", ["x"], ["y"], then_branch=branch, else_branch=branch)])
        )
    )
