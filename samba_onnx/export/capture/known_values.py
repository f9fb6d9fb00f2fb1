"""What a module computes of nothing but numbers: tensors that have values although it is only traced.

A tensor that depends neither on inputs nor on parameters and buffers is traced like any other. Beside
each, the same is computed for real, so that ``item()``, ``if``, ``numpy()`` and operators whose sizes
depend on values find them. Writing in place and views are kept in step: a tensor that something unknown
is written into is unknown from then on, and with it all that share its memory.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils.weak import WeakIdKeyDictionary

from samba_onnx.export.capture.branches import Values

__all__ = ["KnownValues"]

_Function: TypeAlias = Callable[..., Any]

_UNKNOWN: Final = object()
"""Stands for the real value of a tensor that has none."""
_INTEGERS: Final = frozenset({torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8})
_LARGEST: Final = 1 << 26
"""A tensor of more elements or bytes is not computed twice: nobody asks for one of its values."""
_LIFTED: Final = torch.ops.aten.lift_fresh_copy.default
_PROPERTIES: Final = frozenset(
    {
        *(
            getattr(Tensor, name).__get__
            for name in (
                *("device", "dtype", "is_leaf", "is_nested", "is_quantized", "is_sparse"),
                *("layout", "ndim", "requires_grad", "shape"),
            )
        ),
        *(Tensor._is_view, Tensor.dim, Tensor.is_complex, Tensor.is_floating_point),
        *(Tensor.is_inference, Tensor.numel, Tensor.size, Tensor.storage_offset, Tensor.stride),
    }
)
"""Questions that no value is needed for. Torch's exporter asks them thousands of times, nearly all
that it calls, so that they are answered here, past all other contexts: none has another answer."""
_SUBSCRIPTS: Final = frozenset(
    {Tensor.__getitem__, Tensor.__setitem__}
    | {Tensor.index_put, Tensor.index_put_, torch.index_put, torch.index_put_}
)
"""Functions whose second operand are indices, for which masks may stand."""
_SIZED: Final = frozenset(
    {
        *(
            getattr(torch, name)
            for name in ("arange", "empty", "full", "linspace", "ones", "zeros")
        ),
        *(getattr(torch, name) for name in ("broadcast_to", "narrow", "reshape", "roll", "tile")),
        *(getattr(Tensor, name) for name in ("broadcast_to", "expand", "narrow", "repeat", "tile")),
        *(getattr(Tensor, name) for name in ("new_empty", "new_full", "new_ones", "new_zeros")),
        *(getattr(Tensor, name) for name in ("reshape", "roll", "unflatten", "view")),
        nn.functional.pad,
    }
)
"""Functions that take sizes, for which tensors of one integer may stand. Torch takes these out itself, without
asking as Python does."""
_TORCH_KINDS: Final = frozenset({Tensor, nn.Parameter, FakeTensor})
"""Types whose properties are torch's own."""


@dataclass(frozen=True)
class _Computed:
    """What a function returned that was called for real."""

    result: Any
    has_own_sizes: bool
    """Whether sizes of the result depend on values."""
    is_answer: bool
    """Whether the result is Python's own: a number, a list, an array, a text."""


class KnownValues(TorchFunctionMode):
    """Within this context, what is computed of nothing but numbers has values."""

    def __init__(self, asked: Values) -> None:
        """Begin with nothing computed.

        Args:
            asked: Told of the questions for values that are answered here.
        """
        super().__init__()
        self._asked = asked
        self._values: Any = WeakIdKeyDictionary()
        """Real tensors by their traced counterparts."""
        self._made: list[weakref.ref[Tensor]] = []
        self._memories: dict[int, tuple[Tensor, Tensor]] = {}
        """Copies of whole memories of tensors of the user's own, by the memory's address: the tensor
        that keeps it alive, and the copy, flat."""

    @property
    def are_kept(self) -> bool:
        """Whether somebody keeps a tensor without content that was made within the context."""
        return any(reference() is not None for reference in self._made)

    def __torch_function__(
        self,
        func: _Function,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func in _PROPERTIES and type(args[0]) in _TORCH_KINDS and args[0] not in self._values:
            with torch._C.DisableTorchFunction():
                return func(*args, **(kwargs or {}))
        result = self._called(func, args, kwargs or {})
        leaves = pytree.tree_leaves(result)
        self._made += [weakref.ref(leaf) for leaf in leaves if isinstance(leaf, FakeTensor)]
        return result

    def _called(self, func: _Function, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if func in _SIZED:
            args, keywords = pytree.tree_map(self._size, (args, keywords))
        tensors = [leaf for leaf in pytree.tree_leaves((args, keywords)) if _is_tensor(leaf)]
        if not tensors:
            return self._created(func, args, keywords)
        if any(self._value(tensor) is _UNKNOWN for tensor in tensors):
            return self._traced(func, args, keywords, tensors)
        computed = self._computed(func, args, keywords)
        if computed is None:
            return self._traced(func, args, keywords, tensors)
        if computed.is_answer:
            # A recorded run holds an answer to this question, which must not go to the next one.
            self._asked.skip(func, args)
            return computed.result
        # A trace has no sizes that depend on values: the result becomes a constant.
        if computed.has_own_sizes:
            traced = pytree.tree_map(_lifted, computed.result)
        else:
            traced = func(*args, **keywords)
        self._keep(traced, computed.result)
        return traced

    def _created(self, func: _Function, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Call a function of no tensors: one that makes them, or does something else altogether."""
        traced = func(*args, **keywords)
        # Only what made tensors is called a second time: others, such as setting a seed, have
        # effects.
        if any(isinstance(leaf, FakeTensor) for leaf in pytree.tree_leaves(traced)):
            computed = self._computed(func, args, keywords)
            if computed is not None:
                self._keep(traced, computed.result)
        return traced

    def _size(self, leaf: Any) -> Any:
        """Return a known tensor of one integer as that, and everything else as it is."""
        if not _is_tensor(leaf) or leaf.dim() or leaf.dtype not in _INTEGERS:
            return leaf
        value: Any = self._value(leaf)
        if value is _UNKNOWN:
            return leaf
        with _really():
            return int(value)

    def _value(self, tensor: Tensor) -> Any:
        """Return the real counterpart of a tensor; ``_UNKNOWN`` if it has none."""
        if isinstance(tensor, FakeTensor):
            return self._values.get(tensor, _UNKNOWN)
        # Subclasses and other layouts cannot be copied through their memory.
        if type(tensor) is not Tensor or tensor.is_meta or tensor.layout is not torch.strided:
            return _UNKNOWN
        if is_functorch_wrapped_tensor(tensor):  # what torch.vmap gives to a function
            return _UNKNOWN
        if tensor.untyped_storage().nbytes() > _LARGEST:
            return _UNKNOWN
        return self._copied(tensor)

    def _copied(self, tensor: Tensor) -> Tensor:
        """Return a copy of a tensor of the user's own; tensors in one memory share one copy of it."""
        with _really():
            storage = tensor.untyped_storage()
            # Every empty memory has address 0.
            key = storage.data_ptr() or id(tensor)
            # The memory is copied as a whole, so that what is written through one view shows in the
            # others.
            if key not in self._memories:
                copy: Any = storage.clone()  # type: ignore[no-untyped-call]
                self._memories[key] = tensor, tensor.detach().new_empty(0).set_(copy)
            own = tensor.detach().new_empty(0)
            place = tensor.storage_offset(), tensor.shape, tensor.stride()
            return own.set_(self._memories[key][1].untyped_storage(), *place)

    def _computed(
        self, func: _Function, args: tuple[Any, ...], keywords: dict[str, Any]
    ) -> _Computed | None:
        """Compute for real; None if that fails, or is a matter of chance."""

        def value(leaf: Any) -> Any:
            return self._value(leaf) if _is_tensor(leaf) else leaf

        operands, named = pytree.tree_map(value, (args, keywords))
        with _really(), _Watch() as watch:
            try:
                result = func(*operands, **named)
            except Exception:  # torch raises the same when it is traced, and says where
                return None
        leaves = pytree.tree_leaves(result)
        # What is drawn at random is another value in every run.
        if watch.is_random or any(_is_tensor(x) and x.numel() > _LARGEST for x in leaves):
            return None
        # None is what functions return that only write.
        is_answer = result is not None and not any(map(_is_tensor, leaves))
        return _Computed(result, watch.has_own_sizes, is_answer)

    def _keep(self, traced: Any, real: Any) -> None:
        """Remember the values of what was traced."""
        ours, theirs = pytree.tree_leaves(traced), pytree.tree_leaves(real)
        if len(ours) != len(theirs):
            return
        for one, value in zip(ours, theirs, strict=True):
            if isinstance(one, FakeTensor) and _is_tensor(value) and one.shape == value.shape:
                self._values[one] = value

    def _traced(
        self, func: _Function, args: Any, keywords: dict[str, Any], tensors: list[Tensor]
    ) -> Any:
        """Trace an operator, and forget what it writes into."""
        if func in _SUBSCRIPTS and "indices" in keywords:
            keywords = {**keywords, "indices": self._places(keywords["indices"])}
        elif func in _SUBSCRIPTS:
            args = args[0], self._places(args[1]), *args[2:]
        known = [t for t in tensors if isinstance(t, FakeTensor) and t in self._values]
        # Functions in Python have no schema that says what they write into: versions tell.
        versions = [tensor._version for tensor in known]
        result = func(*args, **keywords)
        for tensor, version in zip(known, versions, strict=True):
            if tensor._version != version:
                self._forget(self._values[tensor])
        return result

    def _places(self, index: Any) -> Any:
        """Return an index with the places where known masks are true instead of these masks."""
        parts = index if isinstance(index, tuple) else (index,)
        found: list[Any] = []
        for part in parts:
            value: Any = self._value(part) if _is_tensor(part) else _UNKNOWN
            if value is _UNKNOWN or value.dtype is not torch.bool:
                found.append(part)
                continue
            with _really():
                places = value.nonzero(as_tuple=True)
            found += map(_lifted, places)
        return tuple(found)

    def _forget(self, value: Tensor) -> None:
        """Let nothing in the memory of a value be known any more."""
        memory = value.untyped_storage()._cdata
        for tensor, other in list(self._values.items()):
            if other.untyped_storage()._cdata == memory:
                del self._values[tensor]


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes what kinds of operators are executed within the context."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.is_random = False
        """Whether one draws random numbers."""
        self.has_own_sizes = False
        """Whether one returns sizes that depend on values."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.is_random |= torch.Tag.nondeterministic_seeded in func.tags
        self.has_own_sizes |= torch.Tag.dynamic_output_shape in func.tags
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def _really() -> Iterator[None]:
    """Compute within the context as if nothing were traced."""
    with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.no_grad():
        yield


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, Tensor)


def _lifted(leaf: Any) -> Any:
    """Return a tensor as a constant of the graph that is being traced."""
    # A clone: what is written into the known value later must not change the constant.
    return _LIFTED(leaf.clone()) if _is_tensor(leaf) else leaf
