"""What a program keeps in its PEF, read back by another process's code."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from samba_onnx.errors import PefError
from samba_onnx.pef import load_pef
from samba_onnx.report import Report
from samba_onnx.sambaflow.samba import directives, env
from samba_onnx.sambaflow.samba.utils.pef_utils import (
    PefInfoStruct,
    get_pef_info,
    get_pefmeta,
    get_pefmeta_dict,
)
from samba_onnx.sessions import SESSION
from samba_onnx.tensor import randn

VALUES = {"batch_size": 4, "rate": 0.5, "name": "4", "flag": True, "none": None, "lengths": [1, 2]}


class Fused(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with directives.op_fusion(func_name="double", heuristic={"deep": 1}):
            doubled = x + x
        with directives.sdpa_directives({"sdp_block_size": 8}), SESSION._add_directives({"id": 7}):
            assert SESSION._context_directives["id"] == 7
            return doubled * 3


def compiled(folder: Path, **options: Any) -> Path:
    x = randn(2, 2, name="x")
    return Path(SESSION.compile(Fused(), (x,), None, output=folder / "m.pef", **options))


@pytest.mark.parametrize(
    "form", [get_pefmeta_dict, lambda *a: get_pefmeta(Namespace(**a[0]), a[1])]
)
def test_fields_come_back_with_their_types(form: Any, tmp_path: Path) -> None:
    pef = compiled(tmp_path, pef_metadata=form({**VALUES, "device": torch.float32}, Fused()))
    fields = {name: PefInfoStruct({}) for name in VALUES}
    info = get_pef_info(pef, fields)
    assert info == VALUES
    assert {name: type(value) for name, value in info.items()} == {
        name: type(value) for name, value in VALUES.items()
    }
    assert get_pef_info(str(pef), {"device": PefInfoStruct()}) == {"device": "torch.float32"}
    with pytest.raises(ValueError, match=r"m.pef was compiled without absent in its metadata"):
        get_pef_info(pef, {"absent": PefInfoStruct(), "rate": PefInfoStruct()})
    with pytest.raises(PefError):
        get_pef_info(tmp_path / "none.pef", fields)


def test_hints_of_one_compilation_are_listed_in_its_pef(tmp_path: Path) -> None:
    directives.op_fusion(Fused(), "Encoder")
    env.enable_conv_grad_accum_stoc()
    pef = compiled(tmp_path)
    assert not SESSION._context_directives
    with load_pef(pef) as opened:
        notes = Report.from_manifest(opened.manifest).notes
    (note,) = (one for one in notes if "Hints" in one)
    for words in ('"on": ["Fused", "Encoder"]', '"func_name": "double"', "sdp_block_size", "id=7"):
        assert words in note
    assert any("Stochastic rounding of convolution-gradients was asked for" in one for one in notes)
    with load_pef(compiled(tmp_path)) as opened:
        text = " ".join(Report.from_manifest(opened.manifest).notes)
    assert "double" in text
    assert "Encoder" not in text
    assert "Stochastic" not in text
