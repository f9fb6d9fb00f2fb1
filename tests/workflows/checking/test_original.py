"""A PEF of an ONNX model appears only if it computes what the model computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from samba_onnx.errors import EngineRefusalError, ExecutionError, ExportMismatchError
from samba_onnx.pef import load_pef
from samba_onnx.runtime.device import Device
from samba_onnx.runtime.engine.onnxruntime.engine import OnnxRuntimeEngine
from samba_onnx.workflows.checking.original import convert_compared
from samba_onnx.workflows.checking.outcome import ComparisonOutcome

X = np.array([[1.0, -2.0]], np.float32)
HEADER = '<ir_version: 10, opset_import: ["": 21, "acme": 1]> g (float[1, 2] x) => (float[1, 2] y) '
TRACE = 'File "mine.py", line 7, in forward\n    y = strange(x)\n'


def model(body: str) -> onnx.ModelProto:
    """Return a model whose nodes come from line 7 of ``mine.py``."""
    proto = onnx.parser.parse_model(f"{HEADER}{{ {body} }}")
    for number, node in enumerate(proto.graph.node):
        node.name = f"node_{number}"
        node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=TRACE)
    return proto


def notes(path: Path) -> tuple[str, ...]:
    with load_pef(path) as pef:
        return pef.manifest.notes


def test_agreeing_models_appear_with_their_log(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "m.pef"
    comparison = convert_compared(model("y = Tanh(x)"), path, {"x": X}, sample=False)
    assert comparison.outcome is ComparisonOutcome.DONE
    assert list(comparison.errors) == ["y"]
    assert notes(path) == ()
    assert sorted(p.name for p in path.parent.iterdir()) == ["m.pef", "m.pef.log"]
    assert [p.name for p in tmp_path.iterdir()] == ["deep"]


def test_random_models_are_not_comparable(tmp_path: Path) -> None:
    path = tmp_path / "m.pef"
    body = "noise = RandomNormalLike(x) \n y = Add(x, noise)"
    comparison = convert_compared(model(body), path, {"x": X}, sample=False)
    assert comparison.outcome is ComparisonOutcome.NOT_COMPARABLE
    note = (
        "What was compiled is not compared with the ONNX model on onnxruntime: RandomNormalLike "
        "draws other numbers in every run."
    )
    assert comparison.notes == (note,)
    assert note in notes(path)


def test_dropouts_are_random_only_in_training(tmp_path: Path) -> None:
    path = tmp_path / "m.pef"
    still = convert_compared(model("y = Dropout(x)"), path, {"x": X}, sample=False)
    assert still.outcome is ComparisonOutcome.DONE
    body = "r = Constant<value = float {0.5}>() \n t = Constant<value = bool {1}>()"
    moving = convert_compared(model(f"{body} \n y = Dropout(x, r, t)"), path, {}, sample=False)
    assert moving.reason == "Dropout draws other numbers in every run"


def test_inputs_that_the_model_refuses_are_not_comparable(tmp_path: Path) -> None:
    path = tmp_path / "m.pef"
    body = (
        "i = Cast<to = 7>(x) \n rows = Gather(x, i) \n axis = Constant<value_ints = [1]>() \n"
        "y = ReduceSum<keepdims = 0>(rows, axis)"
    )
    comparison = convert_compared(model(body), path, {"x": X + 5}, sample=False)
    assert "onnxruntime fails on the given inputs: Gather node" in comparison.reason
    assert comparison.notes[0] in notes(path)


def test_inputs_without_values_are_drawn(tmp_path: Path) -> None:
    path = tmp_path / "m.pef"
    comparison = convert_compared(model("y = Tanh(x)"), path, {}, "an input has no values")
    assert comparison.outcome is ComparisonOutcome.DONE
    assert comparison.notes == (
        "What was compiled is compared with the ONNX model on onnxruntime on values of its own for "
        "'x'.",
    )
    assert comparison.notes[0] in notes(path)


@pytest.mark.parametrize("value", [7, -4, 1 << 40])
def test_indices_of_no_table_are_drawn(tmp_path: Path, value: int) -> None:
    text = (
        '<ir_version: 8, opset_import: ["" : 18]> g (float[3, 2] t, int64[4] i) => (float[4, 2] y) '
        "{ y = Gather(t, i) }"
    )
    given = {"t": np.ones((3, 2), np.float32), "i": np.full(4, value)}
    comparison = convert_compared(onnx.parser.parse_model(text), tmp_path / "m.pef", given)
    assert comparison.outcome is ComparisonOutcome.DONE
    assert "on values of its own for 'i'" in comparison.notes[0]


@pytest.mark.parametrize("missing", ["", "an input has no values"])
def test_a_refused_operator_is_named_with_its_line(tmp_path: Path, missing: str) -> None:
    strange = model("z = Tanh(x) \n y = acme.Swirl(z)")
    with pytest.raises(EngineRefusalError, match=r"operator acme::Swirl at mine\.py:7;") as caught:
        convert_compared(strange, tmp_path / "m.pef", {"x": X}, missing, sample=False)
    assert (caught.value.operator, caught.value.location) == ("acme::Swirl", "mine.py:7")
    assert (caught.value.node, caught.value.section_type) == ("node_1", "FWD")
    assert list(tmp_path.iterdir()) == []


def broken(monkeypatch: pytest.MonkeyPatch, outcome: Any) -> None:
    def run(self: Device, inputs: Any) -> Any:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(Device, "run", run)


def test_other_numbers_leave_all_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.pef"
    broken(monkeypatch, {"y": np.sin(X)})
    with pytest.raises(ExportMismatchError, match=r"than the ONNX model, for outputs \['y'\]"):
        convert_compared(model("y = Tanh(x)"), tmp_path / "deep" / "m.pef", {"x": X}, sample=False)
    assert list(tmp_path.iterdir()) == []
    path.write_text("the last one")
    with pytest.raises(ExportMismatchError):
        convert_compared(model("y = Tanh(x)"), path, {"x": X}, sample=False)
    assert path.read_text() == "the last one"
    assert [p.name for p in tmp_path.iterdir()] == ["m.pef"]


def test_a_refused_stage_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "Tanh node 'node_0': no kernel"
    broken(monkeypatch, ExecutionError(f"section 0 cannot be prepared: {reason}", reason=reason))
    with pytest.raises(EngineRefusalError, match=r"compiled model .* Tanh at mine\.py:7;"):
        convert_compared(model("y = Tanh(x)"), tmp_path / "m.pef", {"x": X}, sample=False)
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_comparable_is_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: OnnxRuntimeEngine, *_: Any) -> Any:
        raise ExecutionError("section 0 cannot be prepared", reason="Tanh node 'node_0': no kernel")

    monkeypatch.setattr(OnnxRuntimeEngine, "bind", refuse)
    with pytest.raises(EngineRefusalError, match=r"compiled model .* Tanh at mine\.py:7;"):
        convert_compared(model("y = Tanh(x)"), tmp_path / "m.pef", {}, "no values", sample=False)
    assert list(tmp_path.iterdir()) == []


def test_a_refusal_of_the_whole_names_no_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch, ExecutionError("memory ran out"))
    with pytest.raises(EngineRefusalError, match=r"no single operator.*memory ran out") as caught:
        convert_compared(model("y = Tanh(x)"), tmp_path / "m.pef", {"x": X}, sample=False)
    assert (caught.value.operator, caught.value.location) == (None, None)
