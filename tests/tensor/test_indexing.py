"""The documented forms of indexing, and boolean masks."""

from __future__ import annotations

import pytest
import torch

import samba_onnx as samba
from samba_onnx import SambaTensor
from samba_onnx.errors import UsageError

VALUES = torch.arange(24.0).reshape(2, 3, 4)
WHOLE = samba.SambaTensor(torch.tensor([0.0, 2.0]))

FORMS: dict[str, tuple[object, object]] = {
    "integer": (1, 1),
    "negative integer": ((0, -1), (0, -1)),
    "slice": ((slice(None), slice(0, 3, 2)), (slice(None), slice(0, 3, 2))),
    "None": ((None, 0), (None, 0)),
    "ellipsis": ((..., 1), (..., 1)),
    "list": ((0, [0, 2]), (0, [0, 2])),
    "tensor of indices": ((0, samba.SambaTensor(torch.tensor([2, 1]))), (0, [2, 1])),
    "indices in floating point": ((None, slice(None), WHOLE), (None, slice(None), [0, 2])),
    "mask": (samba.SambaTensor(VALUES > 7), VALUES > 7),
    "mask of torch": (VALUES > 7, VALUES > 7),
    "integer of torch": (torch.tensor(1), torch.tensor(1)),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_form_of_indexing_reads_and_writes_as_in_torch(form: str) -> None:
    ours, plain = FORMS[form]
    tensor = SambaTensor(VALUES.clone())
    item = tensor[ours]
    assert isinstance(item, SambaTensor)
    assert torch.equal(item.torch(), VALUES[plain])  # type: ignore[index]
    expected = VALUES.clone()
    expected[plain] = -1.0  # type: ignore[index]
    tensor[ours] = -1.0
    assert torch.equal(tensor.torch(), expected)
    tensor[ours] = SambaTensor(expected[plain] * 2)  # type: ignore[index]
    assert tensor.min().item() == -2.0


def test_a_plain_tensor_may_be_indexed_by_a_samba_tensor() -> None:
    mask = samba.SambaTensor(VALUES > 7)
    assert torch.equal(samba.to_torch(VALUES[mask]), VALUES[VALUES > 7])


def test_indices_must_be_whole_numbers() -> None:
    with pytest.raises(UsageError, match="not whole numbers"):
        _ = SambaTensor(VALUES)[SambaTensor(torch.tensor([0.5]))]
    with pytest.raises(IndexError):
        _ = SambaTensor(VALUES)[5]


def test_writing_keeps_the_history() -> None:
    leaf = samba.ones(2, requires_grad=True)
    target = samba.zeros(3)
    target[1:] = leaf * 3
    target.sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [3.0, 3.0]
