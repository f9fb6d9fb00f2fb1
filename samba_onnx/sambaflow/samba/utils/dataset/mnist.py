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

_BYTES: Final = 8
"""By which a file of the format says that its elements are unsigned bytes."""


@dataclass(frozen=True)
class FlatImage:
    """Makes a row of an image; what torchvision's datasets take as ``transform``."""

    num_features: int
    """Length of the row."""

    def __call__(self, image: Any) -> torch.Tensor:
        """Return the values of an image.

        Args:
            image: A picture, array or tensor of any shape. Bytes become numbers from 0 to 1, as by
                torchvision's ``ToTensor``; other numbers stay as they are.

        Returns:
            A float32 tensor of shape ``(num_features,)``.

        Raises:
            UsageError: The image has another number of values.
        """
        values = image if isinstance(image, torch.Tensor) else torch.from_numpy(np.array(image))
        if values.numel() != self.num_features:
            raise UsageError(
                f"an image has {values.numel()} values, and num_features is {self.num_features}; "
                "set num_features to the size of the images"
            )
        row = values.reshape(self.num_features).float()
        return row / 255 if values.dtype == torch.uint8 else row


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
) -> tuple[DataLoader[Any], DataLoader[Any]]:
    """Return what loads the digits to train with, and those to test with.

    The files are those of MNIST, packed or not: in ``data_dir`` (or ``data_folder``) itself, or in
    its folder ``MNIST/raw``, where torchvision keeps them. They are not downloaded. The ones to
    train with come in another order in every epoch, and in whole batches, because a PEF takes no
    others.

    Args:
        args: The program's settings: ``data_dir`` or ``data_folder``, ``batch_size``,
            ``num_features`` and, if there are any, ``num_workers``.

    Returns:
        Two loaders, of float32 images of shape ``(batch, num_features)`` from 0 to 1 and int64
        digits of shape ``(batch,)``.

    Raises:
        UsageError: A setting is missing.
        InputError: Files are missing, or are none of MNIST's.
    """
    settings = vars(args) if isinstance(args, Namespace) else args
    folder = settings.get("data_dir") or settings.get("data_folder")
    if not folder or "batch_size" not in settings:
        raise UsageError(
            "prepare_dataloader was given settings without data_dir or batch_size; add them"
        )
    transform = dataset_transform(settings)
    raw = Path(folder, "MNIST", "raw")
    where = raw if raw.is_dir() else Path(folder)
    options = {"batch_size": int(settings["batch_size"])}
    options["num_workers"] = int(settings.get("num_workers") or 0)
    training, testing = (Digits(where, part, transform) for part in ("train", "t10k"))
    return (
        DataLoader(training, shuffle=True, drop_last=True, **options),  # type: ignore[arg-type]
        DataLoader(testing, **options),  # type: ignore[arg-type]
    )


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
