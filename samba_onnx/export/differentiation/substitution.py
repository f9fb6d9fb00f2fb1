"""Lets hooks and functions of the user's find traced tensors in the place of those that they know."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode, has_proxy_slot
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from samba_onnx.errors import GradientError
from samba_onnx.export.capture.gradient_rules import code_place
from samba_onnx.tensor.native import natively

_DATA: Final = torch.Tensor.data.__get__  # type: ignore[attr-defined]
_Memory: TypeAlias = tuple[int, tuple[int, ...], tuple[int, ...], torch.dtype]


class Substitution(TorchFunctionMode):
    """Within this context, operators read traced tensors where the user's code gives its own.

    A hook may know a parameter or buffer of the module, or a tensor that ``forward`` computed, by a
    closure. Parameters are also recognised by their memory, which they keep when a module is
    converted.
    """

    def __init__(self, members: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Take what is known from the start.

        Args:
            members: Parameters and buffers of the module, each with what is traced in its place.
        """
        super().__init__()
        self._own: list[Tensor] = []  # Identities are those of tensors that are alive.
        self._traced: dict[int, Tensor] = {}
        self._memory: dict[_Memory, Tensor] = {}
        self._members: list[Tensor] = []
        for own, traced in members:
            self._members.append(traced)
            self.add(own, traced)
            memory = _memory(own)
            if memory is not None:
                # Of tied members, the first stands for all.
                self._memory.setdefault(memory, traced)

    def add(self, own: Tensor, traced: Tensor) -> None:
        """Take a tensor for another one from now on.

        Args:
            own: A tensor that a hook or function may know.
            traced: The tensor that is differentiated in its place.
        """
        self._own.append(own)
        self._traced[id(own)] = traced

    def within(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of the user's that finds traced tensors when it is called.

        The engine of automatic differentiation runs outside of all contexts.

        Args:
            function: A hook, or the backward of a function. Called, it raises ``GradientError`` if
                it writes to a parameter or buffer.
        """

        @functools.wraps(function)
        def call(*operands: Any) -> Any:
            before = self._versions()
            with self:
                result = pytree.tree_map(self.of, function(*operands))
            if self._versions() != before:
                raise GradientError(
                    f"the hook or backward {code_place(function)} writes to a parameter or buffer "
                    "of the module: what runs backward computes gradients only, so let forward "
                    "write to it"
                )
            return result

        return call

    def _versions(self) -> list[int]:
        return [member._version for member in self._members]

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        args, keywords = pytree.tree_map(self.of, (args, kwargs or {}))
        # Equal and not identical: every access makes another wrapper of the same getter.
        if func == _DATA:
            # What is written through it is to be seen as a change of the tensor itself.
            return args[0].detach()
        return func(*args, **keywords)

    def is_member(self, tensor: Tensor) -> bool:
        """Return whether a tensor has the memory of a parameter or buffer of the module.

        Args:
            tensor: Any tensor.
        """
        return _memory(tensor) in self._memory

    def of(self, leaf: Any) -> Any:
        """Return the traced tensor in the place of one of the user's; anything else as it is.

        Args:
            leaf: A leaf of nested arguments.

        Raises:
            GradientError: It is a tensor of ``forward`` that is unknown here.
        """
        if not isinstance(leaf, Tensor):
            return leaf
        traced = self._traced.get(id(leaf))
        if traced is not None:
            return traced
        if not isinstance(leaf, FakeTensor):
            memory = _memory(leaf)
            return leaf if memory is None else self._memory.get(memory, leaf)
        mode = get_proxy_mode()
        if mode is not None and not has_proxy_slot(leaf, mode.tracer):
            raise GradientError(
                "a hook or backward uses a tensor that another run of forward left behind: let it "
                "use what the same run computes, or save_for_backward"
            )
        return leaf


def _memory(tensor: Tensor) -> _Memory | None:
    """Return what tells one tensor's memory from others'; None if it has none."""
    with natively():
        if tensor.is_meta or tensor.layout is not torch.strided or isinstance(tensor, FakeTensor):
            return None
        address = tensor.data_ptr()
        # All empty tensors have this address.
        if not address:
            return None
        # Views may begin at one address: the rest tells them apart.
        return address, tuple(tensor.shape), tensor.stride(), tensor.dtype
