"""Exported programs are read without running anything that their files hold."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from samba_onnx.errors import InvalidModelError, ModelFileError, ModelLimitError
from samba_onnx.export.capture.archives import load_exported_program

MARK = Path("/tmp/never-made-by-a-model-file")


class Bomb:
    """Whoever unpickles this makes a file."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return open, (str(MARK), "w")


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)
        self.shift = torch.tensor([1.0, 2.0, 3.0, 4.0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x)) + self.shift


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "small.pt2"
    torch.export.save(torch.export.export(Small(), (torch.randn(2, 3),)), path)
    return path


def changed(path: Path, change: Callable[[str, bytes], bytes], method: int = 0) -> Path:
    """Write the archive again with other members."""
    result = path.with_name("changed.pt2")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(result, "w", method) as new:
        for info in old.infolist():
            new.writestr(info.filename, change(info.filename, old.read(info)))
    return result


def test_a_saved_program_computes_what_it_did(saved: Path) -> None:
    program = load_exported_program(saved)
    (x,), _ = program.example_inputs or ((), {})
    again = torch.export.load(saved)
    torch.testing.assert_close(program.module()(x), again.module()(x))


def test_dynamic_sizes_are_read(tmp_path: Path) -> None:
    path = tmp_path / "dynamic.pt2"
    batch = torch.export.Dim("batch", min=2)
    exported = torch.export.export(Small(), (torch.randn(6, 3),), dynamic_shapes=({0: 2 * batch},))
    torch.export.save(exported, path)
    assert load_exported_program(path).example_inputs is not None


def test_example_inputs_are_not_unpickled(saved: Path) -> None:
    def plant(name: str, content: bytes) -> bytes:
        if not name.endswith("sample_inputs/model.pt"):
            return content
        stream = io.BytesIO()
        torch.save(Bomb(), stream)
        return stream.getvalue()

    with pytest.raises(InvalidModelError):
        load_exported_program(changed(saved, plant))
    assert not MARK.exists()


def test_a_pickled_constant_is_refused(saved: Path) -> None:
    def plant(name: str, content: bytes) -> bytes:
        return content.replace(b'"use_pickle": false', b'"use_pickle": true')

    with pytest.raises(InvalidModelError, match="pickled object"):
        load_exported_program(changed(saved, plant))


def test_a_size_that_is_code_is_refused(saved: Path) -> None:
    def plant(name: str, content: bytes) -> bytes:
        if not name.endswith("models/model.json"):
            return content
        document = json.loads(content)
        document["range_constraints"] = {}
        size = {"as_expr": {"expr_str": f"open('{MARK}','w')", "hint": {"as_int": 2}}}
        tensors = document["graph_module"]["graph"]["tensor_values"]
        tensors["x"]["sizes"][0] = size
        return json.dumps(document).encode()

    with pytest.raises(InvalidModelError, match="size"):
        load_exported_program(changed(saved, plant))
    assert not MARK.exists()


def test_what_is_no_archive_is_refused(tmp_path: Path, saved: Path) -> None:
    text = tmp_path / "text.pt2"
    text.write_text("hello")
    with pytest.raises(ModelFileError, match=r"torch\.export\.save"):
        load_exported_program(text)
    other = tmp_path / "other.pt2"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("a.txt", "a")
    with pytest.raises(ModelFileError, match="not of an exported program"):
        load_exported_program(other)
    with pytest.raises(ModelFileError):
        load_exported_program(tmp_path / "absent.pt2")
    with pytest.raises(ModelFileError):
        load_exported_program(tmp_path)


def test_compressed_members_are_refused(saved: Path) -> None:
    packed = changed(saved, lambda name, content: content, zipfile.ZIP_DEFLATED)
    with pytest.raises(ModelLimitError, match="compressed"):
        load_exported_program(packed)


def test_a_cut_file_is_refused(saved: Path) -> None:
    saved.write_bytes(saved.read_bytes()[:-100])
    with pytest.raises(ModelFileError):
        load_exported_program(saved)
