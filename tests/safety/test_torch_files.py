"""Files of ``torch.save`` against torch's own reader, and those that nobody should read with that."""

from __future__ import annotations

import contextlib
import io
import os
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from samba_onnx.errors import ModelError, ModelFileError, ModelLimitError, SambaError, UsageError
from samba_onnx.loading.checkpoints import read_checkpoint
from samba_onnx.tensor.arrays import from_array

BOTH = pytest.mark.parametrize("archive", [True, False], ids=["archive", "old"])
TYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
    torch.bool, torch.complex64, torch.complex128,
]  # fmt: skip
NEWER = [torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16, torch.uint32, torch.uint64]
"""Saved beside an untyped storage, which the older format does not have."""


def everything(types: list[torch.dtype]) -> dict[str, Tensor]:
    base = torch.arange(24.0).reshape(4, 6)
    named = {str(each): base.to(each) for each in types}
    remark = torch.ones(2)
    remark.note = "kept beside it"  # type: ignore[attr-defined]
    parameter = nn.Parameter(torch.ones(3))
    parameter.note = "kept beside it"  # type: ignore[attr-defined]
    shared = torch.arange(100.0)
    return named | {
        "turned": base.t(), "cut": base[1:3, ::2], "scalar": torch.tensor(3.0), "empty": torch.zeros(0, 2),
        "expanded": torch.ones(2).reshape(2, 1).expand(2, 5), "parameter": nn.Parameter(torch.ones(3)), "noted": remark,
        "noted parameter": parameter, "first": shared[:10], "last": shared[50:],
    }  # fmt: skip


def assert_as_torch_reads(path: Path, tensors: dict[str, Tensor]) -> None:
    arrays = read_checkpoint(path)
    assert list(arrays) == list(tensors)
    for name, tensor in tensors.items():
        array = arrays[name]
        assert array.shape == tuple(tensor.shape), name
        assert not array.flags.writeable
        if tensor.dtype in (torch.uint16, torch.uint32, torch.uint64):
            np.testing.assert_array_equal(array, tensor.numpy(), strict=True)
            continue
        ours = from_array(np.array(array, order="C"))
        assert ours.dtype == tensor.dtype, name
        assert torch.equal(ours.view(-1).view(torch.uint8), tensor.detach().contiguous().view(-1).view(torch.uint8)), name  # fmt: skip


@BOTH
def test_every_tensor_is_as_torch_reads_it(tmp_path: Path, archive: bool) -> None:
    tensors = everything([*TYPES, *NEWER] if archive else TYPES)
    torch.save({"model": tensors, "epoch": 3, "optimizer": [1, (2,), torch.ones(1)]}, tmp_path / "c.pt", _use_new_zipfile_serialization=archive)  # fmt: skip
    assert_as_torch_reads(tmp_path / "c.pt", tensors)


@BOTH
@pytest.mark.parametrize("protocol", [2, 4])
def test_a_module_s_state_is_read(tmp_path: Path, archive: bool, protocol: int) -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    torch.save(module.state_dict(), tmp_path / "c.pt", _use_new_zipfile_serialization=archive, pickle_protocol=protocol)  # fmt: skip
    assert_as_torch_reads(tmp_path / "c.pt", module.state_dict())


@BOTH
def test_what_an_optimizer_keeps_lies_between_and_is_passed_over(
    tmp_path: Path, archive: bool
) -> None:
    """Its state goes by numbers, and has storages of its own."""
    module = nn.Linear(3, 4)
    optimizer = torch.optim.Adam(module.parameters())
    module(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    content = {"optimizer": optimizer.state_dict(), "model": module.state_dict(), "step": 1}
    torch.save(content, tmp_path / "c.pt", _use_new_zipfile_serialization=archive)
    assert_as_torch_reads(tmp_path / "c.pt", module.state_dict())


def test_numbers_in_the_other_order_of_bytes(tmp_path: Path) -> None:
    tensors = {
        "a": torch.arange(6.0),
        "b": torch.arange(6).to(torch.bfloat16),
        "c": torch.arange(3),
    }
    torch.save(tensors, tmp_path / "c.pt")

    def turn(name: str, content: bytes) -> bytes:
        if name.endswith("byteorder"):
            return b"big"
        width = {"data/0": 4, "data/1": 2, "data/2": 8}.get(name.partition("/")[2])
        return content if width is None else np.frombuffer(content, f"u{width}").byteswap().tobytes()  # fmt: skip

    rewrite(tmp_path / "c.pt", turn)
    assert_as_torch_reads(tmp_path / "c.pt", tensors)


def rewrite(
    path: Path, change: Callable[[str, bytes], bytes], kind: int = zipfile.ZIP_STORED
) -> None:
    """Write the members of an archive anew."""
    with zipfile.ZipFile(path) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, content in members:
            archive.writestr(name, change(name, content))


class Bomb:
    def __reduce__(self) -> Any:
        return os.mkdir, ("unpickled",)


def test_nothing_is_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"w": torch.ones(2), "more": Bomb()}, "c.pt")
    assert list(read_checkpoint("c.pt")) == ["w"]
    torch.save(Bomb(), "d.pt")
    with pytest.raises(SambaError, match="other objects are never unpickled"):
        read_checkpoint("d.pt")
    assert not Path("unpickled").exists()


def hostile(folder: Path) -> dict[str, tuple[Path, str]]:
    """Files that ask for far more than they are: by name, with what is said of each."""
    base = {"w": torch.arange(4.0)}
    cases: dict[str, tuple[Path, str]] = {}

    def case(name: str, message: str) -> Path:
        path = folder / f"{name}.pt"
        torch.save(base, path)
        cases[name] = path, message
        return path

    rewrite(case("compressed", "is compressed"), lambda name, content: bytes(1 << 28) if "data/0" in name else content, zipfile.ZIP_DEFLATED)  # fmt: skip
    # numel of the storage, and the shape of the tensor: BININT1 4 each.
    rewrite(case("storage", "bytes are promised|are promised"), lambda name, content: content.replace(b"K\x04tq", b"J\xff\xff\xff\x7ftq", 1))  # fmt: skip
    rewrite(case("shape", "ends at element"), lambda name, content: content.replace(b"K\x04\x85", b"J\xff\xff\xff\x7f\x85", 1))  # fmt: skip
    rewrite(case("expanded", "larger than the whole file"), lambda name, content: content.replace(b"K\x04\x85", b"J\xff\xff\xff\x7f\x85", 1).replace(b"K\x01\x85", b"K\x00\x85", 1))  # fmt: skip
    rewrite(case("negative", "shape is damaged"), lambda name, content: content.replace(b"K\x04\x85", b"J\xff\xff\xff\xff\x85", 1))  # fmt: skip
    rewrite(case("bytearray", "no state_dict"), lambda name, content: b"\x80\x02c__builtin__\nbytearray\nJ\xff\xff\xff\x7f\x85R." if name.endswith("pkl") else content)  # fmt: skip
    rewrite(case("hash", "no state_dict"), lambda name, content: b"\x80\x02}N" + b"2\x86" * 60 + b"K\x01s." if name.endswith("pkl") else content)  # fmt: skip
    path = case("directory", "directory of this archive")
    end = path.read_bytes()[-22:]
    with path.open("wb") as file:  # a hole, of which the end says that it is the directory
        file.truncate(3 << 30)
        file.seek(0, os.SEEK_END)
        file.write(end[:12] + struct.pack("<II", (3 << 30), 0) + end[20:])
    path = case("hole", "no file of torch.save")
    os.truncate(path, 20 << 30)
    torch.save(base, case("old", "is cut off"), _use_new_zipfile_serialization=False)
    content = cases["old"][0].read_bytes()
    cases["old"][0].write_bytes(content.replace(struct.pack("<q", 4) + base["w"].numpy().tobytes(), struct.pack("<q", 1 << 40)))  # fmt: skip
    return cases


def test_hostile_files_are_refused_with_one_line(tmp_path: Path) -> None:
    for name, (path, message) in hostile(tmp_path).items():
        with pytest.raises(SambaError, match=message) as refusal:
            read_checkpoint(path)
        assert len(str(refusal.value).splitlines()) == 1, name
        assert path.name in str(refusal.value), name


def test_hostile_files_take_no_memory(tmp_path: Path) -> None:
    """Counted where Python and numpy take it; what is mapped is no memory until somebody looks at it."""
    paths = [path for path, _ in hostile(tmp_path).values()]
    paths.append(tmp_path / "hole.safetensors")
    header = b'{"w":{"dtype":"F32","shape":[5368709120],"data_offsets":[0,21474836480]}}'
    paths[-1].write_bytes(struct.pack("<Q", len(header)) + header)
    os.truncate(paths[-1], 8 + len(header) + (20 << 30))
    for path in paths:
        tracemalloc.start()
        try:
            with contextlib.suppress(SambaError):
                read_checkpoint(path)
            assert tracemalloc.get_traced_memory()[1] < 40 << 20, path.name
        finally:
            tracemalloc.stop()


@BOTH
def test_cut_and_changed_files_give_numbers_or_one_line(tmp_path: Path, archive: bool) -> None:
    """Whatever a byte is changed to, what is read is inside the file, and an error is ours."""
    buffer = io.BytesIO()
    torch.save(nn.Linear(3, 2).state_dict(), buffer, _use_new_zipfile_serialization=archive)
    content, path = buffer.getvalue(), tmp_path / "c.pt"
    generator = np.random.default_rng(0)
    refused = read = 0
    for number in range(400):
        changed = bytearray(content)
        if number % 4 == 0:
            del changed[int(generator.integers(len(changed))) :]
        else:
            for place in generator.integers(len(changed), size=number % 4):
                changed[place] = generator.integers(256)
        path.write_bytes(changed)
        try:
            arrays = read_checkpoint(path)
            assert sum(len(array.tobytes()) for array in arrays.values()) <= 4 * len(changed)
            read += 1
        except (ModelError, UsageError) as error:
            refused += len(str(error).splitlines()) == 1
    assert read + refused == 400
    assert min(read, refused) > 20


def test_a_type_without_a_counterpart_is_named(tmp_path: Path) -> None:
    torch.save({"s": torch.eye(3).to_sparse()}, tmp_path / "c.pt")
    with pytest.raises(
        ModelFileError, match=r"c\.pt: 's': a tensor made by .*sparse_tensor has no"
    ):
        read_checkpoint(tmp_path / "c.pt")


def test_a_compressed_member_is_told_as_a_limit(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(2)}, tmp_path / "c.pt")
    rewrite(tmp_path / "c.pt", lambda _, content: content, zipfile.ZIP_DEFLATED)
    with pytest.raises(ModelLimitError, match=r"c\.pt: member 'c/data\.pkl' is compressed"):
        read_checkpoint(tmp_path / "c.pt")


def test_torch_is_not_needed(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(2, dtype=torch.bfloat16)}, tmp_path / "c.pt")
    code = "import sys; from samba_onnx.loading.checkpoints import read_checkpoint; print(read_checkpoint(sys.argv[1])['w'].dtype, 'torch' in sys.modules)"  # fmt: skip
    answer = subprocess.run([sys.executable, "-c", code, tmp_path / "c.pt"], capture_output=True, text=True, check=True)  # fmt: skip
    assert answer.stdout.split() == [np.dtype(ml_dtypes.bfloat16).name, "False"]
