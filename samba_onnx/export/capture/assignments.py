"""Buffers that a module gives new tensors while it runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.module import register_module_buffer_registration_hook

from samba_onnx.errors import ModelError


@contextlib.contextmanager
def written_back(module: nn.Module) -> Iterator[None]:
    """Write tensors that are assigned to buffers into the buffers, when the forward pass ends.

    ``torch.export`` does so for the buffers of the module itself, and loses those of modules in it.

    Args:
        module: The module that is traced while the context is open.
    """
    assigned = _Assigned(module)
    handles = (
        module.register_forward_pre_hook(assigned.begin),
        module.register_forward_hook(assigned.end),
        register_module_buffer_registration_hook(assigned.note),  # type: ignore[arg-type]
    )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class _Assigned:
    """Buffers that were assigned since the forward pass began."""

    def __init__(self, root: nn.Module) -> None:
        self._root = root
        self._running = False
        self._first: dict[tuple[nn.Module, str], Tensor] = {}

    def begin(self, _module: nn.Module, _inputs: Any) -> None:
        self._running = True
        self._first.clear()

    def note(self, module: nn.Module, name: str, buffer: Tensor | None) -> Tensor | None:
        current = module._buffers.get(name)
        is_new = current is not None and buffer is not None and buffer is not current
        if self._running and is_new and module is not self._root:
            assert current is not None
            self._first.setdefault((module, name), current)
        return buffer

    def end(self, _module: nn.Module, _inputs: Any, _outputs: Any) -> None:
        self._running = False
        for (module, name), buffer in self._first.items():
            new = module._buffers[name]
            if new is None or (new.shape, new.dtype) != (buffer.shape, buffer.dtype):
                replacement = "None" if new is None else f"{new.dtype} of shape {list(new.shape)}"
                raise ModelError(
                    f"{type(module).__name__} replaces its buffer {name!r}, {buffer.dtype} of shape "
                    f"{list(buffer.shape)}, by {replacement}: a buffer keeps its type and shape"
                )
            buffer.copy_(new.detach())
