"""What converts also runs: stages are prepared before a PEF is complete."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import samba_onnx
from samba_onnx.errors import ExecutionError, ModelLimitError
from samba_onnx.safety.preparing import refuse_unpreparable

# onnxruntime has no kernel for convolutions in float64.
WITHOUT_KERNEL = """<ir_version: 10, opset_import: ["": 21]>
g (double[1,1,4,4] x, double[1,1,3,3] w) => (double[1,1,2,2] y) { a = Conv(x, w) y = Relu(a) }"""
CUSTOM = """<ir_version: 10, opset_import: ["": 21, "com.example": 1]>
g (float[2] x) => (float[2] y) { a = com.example.Thing(x) y = Relu(a) }"""
PLAIN = """<ir_version: 10, opset_import: ["": 21]>
g (float[2] x) => (float[2] y) { y = Relu(x) }"""


@pytest.mark.parametrize("sample", [None, True, False])
def test_a_model_whose_stage_cannot_be_prepared_is_not_written(
    sample: bool | None, tmp_path: Path
) -> None:
    model = onnx.parser.parse_model(WITHOUT_KERNEL)
    with pytest.raises(
        ExecutionError, match=r"fallback 0 \(Conv\.\.Relu\) .*Conv.* nothing was written"
    ):
        samba_onnx.convert(model, tmp_path / "m.pef", sample=sample)
    assert list(tmp_path.iterdir()) == []


def test_its_plan_can_be_had_all_the_same(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(WITHOUT_KERNEL)
    assert samba_onnx.analyze(model).graphs
    samba_onnx.convert(model, tmp_path / "m.pef", sample=False, trial=False).close()
    with pytest.raises(ExecutionError, match="the engine cannot execute what was compiled"):
        refuse_unpreparable(tmp_path / "m.pef")


def test_operators_that_only_the_user_has_are_noted_not_refused(tmp_path: Path) -> None:
    with samba_onnx.convert(onnx.parser.parse_model(CUSTOM), tmp_path / "m.pef") as pef:
        assert any("com.example::Thing" in note for note in pef.manifest.notes)


def test_what_this_machine_lacks_is_noted_not_refused(tmp_path: Path) -> None:
    """The PEF may run on another machine, as the model does."""
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
g (string[2] x) => (string[2] y) { y = StringNormalizer<case_change_action="LOWER", locale="xx_YY">(x) }""")
    with samba_onnx.convert(model, tmp_path / "m.pef") as pef:
        (note,) = (note for note in pef.manifest.notes if "locale" in note)
    assert "Failed to construct locale with name:xx_YY" in note
    assert "::" not in note.replace("locale::facet::", "")  # no signature


def test_time_is_limited(tmp_path: Path) -> None:
    samba_onnx.convert(onnx.parser.parse_model(PLAIN), tmp_path / "m.pef", sample=False).close()
    refuse_unpreparable(tmp_path / "m.pef")
    with pytest.raises(ModelLimitError, match=r"it took longer than 0\.001 s"):
        refuse_unpreparable(tmp_path / "m.pef", seconds=0.001)
