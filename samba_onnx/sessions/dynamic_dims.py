"""Sizes that may vary, as SambaFlow's programs declare them: a program here has one size of each."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from samba_onnx.errors import UsageError
from samba_onnx.sessions.yaml_files import read_mapping

LOGGER: Final = logging.getLogger(__name__)

_FIELDS: Final = ("min", "max", "factor")


@dataclass(frozen=True)
class DimInfo:
    """The sizes that a dimension may have: the multiples of ``factor`` from ``min`` to ``max``."""

    min: int
    """Least size, at least 1."""
    max: int
    """Largest size, which programs read."""
    factor: int = 1
    """What every size is a multiple of."""

    def __post_init__(self) -> None:
        """Check the sizes.

        Raises:
            UsageError: They are no whole numbers, or no multiple of ``factor`` is between them.
        """
        sizes = [getattr(self, field) for field in _FIELDS]
        # Not isinstance: True is an int for Python.
        if not all(type(size) is int for size in sizes):
            raise UsageError(f"a dynamic dimension was given {sizes}; give whole numbers")
        if not 1 <= self.min <= self.max or self.factor < 1 or self.max % self.factor:
            raise UsageError(
                f"a dynamic dimension was given min={self.min}, max={self.max} and "
                f"factor={self.factor}; give 1 <= min <= max, and a max that is a multiple of factor"
            )

    def key(self, name: str) -> str:
        """Return by what a session knows the dimension, as programs of SambaNova's write it.

        Args:
            name: What the dimension is, as ``batch_size``.
        """
        ending = "".join(f"_{field}_{getattr(self, field)}" for field in _FIELDS)
        # A key that was returned before may be given as the name again.
        return name if name.endswith(ending) else name + ending


def declare(known: dict[str, DimInfo], name: str, dimension: DimInfo) -> str:
    """Add a dimension to those that a session knows, and say once what becomes of it.

    Args:
        known: The session's dimensions, by key.
        name: What the dimension is, as ``batch_size``.
        dimension: Its sizes.

    Returns:
        Its key.
    """
    key = dimension.key(name)
    known[key] = dimension
    LOGGER.warning(
        "%s is declared dynamic: a PEF takes inputs of the sizes it is compiled for; compile for "
        "%d and pad, or compile one for every size",
        key,
        dimension.max,
    )
    return key


def declare_file(known: dict[str, DimInfo], path: str | os.PathLike[str]) -> None:
    """Add the dimensions of a file to those that a session knows.

    Args:
        known: The session's dimensions, by key.
        path: A file of YAML or JSON; see :func:`read_dimensions`.

    Raises:
        UsageError: The file cannot be read, or has another form.
    """
    for name, dimension in read_dimensions(path).items():
        declare(known, name, dimension)


def read_dimensions(path: str | os.PathLike[str]) -> dict[str, DimInfo]:
    """Read declarations of dynamic dimensions.

    SambaNova has not published the form of the file; this is what ``create_dynamic_dim`` is given,
    by name: ``batch_size: {min: 1, max: 16, factor: 1}``.

    Args:
        path: A file of YAML or JSON.

    Returns:
        Dimensions by name.

    Raises:
        UsageError: The file cannot be read, or has another form.
    """
    remedy = "give lines such as 'batch_size: {min: 1, max: 16, factor: 1}'"
    rows = read_mapping(path, remedy).items()
    if not rows or not all(_is_dimension(row) for _, row in rows):
        raise UsageError(f"{path} does not declare dynamic dimensions; {remedy}", path=path)
    return {str(name): DimInfo(**row) for name, row in rows}


def _is_dimension(row: Any) -> bool:
    # factor may be left out, as in create_dynamic_dim.
    return isinstance(row, Mapping) and {"min", "max"} <= row.keys() <= {*_FIELDS}
