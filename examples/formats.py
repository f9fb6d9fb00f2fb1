"""Readers of the formats that ``data.py`` writes; that of HDF5 is ``samba_onnx.data_prep``'s."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import Dataset


def read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """Read an array of bytes in the format of MNIST.

    Args:
        path: The file, without ``.gz``; it may lie there packed, with ``.gz``.

    Returns:
        The values, in their shape.

    Raises:
        FileNotFoundError: Neither is there.
        ValueError: It has another format.
    """
    packed = path.with_name(f"{path.name}.gz")
    content = path.read_bytes() if path.exists() else gzip.decompress(packed.read_bytes())
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise ValueError(f"{path} is no idx file of bytes: it begins with {content[:4].hex()}")
    start = 4 + 4 * content[3]
    shape = np.frombuffer(content[4:start], ">u4").astype(int)
    values = np.frombuffer(content, np.uint8, offset=start)
    if values.size != shape.prod():
        raise ValueError(f"{path} has {values.size} values, but its shape is {shape.tolist()}")
    return values.reshape(shape)


class Mnist(Dataset[tuple[Any, int]]):
    """Images with labels from the files of MNIST, where torchvision's data set of that name has them."""

    def __init__(
        self, root: Path, train: bool = True, transform: Callable[[Any], Any] | None = None
    ) -> None:
        """Read the files.

        Args:
            root: The folder that has them in ``MNIST/raw``.
            train: Whether to read the images to train on, and not those to test on.
            transform: Called with every image, an array of bytes (28, 28).
        """
        part = root / "MNIST" / "raw" / ("train" if train else "t10k")
        self._images = read_idx(part.with_name(f"{part.name}-images-idx3-ubyte"))
        self._labels = read_idx(part.with_name(f"{part.name}-labels-idx1-ubyte"))
        self._transform = transform

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        """Return an image and its label."""
        image = self._images[index].copy()
        return image if self._transform is None else self._transform(image), int(
            self._labels[index]
        )


def read_json_lines(path: Path) -> list[dict[str, str]]:
    """Read prompts with their completions.

    Args:
        path: A file with one JSON object a line.
    """
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
