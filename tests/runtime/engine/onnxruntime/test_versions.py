"""What the installed onnxruntime takes, whichever it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import samba_onnx
from samba_onnx.runtime.engine.onnxruntime import engine, versions
from samba_onnx.runtime.engine.onnxruntime.sessions import make_session
from samba_onnx.runtime.engine.onnxruntime.versions import newest_ir_version, newest_opset, restamp
from tests.versions import needs

OF_ONNX = onnx.defs.onnx_opset_version()
HEADER = '<ir_version: {ir}, opset_import: ["": {opset}]> '


def accepted(opset: int, ir_version: int) -> bool:
    text = HEADER.format(ir=ir_version, opset=opset)
    model = onnx.parser.parse_model(text + "g (float[2] x) => (float[2] y) { y = Relu(x) }")
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    except onnxruntime.capi.onnxruntime_pybind11_state.Fail:
        return False
    return True


def test_the_newest_versions_are_taken_and_no_newer_ones() -> None:
    opset, ir_version = newest_opset(), newest_ir_version()
    assert accepted(opset, ir_version)
    assert opset == OF_ONNX or not accepted(opset + 1, ir_version)
    assert ir_version == onnx.IR_VERSION or not accepted(opset, ir_version + 1)


@needs("onnx", "1.21")
def test_the_newest_version_is_that_of_every_release_that_is_admitted() -> None:
    assert newest_opset() >= 26


def test_a_model_is_stamped_only_where_no_operator_is_newer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(versions, "newest_opset", lambda: 19)
    for operator, stamped in (("Relu", True), ("Gelu", False)):  # Gelu came with 20
        text = f"g (float[2] x) => (float[2] y) {{ y = {operator}(x) }}"
        model = onnx.parser.parse_model(HEADER.format(ir=10, opset=21) + text)
        assert restamp(model) == stamped
        assert model.opset_import[0].version == (19 if stamped else 21)


@needs("onnx", "1.21")  # the first that knows operator set 26
def test_sections_of_a_newer_version_run_on_an_older_onnxruntime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model keeps its version, 26, for an operator of 23, as 27 would be kept; this one knows 25."""
    text = """g (float[1,2] x) => (float[1,2] y) <float[2] scale = {1, 1}>
        { y = RMSNormalization(x, scale) }"""
    model = onnx.parser.parse_model(HEADER.format(ir=11, opset=26) + text)

    def refuse_newer(source: bytes, *arguments: Any, **options: Any) -> Any:
        if onnx.load_from_string(source).opset_import[0].version > 25:
            raise onnxruntime.capi.onnxruntime_pybind11_state.Fail("till opset 25")
        return make_session(source, *arguments, **options)

    with samba_onnx.convert(model, tmp_path / "m.pef", sample=False, trial=False) as pef:
        monkeypatch.setattr(engine, "make_session", refuse_newer)
        monkeypatch.setattr(versions, "newest_opset", lambda: 25)
        with samba_onnx.Device(pef, threads=1) as device:
            result = device.run({"x": np.array([[3, 4]], np.float32)})["y"]
            # A mean, a root and a quotient in float32, with the 1e-5 that the operator adds to 12.5.
            np.testing.assert_allclose(result, np.array([[3, 4]]) / 12.50001**0.5, rtol=1e-6)
