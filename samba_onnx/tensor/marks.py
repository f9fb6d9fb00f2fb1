"""The marks of a SambaTensor: name, place in device memory and hints."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Protocol, TypeVar, cast, overload, runtime_checkable

from samba_onnx.errors import UsageError
from samba_onnx.facts.names import gradient_name
from samba_onnx.tensor.device import FAST_ACCESS

Value = TypeVar("Value")

DimNames = tuple[str | None, ...]

_ANONYMOUS: Final[Iterator[int]] = itertools.count()
_MEMORY_TYPES: Final = {"ddr": "DDR", "hbm": "HBM", "host": "Host"}


@dataclass(frozen=True)
class Marks:
    """Name, place and hints of one tensor."""

    name: str = ""
    """Name of the tensor; empty when it was given none."""
    region_name: str = ""
    """Name of its place in device memory; the tensor's name when empty."""
    batch_dim: int | None = None
    """Index of the dimension that is the batch; a hint."""
    named_dims: DimNames = ()
    """Names of the dimensions; a hint."""
    sized_dims: DimNames = ()
    """Names of the sizes that may vary; a hint."""
    is_complex: bool | None = None
    """Whether the last dimension holds real and imaginary parts; a hint."""
    mem_type: str | None = None
    """``DDR``, ``HBM``, ``Host``, or None: the compiler decides."""
    host_memory: bool = False
    """Whether the device reads the tensor from host memory directly."""
    stands_for_output: bool = False
    """Whether it only stands for an output of a traced graph, whose values are in what runs return."""

    @property
    def place(self) -> str:
        """Name of the place of the values in device memory; empty when there is none."""
        return self.region_name or self.name

    @property
    def gradient_place(self) -> str:
        """Name of the place of the gradient in device memory; empty when there is none."""
        return gradient_name(self.name) if self.name else ""


NO_MARKS: Final = Marks()
"""The marks of a tensor that was never told anything."""


@runtime_checkable
class Marked(Protocol):
    """A tensor with marks."""

    _marks: Marks


class Mark(Generic[Value]):
    """A property of a tensor: one field of its marks.

    Marks are frozen, so that tensors may share them; setting one gives the tensor new ones.
    """

    def __init__(
        self,
        field: str,
        doc: str,
        *,
        read: str | None = None,
        check: Callable[[Value], Value] | None = None,
        read_only: bool = False,
    ) -> None:
        """Describe the property.

        Args:
            field: Name of the field of ``Marks`` that setting it replaces.
            doc: The property's docstring.
            read: Name of what it shows of ``Marks``, a field or property; ``field`` when None.
            check: Turns a new value into the one that is kept, or raises; None keeps any.
            read_only: Whether setting it is refused.
        """
        self.__doc__ = doc
        self._field = field
        self._read = read or field
        self._check = check
        self._read_only = read_only

    @overload
    def __get__(self, tensor: None, owner: type[Any]) -> Mark[Value]: ...

    @overload
    def __get__(self, tensor: Marked, owner: type[Any]) -> Value: ...

    def __get__(self, tensor: Marked | None, owner: type[Any]) -> Mark[Value] | Value:
        """Return the tensor's mark, or the property itself when the class is asked."""
        if tensor is None:
            return self
        return cast(Value, getattr(tensor._marks, self._read))

    def __set__(self, tensor: Marked, value: Value) -> None:
        """Give the tensor marks with another value.

        Args:
            tensor: The tensor.
            value: The value of the field from now on.

        Raises:
            AttributeError: The property is read-only.
        """
        if self._read_only:
            raise AttributeError(f"{self._field} of a tensor cannot be set")
        if self._check is not None:
            value = self._check(value)
        changes: dict[str, Any] = {self._field: value}
        tensor._marks = replace(tensor._marks, **changes)


class FastAccess:
    """A property of a tensor: whether its name is among those of pinned memory."""

    def __init__(self, doc: str) -> None:
        """Describe the property.

        Args:
            doc: The property's docstring.
        """
        self.__doc__ = doc

    @overload
    def __get__(self, tensor: None, owner: type[Any]) -> FastAccess: ...

    @overload
    def __get__(self, tensor: Marked, owner: type[Any]) -> bool: ...

    def __get__(self, tensor: Marked | None, owner: type[Any]) -> FastAccess | bool:
        """Return whether it is, or the property itself when the class is asked."""
        return self if tensor is None else tensor._marks.name in FAST_ACCESS

    def __set__(self, tensor: Marked, fast_access: bool) -> None:
        """Enter the tensor's name, or take it out.

        Args:
            tensor: The tensor.
            fast_access: Whether it uses pinned memory from now on.

        Raises:
            UsageError: The tensor has no name.
        """
        name = tensor._marks.name
        if not name:
            raise UsageError("fast_access is known by name: give the tensor an sn_name first")
        if fast_access:
            FAST_ACCESS.add(name)
        else:
            FAST_ACCESS.discard(name)


def anonymous_name() -> str:
    """A name that no other tensor of this process was given."""
    return f"sambatensor_{next(_ANONYMOUS)}"


def marks_of(
    name: str | None,
    region_name: str | None = None,
    batch_dim: int | None = None,
    named_dims: Iterable[str | None] | None = None,
    sized_dims: Iterable[str | None] | None = None,
    is_complex: bool | None = None,
) -> Marks:
    """The marks of a tensor; equal ones are one object, for loops name the same tensors in each step.

    Args:
        name: As the fields of ``Marks``, like the others; None for none.
        region_name: None for that of the name.
        batch_dim: A hint.
        named_dims: A hint.
        sized_dims: A hint.
        is_complex: A hint.
    """
    named, sized = dim_names(named_dims), dim_names(sized_dims)
    fields = (name or "", region_name or "", batch_dim, named, sized, is_complex)
    try:
        return _shared(*fields)
    except TypeError:  # A hint that cannot be looked up, such as a list.
        return Marks(*fields)


# By type as well: 1 and True are equal, but not the same hint.
@functools.lru_cache(1024, typed=True)
def _shared(*fields: Any) -> Marks:
    return Marks(*fields)


def dim_names(names: Iterable[str | None] | None) -> DimNames:
    """Names of dimensions, from any iterable.

    Args:
        names: Names; None stands for none at all.
    """
    return () if names is None else tuple(names)


def memory_type(value: str | None) -> str | None:
    """The documented spelling of a memory type.

    Args:
        value: ``DDR``, ``HBM`` or ``Host`` in any case, or None.

    Returns:
        The documented spelling, or None.

    Raises:
        UsageError: There is no such memory.
    """
    if value is None:
        return None
    try:
        return _MEMORY_TYPES[value.lower()]
    except (KeyError, AttributeError):
        known = ", ".join(_MEMORY_TYPES.values())
        raise UsageError(f"mem_type is {value!r}; give one of {known}, or None") from None
