"""HDF5 files of sequences: their chunks, when they are written, and what is told of a failure."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest

from samba_onnx.tools.data_prep import hdf5_files
from samba_onnx.tools.data_prep.hdf5_files import CHUNK_BYTES, SequenceFile, sequence_count


def sequences(begin: int, end: int, length: int) -> np.ndarray:
    rows = np.arange(begin, end, dtype=np.int32)
    return np.stack([np.repeat(row[:, None], length, 1) for row in (rows, -rows)])


@pytest.mark.parametrize("length", [1, 5, 2048, CHUNK_BYTES // 4, CHUNK_BYTES // 4 + 1])
def test_a_chunk_holds_as_many_sequences_as_fit_and_one_at_least(
    length: int, tmp_path: Path
) -> None:
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        SequenceFile(file, length, 2)
        assert sorted(file) == ["input_ids", "token_type_ids"]
        for dataset in file.values():
            rows, columns = dataset.chunks
            assert columns == length
            assert rows == 1 or 4 * length * rows <= CHUNK_BYTES
            assert 4 * length * (rows + 1) > CHUNK_BYTES
            assert (dataset.dtype, dataset.compression) == (np.int32, "gzip")


@pytest.mark.parametrize("step", [1, 3, 4, 5, 11])
def test_sequences_are_written_in_whole_chunks(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hdf5_files, "CHUNK_BYTES", 24)  # two sequences of three tokens
    monkeypatch.setattr(hdf5_files, "BLOCK_CHUNKS", 2)
    path = tmp_path / "a.hdf5"
    with h5py.File(path, "w") as file:
        made = SequenceFile(file, 3, 2)
        before = 0
        for begin in range(0, 5 * step, step):
            made.append(sequences(begin, begin + step, 3))
            written = len(file["input_ids"])
            assert written % 2 == 0
            # Two chunks at least, or none.
            assert written - before not in range(1, 4)
            before = written
            # As much as two chunks never wait.
            assert begin + step - written < 4
        made.finish()
        made.finish()
        both = np.stack([file["input_ids"][:], file["token_type_ids"][:]])
        assert (both == sequences(0, 5 * step, 3)).all()
    assert sequence_count(path) == 5 * step


def test_nothing_more_is_written_into_a_file_that_was_given_up(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf5"
    file = h5py.File(path, "w")
    SequenceFile(file, 3, 2)
    before = path.read_bytes()
    hdf5_files._give_up(file)
    assert not os.get_inheritable(file.id.get_vfd_handle())
    file["input_ids"].resize(1000, axis=0)
    file["input_ids"][:] = 7
    file.close()
    assert path.read_bytes() == before
    # The system lets what replaces a file be cut to a length: HDF5 does so when it closes one.
    with h5py.File(tmp_path / "b.hdf5", "w") as file:
        hdf5_files._give_up(file)


@pytest.mark.parametrize("error", [OSError, RuntimeError, ValueError])
def test_to_give_a_file_up_is_never_an_error_of_its_own(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise error("no descriptor")

    file = SimpleNamespace(id=SimpleNamespace(get_vfd_handle=fail))
    descriptors = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
    hdf5_files._give_up(file)
    monkeypatch.delattr(os, "memfd_create", raising=False)  # as on other systems
    hdf5_files._give_up(file)
    if descriptors:
        assert set(os.listdir("/proc/self/fd")) == descriptors
