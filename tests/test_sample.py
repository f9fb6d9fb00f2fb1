"""The reference sample: what it refuses, and how long it may take."""

from __future__ import annotations

import re
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import samba_onnx
from samba_onnx.errors import ModelLimitError, UsageError
from tests.safety.hostile_runs import only_at_run_time
from tests.safety.small_models import model, node, relu, value

HOSTILE = {name: proto for name, _, proto in only_at_run_time()}


def _nothing_in(folder: Path) -> bool:
    return not list(folder.iterdir())


@pytest.mark.parametrize(
    ("declared", "text"), [([9, 9], r"\[9, 9\]"), ([2], r"\[2\]"), (["n", 4], r"\[n, 4\]")]
)
def test_outputs_that_contradict_their_declaration_are_noted(
    declared: list[int | str], text: str, tmp_path: Path
) -> None:
    wrong = model([node("Relu", ["x"], ["y"])], outputs=[value("y", declared)])
    with samba_onnx.convert(wrong, tmp_path / "m.pef") as pef:
        (note,) = (note for note in pef.manifest.notes if "is declared as" in note)
        assert re.search(f"output 'y' is declared as {text}", note)
        assert pef.reference_outputs()["y"].shape == (2, 3)


@pytest.mark.parametrize("declared", [[2, 99], [7], [1, 2, 3]])
def test_outputs_of_shapes_that_depend_on_data_have_those_that_they_have(
    declared: list[int], tmp_path: Path
) -> None:
    outputs = [value("y", declared, TensorProto.INT64)]
    wrong = model([node("NonZero", ["x"], ["y"])], outputs=outputs)
    with (
        samba_onnx.convert(wrong, tmp_path / "m.pef") as pef,
        samba_onnx.Device(pef, threads=1) as device,
    ):
        notes = " ".join(pef.manifest.notes)
        assert "not those that the model declares" in notes or "is declared as" in notes
        assert pef.reference_outputs()["y"].shape[0] == 2
        x = np.array([[0, 1, 0], [0, 0, 3]], np.float32)
        np.testing.assert_array_equal(device.run({"x": x})["y"], np.nonzero(x))


def test_outputs_of_another_type_than_declared_are_refused(tmp_path: Path) -> None:
    outputs = [value("y", [2, 3], TensorProto.INT64)]
    wrong = model([node("Relu", ["x"], ["y"])], outputs=outputs)
    with pytest.raises(samba_onnx.SambaError, match="Type Error"):
        samba_onnx.convert(wrong, tmp_path / "m.pef")
    assert _nothing_in(tmp_path)


@pytest.mark.parametrize("declared", [[2, 3], ["n", 3], [None, None], None])
def test_outputs_that_agree_are_kept(
    declared: list[int | str | None] | None, tmp_path: Path
) -> None:
    fine = model([node("Relu", ["x"], ["y"])], outputs=[value("y", declared)])
    with samba_onnx.convert(fine, tmp_path / "m.pef") as pef:
        assert pef.reference_outputs()["y"].shape == (2, 3)


def test_a_sample_that_never_ends_is_given_up_and_says_what_to_do(tmp_path: Path) -> None:
    begin = time.perf_counter()
    with pytest.raises(ModelLimitError, match=r"--sample-seconds.*--no-sample") as refusal:
        samba_onnx.convert(HOSTILE["endless_loop"], tmp_path / "m.pef", sample_seconds=2)
    assert "longer than 2 s" in str(refusal.value)
    assert time.perf_counter() - begin < 30  # a hang, not a slow machine
    assert _nothing_in(tmp_path)


@pytest.mark.parametrize("seconds", [0, -1.0, float("inf"), float("nan")])
def test_seconds_that_are_no_time_are_refused(seconds: float, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="sample_seconds"):
        samba_onnx.convert(relu(), tmp_path / "m.pef", sample_seconds=seconds)
    assert _nothing_in(tmp_path)


def test_without_a_sample_the_model_is_not_run(tmp_path: Path) -> None:
    loop: onnx.ModelProto = HOSTILE["endless_loop"]
    with samba_onnx.convert(loop, tmp_path / "m.pef", sample=False, trial=False) as pef:
        assert pef.manifest.reference is None
