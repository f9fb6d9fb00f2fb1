"""Rows of images, as torchvision's ``ToTensor`` and a reshape would make them."""

from __future__ import annotations

from argparse import Namespace
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
import torch

from samba_onnx.errors import UsageError
from samba_onnx.sambaflow.samba.utils.dataset.mnist import dataset_transform


def test_bytes_become_rows_of_numbers_to_one() -> None:
    image = np.arange(6, dtype=np.uint8).reshape(2, 3) * 51
    expected = torch.tensor([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    for settings in ({"num_features": 6}, Namespace(num_features=6, rate=1)):
        transform = dataset_transform(settings)
        for form in (image, torch.from_numpy(image)):
            torch.testing.assert_close(transform(form), expected)
    ForkingPickler.dumps(transform)  # for the workers of a DataLoader, which start anew


def test_numbers_stay_as_they_are() -> None:
    row = dataset_transform({"num_features": 2})(torch.tensor([[0.5], [300.0]]).double())
    assert torch.equal(row, torch.tensor([0.5, 300.0]))


def test_sizes_that_do_not_fit_are_named() -> None:
    with pytest.raises(UsageError, match="an image has 4 values, and num_features is 3"):
        dataset_transform({"num_features": 3})(torch.ones(2, 2))
    with pytest.raises(UsageError, match="without num_features"):
        dataset_transform({})
