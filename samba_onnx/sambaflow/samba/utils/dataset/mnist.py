"""``sambaflow.samba.utils.dataset.mnist``: images of digits, as a program's first layer takes them."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Never

import numpy as np
import torch

from samba_onnx.errors import UsageError
from samba_onnx.sambaflow.symbols import absent

__all__ = ["FlatImage", "dataset_transform"]


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


def __getattr__(name: str) -> Never:
    """Say of a name that is not here what to do without it."""
    raise absent("sambaflow.samba.utils.dataset.mnist", name)
