"""Checkpoints of activations, which are exported as plain calls."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch.utils import checkpoint

from samba_onnx.export.capture.replacing import replaced

__all__ = ["plain_checkpoints"]


@contextlib.contextmanager
def plain_checkpoints() -> Iterator[None]:
    """Let ``checkpoint`` with ``use_reentrant=False`` be a plain call within the context.

    Torch keeps such a call to repeat it. ``torch.autograd.grad`` in ``forward`` would repeat it while the
    graph is traced, where torch's exporter takes the second call of a layer for an error.
    """
    with replaced(checkpoint, "_checkpoint_without_reentrant_generator", _nothing_around):
        yield


def _nothing_around(*_arguments: Any, **_keywords: Any) -> Iterator[None]:
    """Do nothing before and after the call, where torch's own generator sets up what repeats it."""
    yield
