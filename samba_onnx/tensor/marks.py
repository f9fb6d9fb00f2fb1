"""What a SambaTensor carries besides its values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from samba_onnx.errors import UsageError

DimNames = tuple[str | None, ...]

_MEMORY_TYPES: Final = {"ddr": "DDR", "hbm": "HBM", "host": "Host"}


@dataclass(frozen=True)
class Marks:
    """Name, place and hints of one tensor."""

    name: str = ""
    """Name of the tensor; empty when it was given none."""
    region_name: str = ""
    """Name of its place in device memory; the tensor's name when empty."""
    batch_dim: int | None = None
    """Which dimension is the batch; a hint."""
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


NO_MARKS: Final = Marks()
"""Of a tensor that was never told anything."""


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
