"""What SambaFlow's programs write in ``forward`` and torch does not know."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from samba_onnx.errors import ModelError
from samba_onnx.export.capture.explanations import user_place
from samba_onnx.functional.index_types import WideIndices
from samba_onnx.functional.table import is_in_place
from samba_onnx.tensor import SambaTensor

_METHODS: Final = ("torch", "torch_tensor")
"""Methods of a SambaTensor that return the tensor of torch that it wraps."""
_TORCH_KINDS: Final = frozenset({Tensor, nn.Parameter, FakeTensor})
"""Types that are no SambaTensors and hold none."""


@contextlib.contextmanager
def samba_calls() -> Iterator[None]:
    """Let plain tensors do within the context what SambaTensors do when a module runs.

    Integers of every width are indices, and a tensor is what it wraps: ``x.torch()`` and
    ``x.torch_tensor()`` return it itself.

    The methods are there for the whole process, so that only one thread may capture at a time.
    """
    # Of contexts inside each other, the outermost alone takes the methods away again.
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


class OwnTensors(TorchFunctionMode):
    """Within this context, SambaTensors that are neither inputs nor members are what they wrap.

    A module keeps them in attributes, as a cache that it filled when it ran on the host, or reads
    them from around it. Torch's exporter knows constants of its own class only.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call a function with plain tensors; called by torch.

        Raises:
            ModelError: The function writes into such a tensor.
        """
        if len(args) == 1 and not kwargs and type(args[0]) in _TORCH_KINDS:
            return func(*args)  # nearly all calls: torch's exporter asks for sizes and types
        # To write into what is wrapped would be lost: the graph has it as a constant.
        target = args[0] if args and is_in_place(func) else (kwargs or {}).get("out")
        if isinstance(target, SambaTensor):
            raise ModelError(
                f"{user_place()}: the module writes into a SambaTensor that it keeps, which is neither "
                "a parameter nor a buffer: register it with register_buffer"
            )
        positional, named = pytree.tree_map_only(SambaTensor, _wrapped, (args, kwargs or {}))
        return func(*positional, **named)


def _wrapped(tensor: SambaTensor) -> Tensor:
    return tensor.torch().detach()
