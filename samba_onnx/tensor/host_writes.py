"""Writes on the host to what is on the device as well: how many there were, and those that versions do not show.

What ``tensor.data`` returns has a version of its own, so that ``weight.data.clamp_(-1, 1)`` leaves that of the
weight as it is. Who wants to know of such writes has a tensor watched; its content is then compared with what
it was when ``data`` was first asked for.
"""

from __future__ import annotations

import functools
import sys
import zlib
from collections.abc import Iterable
from typing import Any, Final

import torch
from torch import Tensor, nn

from samba_onnx.errors import UsageError
from samba_onnx.tensor import native

__all__ = ["HOST_WRITES", "HostWrites", "host_gradient"]

_CLIPPING: Final = "torch/nn/utils/clip_grad.py"


class HostWrites:
    """Tensors whose ``data`` was handed out, with a sum over the content that they had then."""

    def __init__(self) -> None:
        """Begin with nothing watched."""
        self.count = 0
        """How often a parameter was written, or an attribute of any module set, in this process."""
        self._watched: set[int] = set()
        self._sees_modules = False
        self.exposed: dict[int, int] = {}
        """Sums by the identity of watched tensors that were handed out since they were last forgotten."""

    def watch(self, tensors: Iterable[Tensor]) -> None:
        """Watch some tensors, which are as they should be now.

        Args:
            tensors: They live at least as long as they are watched.
        """
        for tensor in tensors:
            self._watched.add(id(tensor))
            self.exposed.pop(id(tensor), None)

    def see_modules(self) -> None:
        """Count from now on what is assigned to modules, parameters and submodules among it."""
        if self._sees_modules:
            return
        self._sees_modules = True
        assign = nn.Module.__setattr__

        @functools.wraps(assign)
        def counted(module: nn.Module, name: str, value: Any) -> None:
            self.count += 1
            assign(module, name, value)

        # For the whole process: whoever asks whether anything was assigned reads one number, where
        # a look at all attributes of a model took as long as some of its operators.
        nn.Module.__setattr__ = counted  # type: ignore[assignment]

    def unwatch(self, tensors: Iterable[int]) -> None:
        """Watch some tensors no more.

        Args:
            tensors: Their identities.
        """
        for tensor in tensors:
            self._watched.discard(tensor)
            self.exposed.pop(tensor, None)

    def expose(self, tensor: Tensor) -> None:
        """Note the content of a tensor that is about to be handed out for writing.

        Args:
            tensor: Any tensor; nothing happens for one that is not watched.
        """
        self.count += 1
        # The first time only: a later sum would be of what was written since.
        if id(tensor) in self._watched and id(tensor) not in self.exposed:
            self.exposed[id(tensor)] = _sum(tensor)

    def forget(self, tensor: Any) -> None:
        """Note that host and device have the same content.

        Args:
            tensor: It was copied.
        """
        self.exposed.pop(id(tensor), None)

    def wrote(self, tensor: Tensor) -> bool:
        """Return whether a tensor has another content than when it was handed out.

        Args:
            tensor: Any tensor.
        """
        before = self.exposed.get(id(tensor))
        return before is not None and before != _sum(tensor)


HOST_WRITES: Final = HostWrites()


def _sum(tensor: Tensor) -> int:
    with torch.no_grad():
        content = native.data(tensor).detach().contiguous()
        if not content.numel():
            return 0
        array: Any = content.flatten().view(torch.uint8).numpy()
        # A checksum: copies of all weights that are handed out would take as much memory again.
        return zlib.crc32(array)


def host_gradient(tensor: Any) -> Tensor | None:
    """Return the gradient of a SambaTensor on the host.

    Args:
        tensor: The SambaTensor; asked by the caller of the caller.

    Raises:
        UsageError: Torch is about to clip it, and there is none, as it is on the device.
    """
    gradient: Tensor | None = tensor._host.gradient(tensor)
    if gradient is not None or not tensor._device.has_gradient(tensor):
        return gradient
    # Torch clips what has a gradient, and passes over everything else without a word.
    if sys._getframe(2).f_code.co_filename.replace("\\", "/").endswith(_CLIPPING):
        raise UsageError(
            f"gradients are clipped on the host, where {tensor.name!r} has none: they are on the device, and "
            "nothing would be clipped. Give the optimizer max_grad_norm, or the run "
            "hyperparam_dict={'max_grad_norm': 1.0}; or copy them by samba.session.to_cpu(model), clip, and send "
            "them by samba.session.to_rdu(model)"
        )
    return None
