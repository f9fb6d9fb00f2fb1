"""HDF5 files of sequences: their chunks, when they are written, and what is told of a failure."""

from __future__ import annotations

from pathlib import Path

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
        for begin in range(0, 5 * step, step):
            made.append(sequences(begin, begin + step, 3))
            written = len(file["input_ids"])
            assert written % 2 == 0
            # As much as two chunks never wait.
            assert begin + step - written < 4
        made.finish()
        made.finish()
        both = np.stack([file["input_ids"][:], file["token_type_ids"][:]])
        assert (both == sequences(0, 5 * step, 3)).all()
    assert sequence_count(path) == 5 * step
