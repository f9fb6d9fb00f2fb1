"""The host side of a SambaTensor: the torch tensor that it wraps, or the promise of one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final, cast

import torch
from torch import Tensor

from samba_onnx.errors import UsageError
from samba_onnx.tensor import native
from samba_onnx.tensor.host_writes import HOST_WRITES
from samba_onnx.tensor.native import natively, placeholder
from samba_onnx.tensor.random_values import RANDOM

Materializer = Callable[..., Tensor]
"""Makes the values of an empty tensor: a function of the tensor, of the tensor and a source of
random values, or of the documented keywords."""

_KEYWORDS: Final = frozenset({"shape", "dtype", "requires_grad"})
_RNG: Final = "rng"
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class HostSide:
    """Whose memory a tensor's values are in, or how they will be made.

    Every method is given the tensor whose side this is. A reference to it would be a cycle, and a
    tensor in a cycle keeps its memory until Python's garbage collector happens to run.
    """

    __slots__ = ("_is_tied", "is_empty", "materializer", "sent", "source")

    def __init__(
        self,
        source: Tensor | None = None,
        materializer: Materializer | None = None,
        is_empty: bool = False,
    ) -> None:
        """Describe the values of one tensor.

        Args:
            source: The torch tensor that it wraps: ``torch()`` returns it, and gradients belong to
                it. None for a tensor that has its memory for itself.
            materializer: A function that makes the values when they are needed, or None.
            is_empty: Whether it has a shape and a dtype, but no values yet.
        """
        self.source = source
        self.materializer = materializer
        self.is_empty = is_empty
        self.sent: int | None = None
        """The version of the values that the device was given last."""
        self._is_tied = False

    def tie(self, tensor: Tensor) -> None:
        """Let gradients that arrive at the tensor be handed on to the wrapped leaf.

        Nothing happens when there is no such leaf, no gradient will arrive, or this was done.

        Args:
            tensor: The tensor of this side.
        """
        if self._is_tied or self._leaf() is None:
            return
        with natively():
            if tensor.is_leaf and tensor.requires_grad:
                hook = cast(Any, tensor).register_post_accumulate_grad_hook
                hook(self._hand_over)
                self._is_tied = True

    def write(self, tensor: Tensor, values: Tensor, is_empty: bool = False) -> None:
        """Replace the values of the tensor, and of the torch tensor that it wraps.

        Args:
            tensor: The tensor of this side.
            values: A tensor whose memory it gets, with its shape and dtype.
            is_empty: Whether ``values`` is only a placeholder.
        """
        native.set_data(tensor, values)
        if self.source is not None:
            self.source.data = native.data(tensor)
        self.is_empty = is_empty

    def clear(self, tensor: Tensor) -> None:
        """Drop the values, and let go of the torch tensor that was wrapped.

        Args:
            tensor: The tensor of this side; it keeps its shape and dtype.
        """
        # First, so that the torch tensor that was wrapped keeps its values.
        self.source = None
        self.write(tensor, placeholder(tuple(tensor.shape), tensor.dtype), is_empty=True)

    def allocate(self, tensor: Tensor) -> None:
        """Make room for values that are about to be written, if there is none.

        Args:
            tensor: The tensor of this side.
        """
        if self.is_empty:
            self.write(tensor, torch.empty(tensor.shape, dtype=tensor.dtype))

    def materialize(self, tensor: Tensor) -> None:
        """Make the values in place, if there are none.

        Args:
            tensor: The tensor of this side.

        Raises:
            UsageError: There are none and no materializer, or it made something else.
        """
        if self.is_empty:
            self.write(tensor, self._new_values(tensor))

    def torch_tensor(self, tensor: Tensor) -> Tensor:
        """The torch tensor that was wrapped, or one in the same memory and of the same history.

        Args:
            tensor: The tensor of this side. When it is empty, a tensor is made for the purpose and
                it stays empty.

        Raises:
            UsageError: It is empty and has no materializer, or that made something else.
        """
        if self.is_empty:
            return self._new_values(tensor)
        source = self.source
        # What was wrapped and its wrapper come apart when one of them is given other memory, as
        # by resize_() or by setting ``data`` of the wrapped tensor.
        if source is not None and native.describes_the_same_memory(source, tensor):
            return source
        return native.plain(tensor)

    def note_sent(self, tensor: Tensor) -> None:
        """Note that the device was given the values that there are.

        Args:
            tensor: The tensor of this side.
        """
        with natively():
            # Torch raises the version with each write in place: an equal one means nothing was written.
            self.sent = tensor._version

    def gradient(self, tensor: Tensor) -> Tensor | None:
        """The gradient on the host, a plain tensor or None.

        Args:
            tensor: The tensor of this side.
        """
        return native.gradient(self._gradient_holder(tensor))

    def set_gradient(self, tensor: Tensor, gradient: Tensor | None) -> None:
        """Set the gradient on the host.

        Args:
            tensor: The tensor of this side.
            gradient: A plain tensor of its shape and dtype, or None for no gradient.
        """
        native.set_gradient(self._gradient_holder(tensor), gradient)

    def set_requires_grad(self, tensor: Tensor, requires_grad: bool) -> None:
        """Set whether gradients are computed, for the wrapped leaf as well.

        Args:
            tensor: The tensor of this side, a leaf.
            requires_grad: Whether they are.

        Raises:
            RuntimeError: The tensor is not a leaf, or its dtype has no gradients; from torch.
        """
        HOST_WRITES.count += 1
        native.set_requires_grad(tensor, requires_grad)
        source = self._leaf()
        if source is not None:
            native.set_requires_grad(source, requires_grad)
        self.tie(tensor)

    def _leaf(self) -> Tensor | None:
        """The wrapped tensor if autograd brings gradients to it."""
        source = self.source
        return source if source is not None and source.is_leaf else None

    def _gradient_holder(self, tensor: Tensor) -> Tensor:
        leaf = self._leaf()
        return tensor if leaf is None else leaf

    def _hand_over(self, tensor: Tensor) -> None:
        """Move a gradient from the tensor to the leaf that it wraps."""
        leaf = self._leaf()
        if leaf is None:
            return
        with natively():
            gradient = native.gradient(tensor)
            leaf.grad = gradient if leaf.grad is None else leaf.grad + cast(Tensor, gradient)
            native.set_gradient(tensor, None)

    def _new_values(self, tensor: Tensor) -> Tensor:
        make, shape = self.materializer, tuple(tensor.shape)
        if make is None:
            raise UsageError(
                f"tensor {_name(tensor)!r} of shape {shape} has no data: set its data, or "
                "give it a materializer; the values of a traced output are in what session.run "
                "returns"
            )
        positional, keywords = _arguments(make, tensor)
        values = make(*positional, **keywords)
        if not isinstance(values, Tensor) or values.shape != shape:
            what = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise UsageError(
                f"the materializer of tensor {_name(tensor)!r} made {what}; it must make a tensor of "
                f"shape {shape}"
            )
        with natively():
            return values.detach().to(tensor.dtype).as_subclass(Tensor)


def _arguments(make: Materializer, tensor: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what a materializer is called with, by the parameters that it has.

    The documents give it the type ``Callable[[SambaTensor, MultithreadedRNG], Tensor]`` and
    describe one of ``shape``, ``dtype`` and ``requires_grad``; programs write functions of the
    tensor alone, also with a second parameter that has a default of its own.

    Args:
        make: The materializer.
        tensor: The tensor whose values it makes.
    """
    try:
        parameters = inspect.signature(make).parameters
    except ValueError:  # A function of C, which does not say what it takes.
        return (tensor,), {}
    by_keyword = {}
    if _RNG in parameters:
        by_keyword[_RNG] = RANDOM.rng(_name(tensor))
    if parameters.keys() >= _KEYWORDS:
        described = {"shape": tuple(tensor.shape), "dtype": tensor.dtype}
        return (), {**described, "requires_grad": tensor.requires_grad, **by_keyword}
    places = [parameter for parameter in parameters.values() if parameter.kind in _POSITIONAL]
    if len(places) > 1 and (places[1].default is places[1].empty or places[1].name == _RNG):
        return (tensor, RANDOM.rng(_name(tensor))), {}
    return (tensor,), by_keyword


def _name(tensor: Any) -> str:
    """Return the name by which errors call a tensor; nothing for a plain tensor."""
    return getattr(tensor, "name", None) or ""


class HostField:
    """A field of a class of tensors: the host side of each, made when it is first asked for.

    torch makes most tensors, by setting their class or as views: no constructor of ours runs then.
    As this is no data descriptor, the second look-up finds the side in the tensor itself.
    """

    def __get__(self, tensor: Any, owner: type[Any]) -> HostSide:
        """Return a fresh side, which is the tensor's from now on."""
        side = tensor.__dict__["_host"] = HostSide()
        return side
