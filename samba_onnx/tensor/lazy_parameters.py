"""Parameters that remember how they would be initialised, and take no memory until they are needed.

While lazy mode is on, ``torch.empty`` makes tensors without memory, and modules make their
parameters of these. What initialises such a parameter in place is written down; it is carried out
when the values are needed, with random numbers that depend on the seed and on how many parameters
were made before, and on nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Self

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from samba_onnx.functional.table import TABLE, FunctionKind, is_in_place
from samba_onnx.tensor import SambaParameter, SambaTensor, native
from samba_onnx.tensor.native import natively, placeholder
from samba_onnx.tensor.random_values import (
    FAITHFUL,
    RANDOM,
    Drawing,
    DrawingOptions,
    rounded,
)

_VIEWS: Final = frozenset(
    {"__getitem__", "flatten", "narrow", "permute", "reshape", "select", "squeeze"}
    | {"t", "transpose", "unflatten", "unsqueeze", "view", "view_as"}
)
"""Methods whose result is written instead of the tensor."""
_RESHAPING: Final = frozenset(
    {"as_strided_", "resize_", "resize_as_", "set_", "squeeze_", "swapaxes_", "swapdims_"}
    | {"t_", "transpose_", "unsqueeze_"}
)
"""In place, too, but not on the values."""
_LAYOUT: Final = frozenset({"is_contiguous", "stride"})
"""What is asked about memory that is not there yet: it will be dense."""
_EMPTY: Final = frozenset({"new_empty", "empty_like"})
_CASTS: Final = frozenset({"to", "float", "half", "bfloat16", "double", "type"})
_INITIALISERS: Final = "torch.nn.init"

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
"""A function, and its arguments after the tensor."""


@dataclass
class Recipe:
    """How a tensor's values are made."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    seed: int
    options: DrawingOptions
    steps: list[tuple[tuple[Call, ...], Call | torch.dtype]] = field(default_factory=list)
    """A view of the tensor, and what is done to it in place; or a dtype to cast to."""

    def make(self, tensor: Tensor) -> Tensor:
        """Make the values: the materializer of a lazy parameter.

        Args:
            tensor: The parameter.

        Returns:
            A new tensor; the same values on every call.
        """
        del tensor
        # With a generator of its own state: what the program draws does not depend on when
        # parameters are made.
        with torch.no_grad(), LAZY.paused(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            with Drawing(self.options):
                return self._made()

    def _made(self) -> Tensor:
        values = torch.empty(self.shape, dtype=self.dtype)
        # What nothing initialises would be whatever is in memory, and other numbers on every call.
        if not self.steps:
            values.zero_()
        for path, step in self.steps:
            if isinstance(step, torch.dtype):
                values = rounded(values, step, self.options)
                continue
            target = values
            for function, args, kwargs in path:
                target = function(target, *args, **kwargs)
            function, args, kwargs = step
            function(target, *args, **kwargs)
        return values

    def cast(self, dtype: torch.dtype) -> Recipe:
        """Return the recipe of the same values in another dtype."""
        steps = [*self.steps, ((), dtype)]
        return Recipe(self.shape, self.dtype, self.seed, self.options, steps)


class LazyParameter(SambaParameter):
    """A parameter whose initialisation was written down."""

    _recipe: Recipe | None = None
    _path: tuple[Call, ...] = ()

    @classmethod
    def of(cls, recipe: Recipe, shape: Iterable[int], dtype: torch.dtype) -> Self:
        """Return a parameter, or a view of one, that will be made by a recipe."""
        parameter = cls(shape=shape, dtype=dtype, requires_grad=False)
        parameter._recipe = recipe
        parameter._host.materializer = lambda tensor: _values(parameter)
        return parameter

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Write an initialisation down; anything else is done as on any SambaTensor."""
        kwargs = dict(kwargs or {})
        # The functions of torch.nn.init hand their tensor on by keyword.
        if not args and isinstance(kwargs.get("tensor"), LazyParameter):
            args = (kwargs.pop("tensor"),)
        first = args[0] if args else None
        if isinstance(first, LazyParameter) and first._host.is_empty and first._recipe is not None:
            answer = first._record(func, args[1:], kwargs)
            if answer is not None:
                return answer
        if LAZY.enabled and TABLE.find(func).kind is FunctionKind.HOST:
            # A module's own arithmetic on initial values: no model is computed yet.
            args, kwargs = pytree.tree_map_only(LazyParameter, _values, (args, kwargs))
            with natively():
                return func(*args, **kwargs)
        return super().__torch_function__(func, types, args, kwargs)

    @property
    def data(self) -> Tensor:
        """The values; without any, a parameter that writes down what is done to it."""
        return self._alias() if self._host.is_empty and self._recipe else native.data(self)

    @data.setter
    def data(self, data: Tensor) -> None:
        is_empty = isinstance(data, SambaTensor) and not data.has_data
        self._host.write(self, _flat(data), is_empty)
        if is_empty and isinstance(data, LazyParameter):
            self._recipe, self._host.materializer = data._recipe, data.materializer

    def _like(self, data: Tensor) -> Self:
        other = super()._like(data)
        other._recipe, other._path = self._recipe, self._path
        return other

    def _alias(self) -> LazyParameter:
        return self._like(placeholder(tuple(self.shape), self.dtype))

    def _record(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Write a call down; None for a call that is no initialisation."""
        recipe = self._recipe
        name = getattr(function, "__name__", "")
        assert recipe is not None
        initialises = getattr(function, "__module__", "") == _INITIALISERS
        if name in _RESHAPING:
            return None
        if initialises or is_in_place(function) or name == "__setitem__":
            recipe.steps.append((self._path, (function, args, kwargs)))
            return self
        if name in _VIEWS:
            call = (function, args, kwargs)
            with natively():
                shape = function(placeholder(tuple(self.shape), self.dtype), *args, **kwargs).shape
            view = LazyParameter.of(recipe, shape, self.dtype)
            view._path = (*self._path, call)
            return view
        if name in _LAYOUT or (name in _EMPTY and LAZY.enabled):
            with natively():
                alike = torch.empty(tuple(self.shape), dtype=self.dtype, device="meta")
                answer = function(alike, *args, **kwargs)
            return LAZY.make(tuple(answer.shape), answer.dtype) if name in _EMPTY else answer
        if name in _CASTS and not self._path:
            return self._cast(function, args, kwargs)
        return None

    def _cast(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> LazyParameter | None:
        with natively():
            # Casts take their type in many ways: one element shows which one is meant.
            sample = function(torch.empty((), dtype=self.dtype), *args, **kwargs)
        if not isinstance(sample, Tensor) or sample.is_meta or self._recipe is None:
            return None
        if sample.dtype == self.dtype:
            return self
        return LazyParameter.of(self._recipe.cast(sample.dtype), self.shape, sample.dtype)


def _values(tensor: LazyParameter) -> Tensor:
    """The values of a parameter or a part of one, in a tensor of their own unless it has data."""
    if not tensor._host.is_empty:
        return _flat(tensor)
    recipe = tensor._recipe
    assert recipe is not None
    values = recipe.make(tensor)
    for function, args, kwargs in tensor._path:
        values = function(values, *args, **kwargs)
    return values


class LazyMode:
    """Whether parameters are made lazily, and from which random numbers."""

    def __init__(self) -> None:
        self._mode: _EmptyTensors | None = None
        self._paused = 0
        self._made = 0
        self._seed = 0
        self._options = FAITHFUL

    @property
    def enabled(self) -> bool:
        """Whether parameters that are made now take no memory."""
        return self._mode is not None and not self._paused

    def enable(self, seed: int | None, options: DrawingOptions) -> None:
        """Make parameters lazily from now on, in this thread.

        Args:
            seed: Seed of their values; None takes one from torch's generator.
            options: How random numbers are drawn.
        """
        self._seed = int(torch.randint(2**62, ())) if seed is None else seed
        self._options = options
        RANDOM.seed(seed, options)
        self._made = 0
        if self._mode is None:
            self._mode = _EmptyTensors()
            self._mode.__enter__()  # type: ignore[no-untyped-call]

    def disable(self) -> None:
        """Make parameters as usual; those that were made lazily stay as they are."""
        if self._mode is not None:
            self._mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            self._mode = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Make tensors as usual inside."""
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1

    def make(self, shape: tuple[int, ...], dtype: torch.dtype) -> LazyParameter:
        """Return a tensor that will be made later."""
        self._made += 1
        # Far apart, so that the numbers of neighbouring seeds do not meet.
        seed = (self._seed * 6364136223846793005 + self._made * 1442695040888963407) % 2**63
        return LazyParameter.of(Recipe(shape, dtype, seed, self._options), shape, dtype)


LAZY: Final = LazyMode()
"""The mode of this process."""


class _EmptyTensors(TorchFunctionMode):
    """Lets ``torch.empty`` take no memory."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.empty and LAZY.enabled and kwargs.keys() <= _PLAIN_KEYWORDS:
            dtype = kwargs.get("dtype") or torch.get_default_dtype()
            device = torch.device(kwargs.get("device") or "cpu")
            # Parameters are floating point; whole numbers are counters and masks, which are
            # asked for their values soon.
            if dtype.is_floating_point and device.type == "cpu":
                size = kwargs.get("size", args)
                shape = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
                return LAZY.make(tuple(shape), dtype)
        return func(*args, **kwargs)


_PLAIN_KEYWORDS: Final = frozenset({"size", "dtype", "device", "requires_grad"})


def _flat(data: Tensor) -> Tensor:
    """A plain tensor; the placeholder of one without values."""
    with natively():
        return data.as_subclass(Tensor) if isinstance(data, SambaTensor) else data
