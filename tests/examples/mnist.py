"""The files of MNIST, read by their description and not by what the examples read them with."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import TensorDataset


def read_array(content: bytes, magic: int) -> npt.NDArray[np.uint8]:
    """Read a magic number, whose last byte is the number of sizes, the sizes, and bytes."""
    dimensions = magic & 0xFF
    number, *sizes = struct.unpack_from(f">{1 + dimensions}i", content)
    assert number == magic
    return np.frombuffer(content, np.uint8, offset=4 * (1 + dimensions)).reshape(sizes)


def read_digits(root: Path, part: str) -> TensorDataset:
    """Return images (count, 28, 28) of numbers from 0 to 1, and labels (count,)."""
    stem = root / "MNIST" / "raw" / part
    images = read_array(Path(f"{stem}-images-idx3-ubyte").read_bytes(), 2051)
    labels = read_array(Path(f"{stem}-labels-idx1-ubyte").read_bytes(), 2049)
    return TensorDataset(torch.tensor(images) / 255, torch.tensor(labels).long())
