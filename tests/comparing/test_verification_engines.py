"""Whose fault is it? What one engine does wrong, the other one does not; a compiler's fault stays."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import parser

import samba_onnx
from samba_onnx.runtime.engine.lowerings import optimizer_faults
from samba_onnx.runtime.engine.registry import ENGINES

PADDED = (
    '<ir_version: 10, opset_import: ["" : 21]>'
    "g (float[1,1,6] x) => (float[1,1,8] y) {{ p = Constant<value_ints=[0,0,2,0,0,2]>() "
    "n = Abs(x) m = Neg(n) a = Pad(m, p) y = {operator}<kernel_shape=[3]>(a) }}"
)


def model(operator: str) -> onnx.ModelProto:
    return parser.parse_model(PADDED.format(operator=operator))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_pef_computes_the_same_as_its_model_on_every_engine(tmp_path: Path, engine: str) -> None:
    with samba_onnx.convert(model("MaxPool"), tmp_path / "m.pef") as pef:
        found = samba_onnx.verify(model("MaxPool"), pef, engine=engine)
        assert (found.passed, found.engine) == (True, engine)
        own = samba_onnx.self_test(pef, engine=engine)
        assert (own.passed, own.engine, own.against) == (True, engine, "sample")


def test_a_fault_of_the_engine_is_on_that_engine_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """onnxruntime's optimizer moves the Pad into the MaxPool, unless it is kept from that."""
    monkeypatch.setattr(optimizer_faults, "faulty_optimizers", lambda _: [])
    with samba_onnx.convert(model("MaxPool"), tmp_path / "m.pef", sample=False, trial=False) as pef:
        assert not samba_onnx.verify(model("MaxPool"), pef).passed
        assert samba_onnx.verify(model("MaxPool"), pef, engine="reference").passed


def test_a_fault_of_the_compiler_is_on_every_engine(tmp_path: Path) -> None:
    """As if it had made an AveragePool of a MaxPool."""
    with samba_onnx.convert(
        model("AveragePool"), tmp_path / "m.pef", sample=False, trial=False
    ) as pef:
        for engine in ENGINES:
            assert not samba_onnx.verify(model("MaxPool"), pef, engine=engine).passed
