"""Numbers that a module takes out of what it changes itself: they would be the same in every step.

A branch on such a number, or a product with it, is right in the step that is traced and wrong in those
that follow: counters of steps, positions in a queue, flags of a first call.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final, Self

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakIdKeyDictionary

from samba_onnx.errors import ModelError

__all__ = ["StateReads"]


_FURTHER_RUNS: Final = 3
"""How often a module runs again, to see whether its numbers stay the same."""


@dataclass(frozen=True)
class _Read:
    """A number that was taken out of state."""

    place: str
    """The user's line."""
    paths: frozenset[str]
    """The members that it was computed from."""
    value: str
    """The number, or list of numbers, as text: so that NaN equals itself."""


class StateReads(TorchFunctionMode):
    """Notices within its context which numbers a module takes out of its parameters and buffers.

    A tensor counts as state if it is one of these, or was computed from nothing else but constants.
    What depends on inputs as well is another matter: it is different in every step anyway.
    """

    def __init__(
        self, module: nn.Module, taking: Collection[Any], place: Callable[[], str]
    ) -> None:
        """Begin with nothing noticed.

        Args:
            module: With its own members; it is to run within the context, maybe with others.
            taking: The functions that return values of tensors as Python's own.
            place: Returns the user's line that runs now.
        """
        super().__init__()
        self._module = module
        self._taking = taking
        self._place = place
        self._own = _members(module)
        self._origins: Any = WeakIdKeyDictionary()
        """Paths of the members that a tensor was computed from, by tensor."""
        self._reads: list[_Read] = []
        self.repeating = False
        """Whether the module runs again, to see whether it gets the same numbers."""

    def __enter__(self) -> Self:
        """Begin to notice."""
        # The module runs on copies of its members: only the call shows which tensors these are.
        self._hook = self._module.register_forward_pre_hook(self._begin)
        return super().__enter__()  # type: ignore[no-untyped-call, no-any-return]

    def __exit__(self, *error: Any) -> None:
        """End it."""
        self._hook.remove()
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    def _begin(self, module: nn.Module, _inputs: Any) -> None:
        """Take in the members that the module runs with."""
        for path, tensor in _members(module).items():
            self._origins[tensor] = frozenset([path])

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        tensors = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        origins = [self._origins.get(tensor) for tensor in tensors]
        # One operand of unknown origin, such as an input, makes a result that is another one in
        # every step anyway.
        known = None if None in origins else frozenset[str]().union(*origins)
        result = func(*args, **(kwargs or {}))
        if func in self._taking and known:
            # As text now: a list may be changed by the module later.
            self._reads.append(_Read(self._place(), known, repr(result)))
        for leaf in pytree.tree_leaves(result):
            if not isinstance(leaf, Tensor):
                continue
            if known is not None:
                self._origins[leaf] = known
            else:
                # Written in place, it is no longer computed from state alone.
                self._origins.pop(leaf, None)
        return result

    def refuse(self, again: Callable[[], object]) -> None:
        """Refuse numbers that are other ones when the module runs again, on what it has changed.

        Args:
            again: Runs the module once more, with the members that it has now.

        Raises:
            ModelError: There is such a number; names the line and the parameter or buffer.
        """
        changed = {path for path, t in _members(self._module).items() if self._differs(path, t)}
        first = self._reads
        # Numbers out of what runs do not change cannot be others next time: no run is needed.
        if not any(read.paths & changed for read in first):
            return
        self.repeating = True
        try:
            for _ in range(_FURTHER_RUNS):
                self._reads = []
                again()
                # The longest, as one more or fewer question says that the module takes another way.
                for read, other in itertools.zip_longest(first, self._reads):
                    if read is None or other is None or read.value != other.value:
                        raise self._refusal(read or other, changed)
        finally:
            self.repeating = False

    def _refusal(self, read: _Read, changed: Collection[str]) -> ModelError:
        path = min(read.paths & set(changed), default=min(read.paths))
        return ModelError(
            f"{read.place}: {type(self._module).__name__} takes a number out of {path!r}, which runs "
            "change, so that what is compiled would keep the number of the first: compute with the "
            "tensor itself, choose by torch.where, or, if it changes in the first run only, run the "
            "module once before it is compiled",
            location=read.place or None,
        )

    def _differs(self, path: str, tensor: Tensor) -> bool:
        own = self._own.get(path)
        if own is None or own.shape != tensor.shape or own.dtype != tensor.dtype:
            return True
        # Nobody is to notice this question.
        with torch._C.DisableTorchFunction(), torch.no_grad():
            # Without NaN, which does not equal itself: unchanged it is no change.
            return not torch.equal(own.nan_to_num(), tensor.nan_to_num())


def _members(module: nn.Module) -> dict[str, Tensor]:
    members: dict[str, Tensor] = dict(module.named_parameters())
    return members | dict(module.named_buffers())
