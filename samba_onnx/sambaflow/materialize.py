"""``sambaflow.samba.materialize``: parameters get their values ahead of time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from samba_onnx.tensor import SambaTensor

__all__ = ["materialize"]


@contextmanager
def materialize(model: nn.Module) -> Iterator[nn.Module]:
    """Make the values of all parameters and buffers that have none yet; they stay afterwards.

    Args:
        model: A module, lazily made or not.

    Yields:
        The module itself.
    """
    for tensor in itertools.chain(model.parameters(), model.buffers()):
        if isinstance(tensor, SambaTensor) and not tensor.has_data:
            tensor.materialize_()
    yield model
