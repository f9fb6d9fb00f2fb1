"""Rows of images, as torchvision's ``ToTensor`` and ``Normalize`` and a reshape would make them."""

from __future__ import annotations

import gzip
from argparse import Namespace
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from samba_onnx.errors import InputError, UsageError
from samba_onnx.sambaflow.samba.utils.dataset.mnist import dataset_transform, prepare_dataloader


def normalised(values: Any) -> torch.Tensor:
    """What the vendor's programs do by hand, in float64: mean 0.1307, deviation 0.3081."""
    return torch.from_numpy((np.asarray(values, np.float64) - 0.1307) / 0.3081).float()


def test_bytes_become_normalised_rows() -> None:
    image = np.arange(6, dtype=np.uint8).reshape(2, 3) * 51
    expected = normalised([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    for settings in ({"num_features": 6}, Namespace(num_features=6, rate=1)):
        transform = dataset_transform(settings)
        for form in (image, torch.from_numpy(image)):
            torch.testing.assert_close(transform(form), expected)
    ForkingPickler.dumps(transform)  # for the workers of a DataLoader, which start anew


def test_numbers_that_are_no_bytes_are_not_divided_by_255() -> None:
    row = dataset_transform({"num_features": 2})(torch.tensor([[0.5], [300.0]]).double())
    torch.testing.assert_close(row, normalised([0.5, 300.0]))


def test_a_longer_row_has_zeros_behind_the_image() -> None:
    image = np.full((28, 28), 255, np.uint8)
    row = dataset_transform({"num_features": 800})(image)
    torch.testing.assert_close(row[:784], normalised(np.ones(784)))
    assert row.shape == (800,)
    assert not row[784:].any()


def test_sizes_that_do_not_fit_are_named() -> None:
    with pytest.raises(UsageError, match="an image has 4 values, and num_features is 3"):
        dataset_transform({"num_features": 3})(torch.ones(2, 2))
    with pytest.raises(UsageError, match="without num_features"):
        dataset_transform({})


def write_idx(path: Path, values: Any, packed: bool = False) -> None:
    """What http://yann.lecun.com/exdb/mnist says of the format: a kind, sizes, bytes."""
    sizes = b"".join(size.to_bytes(4, "big") for size in values.shape)
    content = bytes((0, 0, 8, values.ndim)) + sizes + values.tobytes()
    if packed:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(content))
    else:
        path.write_bytes(content)


IMAGES = np.arange(7 * 6, dtype=np.uint8).reshape(7, 2, 3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for part, count in (("train", 7), ("t10k", 3)):
        write_idx(tmp_path / f"{part}-images-idx3-ubyte", IMAGES[:count])
        write_idx(tmp_path / f"{part}-labels-idx1-ubyte", np.arange(count, dtype=np.uint8), True)
    return tmp_path


@pytest.mark.parametrize("place", ["", "MNIST/raw"])
def test_every_image_comes_once_with_its_digit(place: str, folder: Path) -> None:
    inside = folder / place
    inside.mkdir(parents=True, exist_ok=True)
    for path in [path for path in folder.iterdir() if path.is_file()]:
        path.rename(inside / path.name)
    settings = {"data_dir": str(folder), "batch_size": 2, "num_features": 6, "num_workers": None}
    training, testing = prepare_dataloader(settings)
    torch.manual_seed(0)
    orders = []
    for _ in range(2):
        batches = list(training)
        assert [len(digits) for _, digits in batches] == [2, 2, 2]
        digits = torch.cat([digits for _, digits in batches])
        rows = torch.cat([images for images, _ in batches])
        assert digits.dtype == torch.int64
        torch.testing.assert_close(rows, normalised(IMAGES.reshape(7, 6) / 255)[digits])
        orders.append(digits.tolist())
    assert orders[0] != orders[1]
    kept = Namespace(data_folder=str(folder), batch_size=2, num_features=6)
    for loader in (testing, prepare_dataloader(kept)[1]):
        assert [digits.tolist() for _, digits in loader] == [[0, 1], [2]]


def test_files_that_are_missing_or_broken_are_named(folder: Path) -> None:
    settings = {"data_dir": folder, "batch_size": 1, "num_features": 6}
    images = folder / "train-images-idx3-ubyte"
    for content in (b"", b"\0\0\x08\x01", images.read_bytes()[:-1]):
        images.write_bytes(content)
        with pytest.raises(InputError, match="idx3-ubyte is no idx file of bytes with 3 axes"):
            prepare_dataloader(settings)
    write_idx(images, IMAGES[:2])
    with pytest.raises(InputError, match="has 2 images and 7 digits of 'train'"):
        prepare_dataloader(settings)
    images.unlink()
    images.with_name(f"{images.name}.gz").write_bytes(b"no gzip")
    with pytest.raises(InputError, match=r"idx3-ubyte cannot be read, with \.gz or without"):
        prepare_dataloader(settings)
    with pytest.raises(UsageError, match="without data_dir"):
        prepare_dataloader({"num_features": 6, "batch_size": 1})
    with pytest.raises(UsageError, match="without batch_size"):
        prepare_dataloader({"num_features": 6, "data_dir": folder})


def test_data_sets_of_the_program_are_loaded_as_they_are() -> None:
    training = TensorDataset(torch.arange(5.0), torch.arange(5))
    testing = TensorDataset(-torch.arange(3.0), torch.arange(3))
    loaders = prepare_dataloader(Namespace(batch_size=2), training, testing)
    rows = [torch.cat([batch[0] for batch in loader]) for loader in loaders]
    assert len(set(rows[0].tolist())) == 4  # whole batches only, each element once
    assert set(rows[0].tolist()) < set(range(5))
    assert rows[1].tolist() == [0, -1, -2]
    with pytest.raises(UsageError, match="one data set; give both, or none"):
        prepare_dataloader(Namespace(batch_size=2), training)
