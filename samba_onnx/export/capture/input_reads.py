"""Numbers that a module takes out of its inputs: what is compiled would keep those of the given ones.

A product with ``float(x.max())``, a slice up to ``int(mask.sum())`` or a loop over ``lengths.tolist()`` is right
for the inputs that it was compiled with, and wrong for all others. A decision is another matter, as
``if mask.all()``: what is compiled is one of the branches, which a warning names, and most that programs have
are checks, or masks that all batches have alike. So numbers are refused and decisions are not. Numbers out of
weights that are trained are as wrong after the first step.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, Self

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakIdKeyDictionary

from samba_onnx.errors import ModelError

__all__ = ["InputReads"]

_NUMBERS: Final = frozenset(
    {
        Tensor.__complex__,
        Tensor.__float__,
        Tensor.__index__,
        Tensor.__int__,
        Tensor.item,
        Tensor.tolist,
    }
)
"""Functions that return numbers. Those of tensors of truth values are decisions."""
_OF_SHAPES: Final = frozenset(
    {
        *(torch.empty_like, torch.full_like, torch.ones_like, torch.zeros_like),
        *(Tensor.new_empty, Tensor.new_full, Tensor.new_ones, Tensor.new_tensor, Tensor.new_zeros),
    }
)
"""Functions that read nothing of their first operand but its shape and type."""
_NOTHING: Final[frozenset[str]] = frozenset()


class InputReads(TorchFunctionMode):
    """Notices within its context what a module takes numbers out of.

    A tensor comes from an input, or from a weight that is trained, if it is one, was computed from one, or
    if something that was is written into its memory.
    """

    def __init__(self, module: nn.Module, place: Callable[[], str], *, training: bool) -> None:
        """Begin with nothing noticed.

        Args:
            module: Is to run within the context.
            place: Returns the user's line that runs now.
            training: Whether weights that require gradients change between runs.
        """
        super().__init__()
        self._module = module
        self._place = place
        self._training = training
        self._origins: Any = WeakIdKeyDictionary()
        """What a tensor comes from, in words, by tensor."""
        self._written: dict[int, tuple[frozenset[str], Any]] = {}
        """The same by memory that something was written into, with what keeps that alive."""

    def __enter__(self) -> Self:
        """Begin to notice."""
        # The module runs on copies of what was given: only its call shows which tensors these are.
        self._hook = self._module.register_forward_pre_hook(self._begin, with_kwargs=True)
        return super().__enter__()  # type: ignore[no-untyped-call, no-any-return]

    def __exit__(self, *error: Any) -> None:
        """End it."""
        self._hook.remove()
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    def _begin(self, module: nn.Module, args: Any, keywords: Mapping[str, Any]) -> None:
        """Take in the inputs and weights that the module runs with."""
        for name, value in _by_name(module, args, keywords).items():
            self._note(value, frozenset([f"input {name!r}"]))
        # Without training, weights are the same in all runs.
        if self._training:
            for path, weight in module.named_parameters():
                if weight.requires_grad:
                    self._note(weight, frozenset([f"parameter {path!r}, which is trained"]))

    def _note(self, value: Any, origins: frozenset[str]) -> None:
        for leaf in pytree.tree_leaves(value):
            if isinstance(leaf, Tensor):
                self._origins[leaf] = origins

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        tensors = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        origins = _NOTHING.union(*map(self._known, tensors))
        if func in _NUMBERS and origins and args[0].dtype is not torch.bool:
            place = self._place()
            # What a library takes out by itself are checks mostly, as of the longest length, and nobody who
            # compiles its model can rewrite them: a warning says that all runs will do the same.
            if not str(place).startswith("module "):
                raise self._refusal(min(origins))
        # Most calls see nothing that has an origin, and need not be watched for writing.
        versions = [tensor._version for tensor in tensors] if origins else []
        result = func(*args, **(kwargs or {}))
        # Not strict: there are no versions where nothing has an origin.
        for tensor, version in zip(tensors, versions, strict=False):
            if tensor._version != version:
                # Or to ask for the memory would come through here again.
                with torch._C.DisableTorchFunction():
                    memory: Any = tensor.untyped_storage()
                # The memory is kept alive with it, or another one might get its address.
                self._written[memory._cdata] = origins | self._known(tensor), memory
        if origins and func not in _OF_SHAPES:
            self._note(result, origins)
        return result

    def _known(self, tensor: Tensor) -> frozenset[str]:
        """Return what a tensor comes from."""
        own: frozenset[str] = self._origins.get(tensor, _NOTHING)
        # Other layouts have no memory of their own to look up.
        if not self._written or tensor.layout is not torch.strided:
            return own
        with torch._C.DisableTorchFunction():
            memory: Any = tensor.untyped_storage()
        return own | self._written.get(memory._cdata, (_NOTHING, None))[0]

    def _refusal(self, origin: str) -> ModelError:
        place = self._place()
        return ModelError(
            f"{place}: {type(self._module).__name__} takes a number out of {origin}, which what is compiled "
            "would keep for all runs as the given values make it: compute with the tensor itself, choose by "
            "torch.where, or, if it is the same in all runs, write it as a number of Python's, in forward or "
            "in an attribute of the module",
            location=place or None,
        )


def _by_name(module: nn.Module, args: Any, keywords: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a module is called with by the names of its parameters."""
    try:
        return inspect.signature(module.forward).bind(*args, **keywords).arguments
    except (TypeError, ValueError):  # its own call says what is wrong
        return {str(index): value for index, value in enumerate(args)} | dict(keywords)
