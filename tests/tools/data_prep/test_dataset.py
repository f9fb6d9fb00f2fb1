"""What training reads: every sequence of every file, in processes of its own, too."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from samba_onnx.data_prep import HDF5Dataset
from samba_onnx.errors import DataError
from samba_onnx.tools.data_prep.hdf5_files import new_sequence_file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    number = 0
    for place, count in enumerate((3, 0, 4), 1):
        with new_sequence_file(tmp_path / f"train_{place}_of_3.hdf5", 5, 2) as file:
            for _ in range(count):
                file.append(np.full((2, 1, 5), number, np.int32))
                number += 1
    return tmp_path


@pytest.mark.parametrize("in_memory", [False, True])
def test_sequences_are_those_of_the_files_in_their_order(folder: Path, in_memory: bool) -> None:
    with HDF5Dataset(folder, in_memory=in_memory) as dataset:
        assert (len(dataset), dataset.max_seq_length) == (7, 5)
        assert [int(dataset[index]["input_ids"][4]) for index in range(7)] == list(range(7))
        assert int(dataset[-1]["token_type_ids"][0]) == 6
        assert dataset[2]["input_ids"].dtype == np.int32
        for index in (7, -8):
            with pytest.raises(IndexError, match=f"sequence {index} of 7"):
                dataset[index]


def test_a_loader_of_torch_makes_tensors_of_them(folder: Path) -> None:
    dataset = HDF5Dataset(folder)
    for workers in (0, 1):  # the worker is forked after the files are open
        assert len(dataset[0]["input_ids"]) == 5
        batches = list(DataLoader(dataset, batch_size=3, num_workers=workers))  # type: ignore[arg-type]  # anything with items
        ids = torch.cat([batch["input_ids"] for batch in batches])
        assert (ids.dtype, ids.shape) == (torch.int32, (7, 5))
        assert ids[:, 0].tolist() == list(range(7))
    other = copy.copy(dataset)  # which takes the state that torch hands to spawned workers
    assert other._files == {}
    assert int(other[5]["input_ids"][0]) == 5
    dataset.close()
    assert int(dataset[5]["input_ids"][0]) == 5


def test_what_is_no_dataset_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no dev_1_of_N\.hdf5"):
        HDF5Dataset(folder, "dev")
    (folder / "train_2_of_3.hdf5").rename(folder / "train_2_of_4.hdf5")
    with pytest.raises(DataError, match=r"expected train_1_of_N\.hdf5 to train_N_of_N\.hdf5"):
        HDF5Dataset(folder)
    with new_sequence_file(folder / "train_2_of_3.hdf5", 6, 2):
        pass
    (folder / "train_2_of_4.hdf5").unlink()
    with pytest.raises(DataError, match="different lengths"):
        HDF5Dataset(folder)
    (tmp_path / "text.hdf5").write_text("no HDF5")
    with pytest.raises(DataError, match=r"text\.hdf5: this is no HDF5 file"):
        HDF5Dataset(tmp_path / "text.hdf5")
