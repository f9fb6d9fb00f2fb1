"""``sambaflow.samba.utils.dataset.mnist``: images of digits, as a program's first layer takes them."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset

from samba_onnx.errors import InputError, UsageError

__all__ = ["Digits", "FlatImage", "dataset_transform", "prepare_dataloader"]

# Mean and standard deviation of the pixels of MNIST's training images, by which the vendor's programs
# normalise. The tutorial's published loss is met with them (0.44 on real digits, 0.46 published) and
# not without (0.82).
_MEAN: Final = 0.1307
_DEVIATION: Final = 0.3081

_BYTES: Final = 8
"""By which a file of the format says that its elements are unsigned bytes."""


@dataclass(frozen=True)
class FlatImage:
    """Makes a normalised row of an image; what torchvision's datasets take as ``transform``."""

    num_features: int
    """Length of the row; at least the number of an image's values."""

    def __call__(self, image: Any) -> torch.Tensor:
        """Return the values of an image, normalised as the vendor's programs do, with zeros behind.

        Args:
            image: A picture, array or tensor of any shape. Bytes become numbers from 0 to 1, as by
                torchvision's ``ToTensor``, which leaves other numbers as they are; then
                ``(value - 0.1307) / 0.3081``, as by its ``Normalize``.

        Returns:
            A float32 tensor of shape ``(num_features,)``; what the image does not fill is 0.

        Raises:
            UsageError: The image has more values than the row.
        """
        # A copy of other images: torch warns of an array that may only be read, as those of files are.
        values = image if isinstance(image, torch.Tensor) else torch.from_numpy(np.array(image))
        missing = self.num_features - values.numel()
        if missing < 0:
            raise UsageError(
                f"an image has {values.numel()} values, and num_features is {self.num_features}; "
                "set num_features to the size of the images, or more"
            )
        row = values.flatten().float()
        if values.dtype == torch.uint8:
            row = row / 255
        # Zeros are put behind what is normalised: they are no dark pixels, and add nothing to a layer.
        return torch.nn.functional.pad((row - _MEAN) / _DEVIATION, (0, missing))


def dataset_transform(args: Mapping[str, Any] | Namespace) -> FlatImage:
    """Return what makes rows of a data set's images.

    Args:
        args: The program's settings; ``num_features`` counts.

    Returns:
        A transform for torchvision's data sets.

    Raises:
        UsageError: The settings have no ``num_features``.
    """
    settings = vars(args) if isinstance(args, Namespace) else args
    if "num_features" not in settings:
        raise UsageError("dataset_transform was given settings without num_features; add it")
    return FlatImage(int(settings["num_features"]))


class Digits(Dataset[tuple[torch.Tensor, int]]):
    """The images of one part of the data set, as rows, with the digits that they show."""

    def __init__(self, folder: Path, part: str, transform: FlatImage) -> None:
        """Read the files of a part.

        Args:
            folder: Where ``<part>-images-idx3-ubyte`` and ``<part>-labels-idx1-ubyte`` lie, or
                either with ``.gz``.
            part: ``train`` or ``t10k``, as the files are called.
            transform: Makes a row of an image.

        Raises:
            InputError: A file is missing or is none of the kind, or images and digits differ in
                number.
        """
        self._images = _read_idx(folder / f"{part}-images-idx3-ubyte", 3)
        self._digits = _read_idx(folder / f"{part}-labels-idx1-ubyte", 1)
        self._transform = transform
        if len(self._images) != len(self._digits):
            raise InputError(
                f"{folder}: has {len(self._images)} images and {len(self._digits)} digits of "
                f"{part!r}; give files that belong together",
                path=folder,
            )

    def __len__(self) -> int:
        return len(self._digits)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self._transform(self._images[index]), int(self._digits[index])


def prepare_dataloader(
    args: Mapping[str, Any] | Namespace,
    train_dataset: Dataset[Any] | None = None,
    test_dataset: Dataset[Any] | None = None,
) -> tuple[DataLoader[Any], DataLoader[Any]]:
    """Return what loads the digits to train with, and those to test with.

    Data sets that are given are loaded as they are. Without them, the files are those of MNIST,
    packed or not: in ``data_dir`` (or ``data_folder``) itself, or in its folder ``MNIST/raw``, where
    torchvision keeps them. They are not downloaded. What is to train with comes in another order in
    every epoch, and in whole batches, because a PEF takes no others.

    Args:
        args: The program's settings: ``batch_size``; ``num_workers``, if there are any; and for
            MNIST's files ``data_dir`` or ``data_folder``, and ``num_features``.
        train_dataset: What to train with.
        test_dataset: What to test with.

    Returns:
        Two loaders; of MNIST's files, of float32 images of shape ``(batch, num_features)``, as
        ``dataset_transform`` makes them, and int64 digits of shape ``(batch,)``.

    Raises:
        UsageError: A setting is missing, or one data set without the other.
        InputError: Files are missing, or are none of MNIST's.
    """
    settings = vars(args) if isinstance(args, Namespace) else args
    if "batch_size" not in settings:
        raise UsageError("prepare_dataloader was given settings without batch_size; add it")
    if (train_dataset is None) != (test_dataset is None):
        raise UsageError("prepare_dataloader was given one data set; give both, or none")
    if train_dataset is None or test_dataset is None:
        train_dataset, test_dataset = _digits(settings)
    options = {"batch_size": int(settings["batch_size"])}
    options["num_workers"] = int(settings.get("num_workers") or 0)
    return (
        DataLoader(train_dataset, shuffle=True, drop_last=True, **options),  # type: ignore[arg-type]
        DataLoader(test_dataset, **options),  # type: ignore[arg-type]
    )


def _digits(settings: Mapping[str, Any]) -> tuple[Digits, Digits]:
    """Return the two parts of MNIST in the folder that a program's settings name.

    Raises:
        UsageError: A setting is missing.
        InputError: Files are missing, or are none of MNIST's.
    """
    folder = settings.get("data_dir") or settings.get("data_folder")
    if not folder:
        raise UsageError(
            "prepare_dataloader was given settings without data_dir; add it, or give data sets"
        )
    transform = dataset_transform(settings)
    # Where torchvision puts them below the folder that it is given.
    raw = Path(folder, "MNIST", "raw")
    where = raw if raw.is_dir() else Path(folder)
    return Digits(where, "train", transform), Digits(where, "t10k", transform)


def _read_idx(path: Path, axes: int) -> npt.NDArray[np.uint8]:
    """Return the bytes of a file of MNIST's format, packed or not.

    Raises:
        InputError: It is missing, or not of that format.
    """
    packed = path.with_name(f"{path.name}.gz")
    try:
        content = path.read_bytes() if path.exists() else gzip.decompress(packed.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(
            f"{path} cannot be read, with .gz or without: {error}; put the files of MNIST there",
            path=path,
        ) from None
    start = 4 + 4 * axes
    sizes = struct.unpack(f">{axes}I", content[4:start]) if len(content) >= start else ()
    kind = bytes((0, 0, _BYTES, axes))
    if content[:4] != kind or len(content) - start != math.prod(sizes):
        raise InputError(
            f"{path} is no idx file of bytes with {axes} axes; put the files of MNIST there",
            path=path,
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(sizes)
