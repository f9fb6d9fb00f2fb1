"""The reference sample: what it refuses, and how long it may take."""

from __future__ import annotations

import time
from pathlib import Path

import onnx
import pytest

import samba_onnx
from samba_onnx.errors import InvalidModelError, ModelLimitError, UsageError
from tests.safety.hostile_runs import only_at_run_time
from tests.safety.small_models import model, node, relu, value

HOSTILE = {name: proto for name, _, proto in only_at_run_time()}


def _nothing_in(folder: Path) -> bool:
    return not list(folder.iterdir())


@pytest.mark.parametrize(
    ("declared", "text"), [([9, 9], r"\[9, 9\]"), ([2], r"\[2\]"), (["n", 4], r"\[n, 4\]")]
)
def test_outputs_that_contradict_their_declaration_are_refused(
    declared: list[int | str], text: str, tmp_path: Path
) -> None:
    wrong = model([node("Relu", ["x"], ["y"])], outputs=[value("y", declared)])
    with pytest.raises(
        InvalidModelError, match=rf"output 'y' is declared as tensor\(float\) {text}"
    ):
        samba_onnx.convert(wrong, tmp_path / "m.pef")
    assert _nothing_in(tmp_path)


@pytest.mark.quick(every=2)
@pytest.mark.parametrize("declared", [[2, 3], ["n", 3], [None, None], None])
def test_outputs_that_agree_are_kept(
    declared: list[int | str | None] | None, tmp_path: Path
) -> None:
    fine = model([node("Relu", ["x"], ["y"])], outputs=[value("y", declared)])
    with samba_onnx.convert(fine, tmp_path / "m.pef") as pef:
        assert pef.reference_outputs()["y"].shape == (2, 3)


@pytest.mark.slow
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
