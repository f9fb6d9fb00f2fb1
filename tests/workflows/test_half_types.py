"""Which type takes the place of float16."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest

from samba_onnx.errors import UsageError
from samba_onnx.passes.targets import load_target
from samba_onnx.workflows.half_types import float16_type


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
