"""Buffers that a module gives new tensors while it runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.module import register_module_buffer_registration_hook

from samba_onnx.errors import ModelError
from samba_onnx.tensor.carried import carried


class AssignedBuffers:
    """Buffers of a module, and of modules in it, that ``forward`` gives new tensors.

    In torch an assignment writes nothing, and gradients may need the tensor that was there: those which
    are known to be assigned are traced with a copy in their place.
    """

    def __init__(self, module: nn.Module) -> None:
        """Begin with those that the module carries.

        Args:
            module: What is traced.
        """
        self.known = {
            (inner, one.buffer)
            for inner in module.modules()
            for one in carried(inner)
            if not one.steps
        }
        """Modules, and names of buffers of theirs."""


@contextlib.contextmanager
def written_back(module: nn.Module, assigned: AssignedBuffers) -> Iterator[None]:
    """Write tensors that are assigned to buffers into the buffers, when the forward pass ends.

    ``torch.export`` does so for the buffers of the module itself, and loses those of modules in it.

    Args:
        module: The module that is traced while the context is open.
        assigned: What is known of its assignments by an earlier trace; learns of others.
    """
    passes = _Passes(module, assigned)
    handles = (
        module.register_forward_pre_hook(passes.begin),
        module.register_forward_hook(passes.end),
        register_module_buffer_registration_hook(passes.note),  # type: ignore[arg-type]
    )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class _Passes:
    """The passes that torch makes through a module, and the buffers that are assigned in each."""

    def __init__(self, root: nn.Module, assigned: AssignedBuffers) -> None:
        self._root = root
        self._running = False
        self._first: dict[tuple[nn.Module, str], Tensor] = {}
        self._known = frozenset(assigned.known)  # not to change between passes
        self._assigned = assigned

    def begin(self, _module: nn.Module, _inputs: Any) -> None:
        self._first.clear()
        for module, name in self._known:
            buffer = module._buffers.get(name)
            if buffer is not None:
                # What gradients need of it must not be written when the pass ends: in torch, an
                # assignment writes nothing.
                self._first[module, name] = buffer
                module._buffers[name] = buffer.clone()
        self._running = True

    def note(self, module: nn.Module, name: str, buffer: Tensor | None) -> Tensor | None:
        current = module._buffers.get(name)
        # The hook is told of first registrations, too, and of buffers that are set to themselves.
        is_new = current is not None and buffer is not None and buffer is not current
        if self._running and is_new:
            self._assigned.known.add((module, name))
            # Those of the root are written back by torch.export.
            if module is not self._root:
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
            if (module, name) in self._known:
                # It was traced with a copy; the buffer itself must be there again to be written.
                module._buffers[name] = buffer
            # Detached, as the buffer would need gradients otherwise.
            buffer.copy_(new.detach())
