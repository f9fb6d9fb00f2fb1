"""Which type takes the place of float16."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest
from onnx import TensorProto

import samba_onnx
from samba_onnx.compiling.half_types import float16_type
from samba_onnx.errors import UsageError
from samba_onnx.facts.precisions import Precision, describe_precision
from samba_onnx.passes.rewrites.rewriting import SMALL
from samba_onnx.passes.targets import load_target
from tests.narrow_models import Net, in_float16


def test_float32_is_taken_where_the_target_has_it(tmp_path: Path) -> None:
    assert float16_type(load_target("sn40l")) == ir.DataType.FLOAT
    for dtypes, expected in (
        ('["bfloat16"]', ir.DataType.BFLOAT16),
        ('["float16", "float32"]', None),
        ('["int32"]', None),
    ):
        path = tmp_path / "mine.toml"
        path.write_text(f'extends = "sn40l"\nname = "mine"\ndtypes = {dtypes}\n')
        assert float16_type(load_target(path)) == expected


def test_what_computes_in_bfloat16_throughout_takes_it_for_float16() -> None:
    target = load_target("sn40l")
    for precision, expected in (
        (Precision.BF16, ir.DataType.BFLOAT16),
        (Precision.BF16_THROUGHOUT, ir.DataType.BFLOAT16),
        (Precision.MIXED, ir.DataType.FLOAT),
    ):
        assert float16_type(target, precision=precision) == expected
        assert float16_type(target, "float32", precision) == ir.DataType.FLOAT


def test_no_operator_of_a_float16_model_stays_in_float32() -> None:
    net = Net(0)
    model = net.model({"x": (TensorProto.FLOAT, [4, 128])}, net.linear("x", 128, 128))
    manifest = samba_onnx.analyze(in_float16(model), precision="bf16")
    assert {symbol.type for symbol in manifest.symbols if symbol.region} == {"tensor(bfloat16)"}
    assert not any("In float32" in note for note in describe_precision(manifest.metadata))


def test_a_choice_is_followed_or_refused(tmp_path: Path) -> None:
    target = load_target("sn10")
    assert float16_type(target, "bfloat16") == ir.DataType.BFLOAT16
    assert float16_type(target, "cpu") is None
    with pytest.raises(UsageError, match="expected one of float32, bfloat16, cpu"):
        float16_type(target, "float64")
    path = tmp_path / "mine.toml"
    path.write_text('extends = "sn40l"\nname = "mine"\ndtypes = ["bfloat16"]\n')
    with pytest.raises(UsageError, match="mine computes with bfloat16 only"):
        float16_type(load_target(path), "float32")


def test_no_weight_is_converted_to_analyse(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of gigabytes is analysed without its weights, whatever type they are to have."""

    evaluate = ir.LazyTensor._evaluate

    def read(tensor: ir.LazyTensor) -> ir.TensorProtocol:
        assert tensor.size <= SMALL, f"{tensor.name} is read"
        return evaluate(tensor)

    monkeypatch.setattr(ir.LazyTensor, "_evaluate", read)
    net = Net(0)
    model = net.model({"x": (TensorProto.FLOAT, [4, 128])}, net.linear("x", 128, 128))
    manifest = samba_onnx.analyze(in_float16(model))
    reasons = [reason for stage in manifest.fallbacks for reason in stage.reasons]
    assert {reason.op_type for reason in reasons} == {"Cast"}
    assert any(note.startswith("float16 runs as float32") for note in manifest.notes)
