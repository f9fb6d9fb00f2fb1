"""What a module does with the values of tensors: branches, and numbers taken out of tensors."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from samba_onnx.errors import BranchWarning, ModelError
from samba_onnx.export.capture.explanations import user_place
from samba_onnx.export.capture.input_reads import InputReads
from samba_onnx.export.capture.outputs import plain_outputs
from samba_onnx.export.capture.restoring import members_replaced
from samba_onnx.export.capture.samba_calls import samba_calls
from samba_onnx.export.capture.state_reads import StateReads
from samba_onnx.functional import HOST_OPERATORS
from samba_onnx.tensor import SambaTensor

_TAKING: Final = frozenset(
    {
        torch.Tensor.__bool__,
        torch.Tensor.__complex__,
        torch.Tensor.__contains__,
        torch.Tensor.__float__,
        torch.Tensor.__index__,
        torch.Tensor.__int__,
        torch.Tensor.allclose,
        torch.Tensor.equal,
        torch.Tensor.is_nonzero,
        torch.Tensor.item,
        torch.Tensor.tolist,
        torch.allclose,
        torch.equal,
        torch.is_nonzero,
    }
)
"""Functions that return values of tensors as Python's own."""


_LIST: Final = torch.Tensor.tolist


class ValuesNeededError(Exception):
    """A module asked for a value that is not known while tracing; caught in this room."""


class Values:
    """Values that a module took out of tensors, in the order in which it asked for them."""

    def __init__(self) -> None:
        self._taken: list[Any] = []
        self._recorded = False
        self._left: Iterator[Any] = iter(())
        self._lines: dict[str, None] = {}
        self._first = ""
        """Where the first value was asked for."""

    @property
    def recorded(self) -> bool:
        """Whether the module has been run, to record the values that it takes."""
        return self._recorded

    @property
    def asked(self) -> bool:
        """Whether the module asked for a value while nothing was recorded yet."""
        return bool(self._taken) and not self._recorded

    def record(
        self,
        module: nn.Module,
        args: tuple[Any, ...],
        keywords: Mapping[str, Any],
        *,
        gradients: bool = False,
    ) -> None:
        """Run a module on its real inputs, and keep every value that it takes.

        Args:
            module: As it was before, afterwards.
            args: Positional arguments.
            keywords: Keyword arguments.
            gradients: Whether the module runs as it does where gradients are computed.

        Raises:
            ModelError: The module or its inputs have no values, or a value is one of a buffer that
                the module changes, or a number out of an input or, where gradients are computed, a weight.
        """
        # Before the run, which would fail on a tensor without values in words of torch's.
        _need_values(module, (args, keywords), self._first)
        self._taken = []
        reads = StateReads(module, _TAKING, user_place)
        inputs = InputReads(module, user_place, training=gradients)

        def take(function: Callable[..., Any], args: Any, named: Any) -> Any:
            value = function(*args, **named)
            # Repeated runs only try other state; tracing follows the first one.
            if reads.repeating:
                return value
            # Tensors without content make a list of single items.
            self._taken += args[0].flatten().tolist() if function is _LIST else [value]
            return value

        with reads, inputs, _Taking(take), exporting(), samba_calls():
            eager(module, args, keywords, gradients=gradients, ending=reads.refuse)
        self._recorded = True

    def warn(self, module: nn.Module) -> None:
        """Warn of every line that took a recorded value: its branch is the only one compiled.

        Args:
            module: The module.
        """
        for line in self._lines:
            warnings.warn(
                f"{line}: what {type(module).__name__} does depends on values of tensors here; "
                "only what it does with the given inputs is compiled, and all runs will do that",
                BranchWarning,
                stacklevel=2,
            )

    @contextlib.contextmanager
    def replayed(self) -> Iterator[None]:
        """Return the recorded values, in order, to whoever asks for values within the context."""
        self._left = iter(self._taken)
        # Only lines that the last trace reaches deserve a warning.
        self._lines.clear()

        def take(function: Callable[..., Any], args: Any, named: Any) -> Any:
            if not self._recorded:
                self._first = self._first or user_place()
                # Noted, since the module's own code may catch the error: `asked` tells of it all
                # the same.
                self._taken.append(None)
                raise ValuesNeededError
            self._lines[user_place()] = None
            return self._next(function, args)

        with _Taking(take):
            yield

    def skip(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Leave out the next recorded value: the question was answered in another way.

        Args:
            function: What was called.
            args: Its operands.
        """
        if self._recorded and function in _TAKING:
            self._next(function, args)

    def _next(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        try:
            if function is _LIST:
                return _shaped(self._left, args[0].shape)
            return next(self._left)
        except StopIteration:
            raise ModelError(
                f"{user_place()}: the module asks for more values of tensors while it is traced "
                "than when it runs: it must not depend on being traced"
            ) from None


class TakenValues:
    """Values that one function took out of tensors, to be given to it once more."""

    def __init__(self) -> None:
        self._values: list[Any] = []

    def noted(self) -> contextlib.AbstractContextManager[Any]:
        """Keep what is taken within the context."""

        def take(function: Callable[..., Any], args: Any, named: Any) -> Any:
            self._values.append(function(*args, **named))
            return self._values[-1]

        return _Taking(take)

    def repeated(self) -> contextlib.AbstractContextManager[Any]:
        """Answer those who take values within the context as they were answered before."""
        left = iter(self._values)

        def take(function: Callable[..., Any], args: Any, named: Any) -> Any:
            try:
                return next(left)
            except StopIteration:
                return function(*args, **named)

        return _Taking(take)


def _shaped(items: Iterator[Any], shape: Sequence[int]) -> Any:
    """Return items as nested lists."""
    if not shape:
        return next(items)
    return [_shaped(items, shape[1:]) for _ in range(shape[0])]


def eager(
    module: nn.Module,
    args: tuple[Any, ...],
    keywords: Mapping[str, Any],
    written: Collection[str] | None = None,
    *,
    gradients: bool = False,
    ending: Callable[[Callable[[], Any]], None] | None = None,
) -> Any:
    """Return what a module computes, leaving it, its tensors and the random state as they were.

    Args:
        module: Its parameters have values.
        args: Positional arguments.
        keywords: Keyword arguments.
        written: Paths of the parameters that it writes; the others are not copied. None if that
            is not known.
        gradients: Whether it runs as it does where gradients are computed: hooks that ``forward``
            registers need that.
        ending: Called before the module gets its own parameters and buffers back, with what runs
            it once more.
    """
    positional, named = pytree.tree_map(_plain, (args, dict(keywords)))
    parameters = dict(module.named_parameters(remove_duplicate=False))
    # Parameters that nothing writes are shared: copies of all would double the memory of a large
    # model.
    kept = set(parameters) - (set(parameters) if written is None else set(written))
    shared = {id(parameters[path]) for path in kept}

    def counterpart(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) in shared:
            return tensor
        copied: torch.Tensor = _plain(tensor)
        is_parameter = isinstance(tensor, nn.Parameter)
        return nn.Parameter(copied, tensor.requires_grad) if is_parameter else copied

    with (
        members_replaced(module, counterpart),
        torch.set_grad_enabled(gradients),
        HOST_OPERATORS.paused(),
    ):

        def run() -> Any:
            return plain_outputs(module, module(*positional, **named), positional, named)

        outputs = run()
        if ending is not None:
            ending(run)
        return outputs


def _plain(leaf: Any) -> Any:
    """A copy that the module may write to; a SambaTensor as a torch tensor."""
    if isinstance(leaf, SambaTensor):
        leaf = leaf.torch_tensor()
    if isinstance(leaf, torch.Tensor):
        return leaf.detach().clone()
    return copy.copy(leaf)


def missing_values(module: nn.Module, inputs: Any) -> str:
    """Return which tensor has no values on the host; empty if all have."""
    for kind, members in (
        ("parameter", module.named_parameters()),
        ("buffer", module.named_buffers()),
    ):
        for name, tensor in members:
            if _is_empty(tensor):
                return f"{kind} {name!r} has no values"
    if any(_is_empty(leaf) for leaf in pytree.tree_leaves(inputs)):
        return "an input has no values"
    return ""


def _is_empty(tensor: Any) -> bool:
    if isinstance(tensor, SambaTensor):
        return not tensor.has_data
    return isinstance(tensor, torch.Tensor) and tensor.is_meta


def _need_values(module: nn.Module, inputs: Any, place: str) -> None:
    missing = missing_values(module, inputs)
    if missing:
        raise ModelError(
            f"{place}: what {type(module).__name__} does depends on values of tensors here, but {missing}: "
            "give all of them values, or take the dependence out of the module"
        )


class _Taking(TorchFunctionMode):
    """Lets a function answer those who ask for values of tensors."""

    def __init__(self, take: Callable[[Callable[..., Any], Any, Any], Any]) -> None:
        super().__init__()
        self._take = take

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _TAKING:
            return self._take(func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def exporting() -> Iterator[None]:
    """Run modules as they are when they are exported: some look at that."""
    # What is_exporting() and is_compiling() of torch.compiler read; nothing public sets them.
    flags = torch.compiler._is_exporting_flag, torch.compiler._is_compiling_flag
    torch.compiler._is_exporting_flag = torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_exporting_flag, torch.compiler._is_compiling_flag = flags
