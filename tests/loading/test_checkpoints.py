from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors.torch
import torch

from samba_onnx.errors import ModelFileError, UsageError
from samba_onnx.loading.checkpoints import by_symbol, read_safetensors, require_all


def test_every_type_that_torch_saves_is_read(tmp_path: Path) -> None:
    kinds = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool]
    tensors = {str(kind): torch.tensor([[0, 1], [2, 3]]).to(kind) for kind in kinds}
    tensors["scalar"] = torch.tensor(3.0)
    tensors["empty"] = torch.zeros(0, 2)
    safetensors.torch.save_file(tensors, tmp_path / "c.safetensors")
    arrays = read_safetensors(tmp_path / "c.safetensors")
    assert arrays.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert arrays[name].shape == tuple(tensor.shape)
        np.testing.assert_array_equal(
            arrays[name].astype(np.float64), tensor.double().numpy(), strict=True
        )
    assert arrays["torch.bfloat16"].dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize("content", [b"", b"hello", b"\xff" * 64, b"\x02\0\0\0\0\0\0\0{}rest"])
def test_what_is_no_safetensors_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "c.safetensors"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=r"c\.safetensors: is no safetensors file"):
        read_safetensors(path)


def test_entries_are_found_by_path_or_whole_name() -> None:
    names = ["net__layer__weight", "net__layer__bias", "net__inner__layer__weight"]
    keys = ["layer.weight", "layer.bias", "inner.layer.weight", "other"]
    assert by_symbol(names, keys) == dict(zip(names, keys, strict=False))
    assert by_symbol(names, names) == {name: name for name in names}
    assert by_symbol([], keys) == {}


def test_the_root_may_hold_underscores_itself() -> None:
    names = ["a__net__weight", "a__net__weight__weight"]
    assert by_symbol(names, ["weight", "weight.weight"]) == {
        "a__net__weight": "weight",
        "a__net__weight__weight": "weight.weight",
    }


def test_missing_entries_are_named() -> None:
    require_all("c.pt", ["a"], {"a": "a"}, ["a"])
    with pytest.raises(UsageError, match=r"c\.pt lacks a, b, c and 1 more; it has x: give the"):
        require_all("c.pt", "abcd", {}, ["x"])
    with pytest.raises(UsageError, match="it has nothing"):
        require_all("c.pt", ["a"], {}, [])
