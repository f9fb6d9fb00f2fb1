"""Several calls of a module in torch, to see what one leaves for the next and whether that matters."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from samba_onnx.export.capture.branches import exporting
from samba_onnx.export.capture.counted_numbers import CountedFloat, CountedInt
from samba_onnx.export.capture.outputs import plain_outputs
from samba_onnx.export.capture.restoring import members_replaced
from samba_onnx.export.capture.samba_calls import samba_calls
from samba_onnx.export.capture.variables import Kept, Variable
from samba_onnx.functional import HOST_OPERATORS
from samba_onnx.tensor import SambaTensor
from samba_onnx.tensor.carried import Step, leaf_at, with_leaf
from samba_onnx.tensor.native import natively

__all__ = ["Calls", "Place", "StateRuns", "equal"]

CALLS: Final = 4
"""How many calls are made in a row: one that may be the first of all, and three after it."""
_SHRINK: Final = 0.75
"""By how much inputs of every second call differ, besides the order of their rows."""

Place = tuple[Variable, tuple[Step, ...]]
"""A variable, and the way to a tensor in it."""


@dataclass
class Calls:
    """What some calls in a row made."""

    results: list[list[Tensor] | str] = field(default_factory=list)
    """Outputs, buffers and gradients of each; the kind of the error where one failed."""
    kept: list[dict[Variable, Kept]] = field(default_factory=list)
    """What variables had before the first call, and after each."""
    touched: set[int] = field(default_factory=set)
    """Identities of the tensors that the first call gave to functions."""
    numbers: list[str] = field(default_factory=list)
    """Names of functions of torch that were given a number which notices its uses."""


class StateRuns:
    """Runs a module several times in torch; afterwards all is as it was."""

    def __init__(
        self,
        module: nn.Module,
        args: tuple[Any, ...],
        keywords: Mapping[str, Any],
        look: Callable[[], dict[Variable, Kept]],
    ) -> None:
        """Take what is run.

        Args:
            module: Tensors without values get some.
            args: Positional arguments of ``forward``.
            keywords: Keyword arguments.
            look: Returns the values of the variables in question.
        """
        self._module = module
        self.look = look
        given = pytree.tree_map(_valued, (args, dict(keywords)))
        # Two inputs in turn: state that depends on the input would look constant with one.
        self._inputs = [given, pytree.tree_map(_varied, given)]

    def calls(
        self,
        count: int = CALLS,
        *,
        frozen: Collection[Variable] = (),
        carried: Sequence[Place] = (),
        begin: Callable[[], object] | None = None,
    ) -> Calls:
        """Make some calls in a row.

        Args:
            count: How many.
            frozen: Variables that get their first value back before every call.
            carried: Tensors that keep their values although the variable is frozen.
            begin: Called before the first.
        """
        made = Calls()
        torch_calls = _Noting(made)
        with (
            members_replaced(self._module, _valued_member),
            # Gradients are among the results of a module that trains, and of no other.
            torch.set_grad_enabled(self._module.training),
            HOST_OPERATORS.paused(),
            exporting(),
            samba_calls(),
            self._undone(),
        ):
            first = self.look()
            # Behind the look, so that what is tried does not count as the first value.
            if begin is not None:
                begin()
            made.kept.append(first)
            for number in range(count):
                if number:
                    _freeze(frozen, first, carried)
                # Dropouts draw the same in every sequence of calls, so that results can be
                # compared.
                torch.manual_seed(number)
                # The first call only: what was before it is what is carried into it.
                with contextlib.nullcontext() if number else torch_calls:
                    made.results.append(self._call(number))
                made.kept.append(self.look())
        return made

    @contextlib.contextmanager
    def _undone(self) -> Iterator[None]:
        """Give variables that are no module's their values back, too."""
        first = self.look()
        leaves = [leaf for kept in first.values() for _, leaf, _ in kept.leaves]
        with natively(), torch.no_grad():
            # Contents, too: objects that are no modules' may be written in place.
            values = [
                (leaf, leaf._version, leaf.detach().clone())
                for leaf in leaves
                if isinstance(leaf, Tensor) and not leaf.is_meta
            ]
        try:
            yield
        finally:
            now = self.look()
            for variable, kept in first.items():
                if variable not in now or not kept.same(now[variable]):
                    kept.restore(variable)
            with natively(), torch.no_grad():
                for tensor, version, content in values:
                    # Only what was written is copied back, as it may be large.
                    if tensor._version != version:
                        tensor.detach().copy_(content)

    def _call(self, number: int) -> list[Tensor] | str:
        args, keywords = pytree.tree_map(_copied, self._inputs[number % 2])
        try:
            returned = self._module(*args, **keywords)
            outputs = pytree.tree_leaves(plain_outputs(self._module, returned, args, keywords))
            outputs = [leaf for leaf in outputs if isinstance(leaf, Tensor)]
            results = [*outputs, *self._module.buffers(), *self._gradients(outputs)]
        except Exception as error:  # whatever the user's module raises: it may be what matters
            return type(error).__name__
        with natively(), torch.no_grad():
            return [result.detach().clone() for result in results]

    def _gradients(self, outputs: Sequence[Tensor]) -> list[Tensor]:
        """Return the gradients of all outputs, which may depend on what outputs do not depend on."""
        with natively():
            # torch takes no gradient of a complex number without being told of which part.
            ends = [o for o in outputs if o.requires_grad and not o.is_complex()]
            leaves = [p for p in self._module.parameters() if p.requires_grad]
            if not ends or not leaves:
                return []
            # In float64, so that ends of different types can be added up.
            total = torch.stack([end.sum().double() for end in ends]).sum()
            # The graph stays, as the user's state may hold on to it.
            found = torch.autograd.grad(total, leaves, allow_unused=True, retain_graph=True)
        return [gradient for gradient in found if gradient is not None]


def _freeze(
    frozen: Collection[Variable], first: Mapping[Variable, Kept], carried: Sequence[Place]
) -> None:
    """Give variables their first values back, except for the tensors that are carried."""
    # Read before variables are reset, as a carried tensor may lie in one of them.
    now = [(variable, steps, leaf_at(variable.value, steps)) for variable, steps in carried]
    for variable in frozen:
        if variable in first:
            first[variable].restore(variable)
    for variable, steps, leaf in now:
        if variable in frozen:
            variable.assign(with_leaf(variable.value, steps, leaf))


def equal(one: list[Tensor] | str, other: list[Tensor] | str) -> bool:
    """Return whether two calls made the same, to the bit.

    Args:
        one: The results of one call.
        other: The results of the other call.
    """
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    return len(one) == len(other) and all(map(_same_bits, one, other))


def _same_bits(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    # Sparse tensors have no == of their own.
    if one.is_sparse:
        one, other = one.to_dense(), other.to_dense()
    # NaN counts as equal to NaN.
    return bool(((one == other) | ((one != one) & (other != other))).all())


class _Noting(TorchFunctionMode):
    """Notes which tensors, and which numbers that notice it, are given to functions of torch."""

    def __init__(self, calls: Calls) -> None:
        super().__init__()
        self._calls = calls
        self._alive: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for leaf in pytree.tree_leaves((args, kwargs or {})):
            if isinstance(leaf, Tensor):
                self._calls.touched.add(id(leaf))
                self._alive.append(leaf)  # so that no other tensor gets its identity
            elif isinstance(leaf, CountedInt | CountedFloat):
                self._calls.numbers.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


def _valued_member(tensor: Tensor) -> Tensor:
    values: Tensor = _valued(tensor)
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(values, tensor.requires_grad)
    return values


def _valued(leaf: Any) -> Any:
    """Return a copy with values of a tensor, or of anything else."""
    if not isinstance(leaf, Tensor):
        return copy.copy(leaf)
    if isinstance(leaf, SambaTensor):
        if not leaf.has_data and not leaf.materializer_provided:
            return _drawn(leaf)
        leaf = leaf.torch_tensor()
    return _drawn(leaf) if leaf.is_meta else leaf.detach().clone()


def _drawn(tensor: Tensor) -> Tensor:
    """Return values for a tensor that has none: integers may be indices, and are zero."""
    with natively():
        shape, dtype = tuple(tensor.shape), tensor.dtype
    if not dtype.is_floating_point:
        return torch.zeros(shape, dtype=dtype)
    generator = torch.Generator().manual_seed(len(shape))  # the same in every sequence of calls
    return torch.randn(shape, generator=generator).to(dtype)


def _varied(leaf: Any) -> Any:
    """Return the rows in another order, and other floating-point numbers in the same range."""
    if not isinstance(leaf, Tensor):
        return leaf
    # In another order, as numbers themselves may be indices that must stay in range.
    rows = leaf.flip(0) if leaf.dim() else leaf
    # Smaller, so that they stay in the range of the given ones.
    return rows * _SHRINK if leaf.is_floating_point() else rows


def _copied(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, Tensor) else copy.copy(leaf)
