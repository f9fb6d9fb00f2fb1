"""What the code of a module keeps between calls: attributes, globals, and variables of closures.

Looked at before a call of ``forward`` and after it, they say what one call leaves for the next.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import CellType, FunctionType
from typing import Any, Final

import torch
from torch import Tensor, nn

from samba_onnx.export.capture.surroundings import is_own_object, owners
from samba_onnx.tensor.carried import Step, carried

__all__ = ["MISSING", "Kept", "Variable", "Variables"]

MISSING: Final = object()
"""Stands for the value of a variable that does not exist yet."""

_STANDARD: Final = frozenset(vars(nn.Module())) | {
    *("training", "name", "output_tensors"),
    # Says that the hooks are there which collect hidden states: set by the first call, and true ever after.
    "_output_capturing_hooks_installed",
}
"""Attributes of modules that torch, transformers and this product keep for themselves."""
_CONTAINERS: Final = (
    *(dict, list, tuple, collections.OrderedDict, collections.defaultdict, collections.deque),
)
_NUMBERS: Final = (bool, int, float, complex, str, bytes, type(None))
_PLAIN: Final = (*_NUMBERS, torch.Size, torch.dtype, torch.device)
"""Types whose values are equal where they look equal."""
_MOST: Final = 50_000
"""So many values are looked at; a module that holds more holds data rather than state."""


@dataclass(frozen=True, eq=False)
class Variable:
    """A name that keeps a value between calls."""

    owner: Any
    """A module, a class, a file of Python, or the cell of a closure."""
    name: str
    path: str
    """How messages call it."""

    @property
    def value(self) -> Any:
        """Its value now; ``MISSING`` if there is none."""
        if isinstance(self.owner, CellType):
            try:
                return self.owner.cell_contents
            except ValueError:  # assigned later than it is looked at
                return MISSING
        return vars(self.owner).get(self.name, MISSING)

    def assign(self, value: Any) -> None:
        """Give it a value.

        Args:
            value: The value; ``MISSING`` for none at all.
        """
        if isinstance(self.owner, CellType):
            self.owner.cell_contents = value
        elif isinstance(self.owner, type):
            # The names of a class can only be read by vars().
            type.__delattr__(self.owner, self.name) if value is MISSING else type.__setattr__(
                self.owner, self.name, value
            )
        elif value is MISSING:
            vars(self.owner).pop(self.name, None)
        else:
            # Not by setattr(), which modules and users' classes answer in their own way.
            vars(self.owner)[self.name] = value


@dataclass(frozen=True)
class Kept:
    """The value of a variable at one moment."""

    value: Any
    structure: tuple[Any, ...]
    """Which containers there are, of which sizes and keys."""
    leaves: tuple[tuple[tuple[Step, ...], Any, int], ...]
    """What is in them: the way to each, the object, and its version if it is a tensor."""
    copies: tuple[tuple[Any, Any], ...]
    """Containers that can be written, and objects' attributes, each with a copy of its items."""

    def restore(self, variable: Variable) -> None:
        """Give a variable the value back that it had then, with all that was in it.

        Args:
            variable: The variable.
        """
        if variable.value is not self.value:
            variable.assign(self.value)
        for container, items in self.copies:
            # Into the same container, which others may hold as well.
            container.clear()
            (container.extend if hasattr(container, "extend") else container.update)(items)

    def same(self, other: Kept) -> bool:
        """Return whether nothing has changed between two moments.

        Args:
            other: The same variable at another moment.
        """
        return self.structure == other.structure and all(map(same_leaf, self.leaves, other.leaves))


def same_leaf(one: tuple[Any, Any, int], other: tuple[Any, Any, int]) -> bool:
    """Return whether what is at the same place at two moments is the same.

    Args:
        one: One of a ``Kept``'s leaves.
        other: The leaf at the same place of the other.
    """
    (_, before, version), (_, after, later) = one, other
    # The same tensor may have been written in place, which its version tells.
    if before is after:
        return version == later
    return (
        # Of one type, as True equals 1.
        type(before) is type(after)
        and isinstance(before, _PLAIN)
        and (before == after or (before != before and after != after))
    )


class Variables:
    """All variables that a call of a module may leave something in."""

    def __init__(self, module: nn.Module) -> None:
        """Look for them.

        Args:
            module: With all modules in it.
        """
        self._module = module
        # By owner and name, so that one variable is one object at all moments.
        self._known: dict[tuple[int, str], Variable] = {}

    def now(self) -> dict[Variable, Kept]:
        """Return what is kept at this moment, by variable."""
        # One count for all variables: what several reach is looked at once.
        seen: set[int] = set()
        count = itertools.count()
        # Nobody who traces is to notice that versions of tensors are asked for.
        with torch._C.DisableTorchFunction():
            return {
                variable: _kept(variable, seen, count, _covered(variable))
                for variable in self._variables()
            }

    @staticmethod
    def of(variables: Iterable[Variable]) -> dict[Variable, Kept]:
        """Return what some variables keep at this moment.

        Args:
            variables: The variables in question.
        """
        with torch._C.DisableTorchFunction():
            return {
                variable: _kept(variable, set(), itertools.count(), _covered(variable))
                for variable in variables
            }

    def changed(self, before: dict[Variable, Kept]) -> set[Variable]:
        """Return the variables that have another value than before.

        Args:
            before: As ``now`` returned it.
        """
        now = self.now()
        # For variables that come or go between the moments.
        nothing = Kept(MISSING, (MISSING,), (), ())
        return {
            variable
            for variable in {**before, **now}
            if not before.get(variable, nothing).same(now.get(variable, nothing))
        }

    def _variables(self) -> Iterator[Variable]:
        for path, inner in self._module.named_modules():
            for name, value in list(vars(inner).items()):
                if name not in _STANDARD and not name.startswith("_samba_"):
                    yield self._variable(inner, name, ".".join(filter(None, (path, name))))
                    if isinstance(
                        value, FunctionType
                    ):  # a step that somebody gave it, or a forward
                        yield from self._cells(value)
        # Functions of classes and files may hold state in closures and in globals.
        for owner in owners(self._module):
            where = getattr(owner, "__name__", "")
            for name, value in list(vars(owner).items()):
                if isinstance(value, FunctionType):
                    yield from self._cells(value)
                elif not name.startswith("__") and _may_change(value):
                    yield self._variable(owner, name, f"{where}.{name}")

    def _cells(self, function: FunctionType) -> Iterator[Variable]:
        names = function.__code__.co_freevars
        # A cell that holds a function or a class is code and no state.
        for name, cell in zip(names, function.__closure__ or (), strict=True):
            variable = self._variable(cell, name, f"{name} of {function.__qualname__}")
            if _may_change(variable.value):
                yield variable

    def _variable(self, owner: Any, name: str, path: str) -> Variable:
        key = id(owner), name
        if key not in self._known:
            self._known[key] = Variable(owner, name, path)
        return self._known[key]


def _may_change(value: Any) -> bool:
    return isinstance(value, (*_CONTAINERS, *_NUMBERS, Tensor)) or is_own_object(value)


def _covered(variable: Variable) -> frozenset[tuple[Step, ...]]:
    """Return the ways to tensors of a variable that are state already."""
    if not isinstance(variable.owner, nn.Module):
        return frozenset()
    return frozenset(one.steps for one in carried(variable.owner) if one.attribute == variable.name)


def _kept(
    variable: Variable, seen: set[int], count: Iterator[int], covered: frozenset[tuple[Step, ...]]
) -> Kept:
    structure: list[Any] = []
    leaves: list[Any] = []
    copies: list[tuple[Any, Any]] = []

    def visit(value: Any, steps: tuple[Step, ...]) -> None:
        if steps in covered:
            return
        # What was met before is a leaf: it may contain itself, and is visited already.
        items = _items(value) if next(count) < _MOST and id(value) not in seen else None
        if items is None:
            # Sizes and types of tensors are read off when two moments are compared.
            version = value._version if _has_version(value) else 0
            leaves.append((steps, value, version))
            return
        seen.add(id(value))
        structure.append((type(value), len(items), tuple(map(repr, items))))
        # A tuple cannot be written, and equal ones may be one object that stands in several places.
        if isinstance(value, tuple):
            seen.discard(id(value))
        else:
            held = value if type(value) in _CONTAINERS else vars(value)
            copies.append((held, held.copy()))
        for step, inner in items.items():
            visit(inner, (*steps, step))

    value = variable.value
    visit(value, ())
    return Kept(value, tuple(structure), tuple(leaves), tuple(copies))


def _items(value: Any) -> dict[Step, Any] | None:
    """Return what is in a container or object, by the step to it; None for anything else."""
    if type(value) in (dict, collections.OrderedDict, collections.defaultdict):
        return dict(value)
    # Named tuples too, whose classes are the user's own.
    if type(value) in _CONTAINERS or (isinstance(value, tuple) and hasattr(value, "_fields")):
        return dict(enumerate(value))
    return dict(vars(value)) if is_own_object(value) else None


def _has_version(value: Any) -> bool:
    # Tensors of inference mode count no versions, and raise when they are asked.
    return isinstance(value, Tensor) and not value.is_inference()
