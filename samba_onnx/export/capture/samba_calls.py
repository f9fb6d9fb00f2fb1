"""What SambaFlow's programs write in ``forward`` and torch does not know."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from torch import Tensor

from samba_onnx.functional.index_types import WideIndices

_METHODS: Final = ("torch", "torch_tensor")
"""Methods of a SambaTensor that return the tensor of torch that it wraps."""


@contextlib.contextmanager
def samba_calls() -> Iterator[None]:
    """Let plain tensors do within the context what SambaTensors do when a module runs.

    Integers of every width are indices, and a tensor is what it wraps: ``x.torch()`` and
    ``x.torch_tensor()`` return it itself.

    The methods are there for the whole process, so that only one thread may capture at a time.
    """
    missing = [name for name in _METHODS if not hasattr(Tensor, name)]
    for name in missing:
        setattr(Tensor, name, _itself)
    try:
        with WideIndices():
            yield
    finally:
        for name in missing:
            delattr(Tensor, name)


def _itself(tensor: Tensor) -> Tensor:
    return tensor
