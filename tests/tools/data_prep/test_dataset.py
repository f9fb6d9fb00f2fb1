"""What training reads: every sequence of every file, in processes of its own, too."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import h5py
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


def filled(path: Path, count: int, planes: int = 2) -> None:
    with new_sequence_file(path, 5, planes) as file:
        file.append(np.arange(count, dtype=np.int32)[None, :, None].repeat(planes, 0).repeat(5, 2))


def test_a_sequence_is_found_in_whichever_file_it_is(tmp_path: Path) -> None:
    counts = (1, 2, 4, 3)
    for place, count in enumerate(counts, 1):
        filled(tmp_path / f"dev_{place}_of_4.hdf5", count, 3)
    with HDF5Dataset(tmp_path, "dev") as dataset:
        rows = [int(dataset[place]["category_ids"][0]) for place in range(len(dataset))]
    assert rows == [row for count in counts for row in range(count)]


def test_files_are_opened_once_and_not_needed_by_what_is_in_memory(folder: Path) -> None:
    dataset, held = HDF5Dataset(folder), HDF5Dataset(folder, in_memory=True)
    first = dataset._open(0)
    assert dataset._open(0) is first
    dataset.close()
    held.close()
    assert not first
    for path in folder.iterdir():
        path.unlink()
    assert int(held[6]["input_ids"][0]) == 6
    with pytest.raises(DataError, match=r"train_1_of_3\.hdf5: this is no HDF5 file") as caught:
        dataset[0]
    assert caught.value.path == str(folder / "train_1_of_3.hdf5")


@pytest.mark.parametrize(
    "shapes",
    [
        {"input_ids": (2, 5)},
        {"token_type_ids": (2, 5)},
        {"input_ids": (2, 5), "category_ids": (2, 5)},
        {"input_ids": (2, 5), "token_type_ids": (2, 6)},
        {"input_ids": (2, 5), "token_type_ids": (3, 5), "category_ids": (3, 6)},
        {"input_ids": (5,), "token_type_ids": (5,)},
    ],
)
def test_a_file_of_other_datasets_is_refused(shapes: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "other.hdf5"
    with h5py.File(path, "w") as file:
        for name, shape in shapes.items():
            file.create_dataset(name, shape, np.int32)
    expected = "expected input_ids and token_type_ids (sequences, length) in this file"
    with pytest.raises(DataError, match=re.escape(f"{path}: {expected}")) as caught:
        HDF5Dataset(path)
    assert caught.value.path == str(path)


def test_all_files_have_the_same_datasets(folder: Path) -> None:
    filled(folder / "train_2_of_3.hdf5", 2, 3)
    with pytest.raises(DataError, match="sequences of different lengths or contents"):
        HDF5Dataset(folder)


def test_files_of_two_runs_are_named(folder: Path) -> None:
    (folder / "train_2_of_3.hdf5").rename(folder / "train_2_of_4.hdf5")
    with pytest.raises(DataError) as caught:
        HDF5Dataset(folder)
    names = "train_1_of_3.hdf5, train_2_of_4.hdf5, train_3_of_3.hdf5"
    assert str(caught.value).endswith(f", but there is {names}")
    assert caught.value.path == str(folder)
