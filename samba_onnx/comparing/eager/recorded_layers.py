"""What the layers of a module return in eager torch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from samba_onnx.tensor.arrays import to_array

__all__ = ["recorded_layers"]


@contextlib.contextmanager
def recorded_layers(module: nn.Module) -> Iterator[dict[str, list[Any]]]:
    """Keep what each layer returns in the first call of it; its tensors by its path."""
    layers: dict[str, list[Any]] = {}

    def keep(path: str, returned: Any) -> None:
        tensors = [leaf for leaf in pytree.tree_leaves(returned) if isinstance(leaf, Tensor)]
        layers.setdefault(path, [np.array(to_array(tensor)) for tensor in tensors])

    handles = [
        layer.register_forward_hook(lambda _, __, returned, path=path: keep(path, returned))
        for path, layer in module.named_modules(remove_duplicate=False)
        if path
    ]
    try:
        yield layers
    finally:
        for handle in handles:
            handle.remove()
