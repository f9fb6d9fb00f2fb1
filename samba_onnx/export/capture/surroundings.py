"""What is around a module: objects that it holds, globals and caches of its code, sessions that it tells.

A forward pass may write to all of them, and runs several times while it is traced and compared.
"""

from __future__ import annotations

import collections
import functools
import gc
import itertools
import operator
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final, Protocol

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from samba_onnx.tensor import SambaTensor
from samba_onnx.tensor.native import natively

__all__ = [
    "KEEPERS",
    "Keeper",
    "Surroundings",
    "forget_tensors",
    "forget_traced",
    "is_own_object",
    "owners",
]

_CONTAINERS: Final = (
    *(dict, list, set, collections.OrderedDict, collections.defaultdict, collections.deque),
)
"""Whose items are put back. Types derived of these may do anything when they are written."""
_MOST: Final = 50_000
"""So many objects are noted; a module that holds more holds data rather than state."""
_FOREIGN: Final = sys.stdlib_module_names | {"numpy", "samba_onnx", "torch"}
"""Objects of their classes have locks, threads and files: they are left alone."""
_CODE: Final = (type, FunctionType, ModuleType)
_CACHE: Final = type(functools.lru_cache(len))


class Keeper(Protocol):
    """Something outside of modules that a forward pass may write to."""

    def keep(self) -> Callable[[], None]:
        """Return what puts everything back that there is now."""
        ...


KEEPERS: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
"""Every :class:`Keeper` that there is; whoever is one enters itself."""


class Surroundings:
    """What is around a module at one moment."""

    def __init__(self, module: nn.Module) -> None:
        """Note what there is.

        Args:
            module: With its submodules; their own attributes are not noted.
        """
        held = _Notes()
        # What modules hold themselves is given back whole; see restore.
        for inner in module.modules():
            held.note(vars(inner).values())
        self._held = held
        # Objects in globals may be anybody's, and are left alone.
        self._named = _Notes(containers_only=True)
        self._owners = [(owner, dict(vars(owner))) for owner in owners(module)]
        for _, names in self._owners:
            self._named.note(names.values())
        self._undo = [keeper.keep() for keeper in tuple(KEEPERS)]

    def restore(self) -> None:
        """Put back what objects hold, and take tensors without content out of everything else.

        What code keeps in globals, classes and caches belongs to other threads as well: of that, only
        what tracing left behind is undone.
        """
        for undo in self._undo:
            undo()
        self._held.restore()
        self._named.restore(only_traced=True)
        for owner, names in self._owners:
            for name, value in list(vars(owner).items()):
                if _is_traced(value):
                    _rebind(owner, name, names)


class _Notes:
    """Containers and objects, each with what it holds."""

    def __init__(self, *, containers_only: bool = False) -> None:
        self._containers_only = containers_only
        self._copies: dict[int, tuple[Any, Any]] = {}
        # By identity, each with the tensor itself, or another could get its address.
        self._contents: dict[int, tuple[Tensor, Tensor]] = {}

    def note(self, values: Iterable[Any]) -> None:
        """Note values, and all that can be reached from them."""
        pending = list(values)
        while pending and len(self._copies) < _MOST:
            value = pending.pop()
            # A tuple cannot change, but what is in it can.
            if type(value) is tuple:
                pending += value
            elif isinstance(value, Tensor) and not self._containers_only:
                self._copy_content(value)
            # By exact type: derived ones may do anything when they are written.
            elif type(value) in _CONTAINERS:
                if id(value) not in self._copies:
                    self._copies[id(value)] = value, value.copy()
                    pending += value.values() if isinstance(value, dict) else value
            elif not self._containers_only and is_own_object(value):
                attributes = vars(value)
                if id(attributes) not in self._copies:
                    self._copies[id(attributes)] = attributes, dict(attributes)
                    pending += attributes.values()

    def _copy_content(self, tensor: Tensor) -> None:
        """Note the values of a tensor that is no member of a module: tracing writes into it for real."""
        if id(tensor) not in self._contents and _has_values(tensor):
            with natively(), torch.no_grad():
                self._contents[id(tensor)] = tensor, tensor.detach().clone()

    def restore(self, *, only_traced: bool = False) -> None:
        """Give containers their items back.

        Args:
            only_traced: Undo nothing but what has tensors without content.
        """
        for container, items in self._copies.values():
            if only_traced and not any(map(_is_traced, _items(container))):
                continue
            if only_traced:
                _drop_traced(container, items)
            elif _differ(container, items):
                container.clear()
                (container.extend if hasattr(container, "extend") else container.update)(items)
        with natively(), torch.no_grad():
            for tensor, values in self._contents.values():
                # To copy nothing new would still count as writing, which changes the version.
                if not torch.equal(tensor, values):
                    tensor.detach().copy_(values)


def _has_values(tensor: Tensor) -> bool:
    # Parameters are members, which are replaced while a module runs.
    if isinstance(tensor, nn.Parameter | FakeTensor | FunctionalTensor) or (
        isinstance(tensor, SambaTensor) and not tensor.has_data
    ):
        return False
    return tensor.layout == torch.strided and not tensor.is_meta


def _differ(container: Any, items: Any) -> bool:
    """Return whether a container has other items, or in another order, than it had."""
    now, before = list(container), list(items)
    if len(now) != len(before) or any(a is not b for a, b in zip(now, before, strict=True)):
        return True
    return isinstance(container, dict) and any(container[key] is not items[key] for key in before)


def _drop_traced(container: Any, items: Any) -> None:
    """Take tensors without content out of a container; what they replaced in a dict is put back."""
    if isinstance(container, dict):
        # A list, as keys are taken out meanwhile.
        for key, value in list(container.items()):
            if _is_traced(value) and key in items:
                container[key] = items[key]
            elif _is_traced(value):
                del container[key]
        return
    # A list has no keys to tell what a tensor took the place of.
    kept = [value for value in container if not _is_traced(value)]
    container.clear()
    (container.extend if hasattr(container, "extend") else container.update)(kept)


def _items(container: Any) -> Iterator[Any]:
    return iter(list(container.values() if isinstance(container, dict) else container))


def _is_traced(value: Any) -> bool:
    """Return whether a value is a tensor without content, or a tuple or list of some."""
    if isinstance(value, FakeTensor | FunctionalTensor):
        return True
    return type(value) in (tuple, list) and any(map(_is_traced, value))


def is_own_object(value: Any) -> bool:
    """Return whether a value is an object of a class that the user, or a library of models, wrote.

    Args:
        value: Anything.
    """
    kinds = (type, ModuleType, FunctionType, MethodType, nn.Module, Tensor)
    if isinstance(value, kinds) or not isinstance(getattr(value, "__dict__", None), dict):
        return False
    return _is_own(type(value))


def _is_own(kind: type) -> bool:
    return _top(kind.__module__) not in _FOREIGN


def _top(module: str) -> str:
    return module.partition(".")[0]


def owners(module: nn.Module) -> list[Any]:
    """Return the classes that modules are of, and the Python modules that these are written in.

    Args:
        module: With all modules in it; classes of torch itself are left out.
    """
    # Bases as well: a library's class may keep the cache that the user's class inherits.
    classes = [kind for inner in module.modules() for kind in type(inner).__mro__ if _is_own(kind)]
    files = [sys.modules[kind.__module__] for kind in classes if kind.__module__ in sys.modules]
    # Each once, in an order that is the same in every process.
    return list(dict.fromkeys([*classes, *files]))


def _rebind(owner: Any, name: str, names: dict[str, Any]) -> None:
    if name in names:
        setattr(owner, name, names[name])
    else:
        delattr(owner, name)


def forget_tensors(module: nn.Module) -> None:
    """Empty the caches of functions that hold tensors, so that a module always computes the same.

    Args:
        module: Functions that its classes and their files name are looked at.
    """
    for owner in owners(module):
        for cache in [var for var in vars(owner).values() if type(var) is _CACHE]:
            _clear(cache, lambda value: isinstance(value, Tensor))


def forget_traced() -> None:
    """Empty the caches of all functions that hold tensors without content: they compute again."""
    for cache in _CACHES.all():
        _clear(cache, _is_traced)


class _Caches:
    """The functions of this process that keep what they returned."""

    def __init__(self) -> None:
        self._frozen: list[weakref.ref[Any]] = []
        self._witness: list[None] | None = None
        """An object as old as ``_frozen``: garbage collection lists it until somebody freezes again."""

    def all(self) -> list[Any]:
        """Return them, each once."""
        objects = gc.get_objects()
        kinds = map(operator.is_, map(type, objects), itertools.repeat(_CACHE))
        caches = list(itertools.compress(objects, kinds))
        # What was frozen, as by a server before it forks, is not listed. To ask how much that is would
        # walk through all of it; the names of the interpreter are as old as any.
        if not _lists(objects, vars(sys)):
            if not _lists(objects, self._witness):
                self._frozen = [weakref.ref(cache) for cache in _named_caches()]
                self._witness = []
            caches += [one for reference in self._frozen if (one := reference()) is not None]
        return list({id(cache): cache for cache in caches}.values())


_CACHES: Final = _Caches()


def _lists(objects: list[Any], one: object) -> bool:
    # Not "in", which asks objects of all kinds whether they are equal; and no loop, for there are a million.
    return any(map(operator.is_, objects, itertools.repeat(one)))


def _named_caches() -> Iterator[Any]:
    """Yield those functions that a module, or a class in one, has by name."""
    modules = [module for module in list(sys.modules.values()) if isinstance(module, ModuleType)]
    named = [value for module in modules for value in list(vars(module).values())]
    # By type(), as isinstance() asks an object, and deprecated ones warn when they are asked.
    classes = {id(one): one for one in named if issubclass(type(one), type)}.values()
    members = [list(vars(one).values()) for one in classes]
    return (one for one in itertools.chain(named, *members) if type(one) is _CACHE)


def _clear(cache: Any, belongs: Callable[[Any], bool]) -> None:
    """Empty the cache of a function if it holds what does not belong there."""
    # Most caches of a process are empty, and to look into one takes several walks. Those of the standard library are
    # the largest (typing, re), and no function there returns a tensor.
    module = getattr(cache, "__module__", None) or ""
    if not cache.cache_info().currsize or _top(module) in sys.stdlib_module_names:
        return
    held = gc.get_referents(cache)
    for _ in range(3):  # its dict, the links inside, and what was returned
        held = gc.get_referents(*(one for one in held if not isinstance(one, _CODE))) + held
    # A cache without tensors may be slow to fill again and does no harm.
    if any(map(belongs, held)):
        cache.cache_clear()
