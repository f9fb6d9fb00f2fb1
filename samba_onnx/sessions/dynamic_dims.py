"""Sizes that may vary, as SambaFlow's programs declare them: a program here has one size of each."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from samba_onnx.errors import UsageError
from samba_onnx.sessions.session_options import SessionOptions
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


class DynamicDims:
    """The dimensions that a program has declared."""

    def __init__(self, options: SessionOptions) -> None:
        """Begin without any.

        Args:
            options: Keeps their names as a hint, for the PEF that is compiled next.
        """
        self._options = options
        self.declared: dict[str, DimInfo] = {}
        """Their sizes by the name that programs read."""

    def create_dynamic_dim(self, name: str, min: int, max: int, factor: int = 1) -> str:
        """Declare a dimension whose size may vary between runs.

        A program is compiled for the sizes of its inputs, here: it takes inputs of those sizes, and
        ``run`` refuses others. Declare what programs read, compile for the largest size and pad, or
        compile a PEF or a graph for every size. The PEF that is compiled next lists the dimension.

        SambaNova has not published the arguments; they are those of which its programs compose the
        names in ``dynamic_dims``.

        Args:
            name: What the dimension is, as ``batch_size``.
            min: Least size, at least 1.
            max: Largest size.
            factor: What every size is a multiple of.

        Returns:
            The name by which ``dynamic_dims`` has it, as ``batch_size_min_1_max_16_factor_1``.

        Raises:
            UsageError: The sizes contradict each other.
        """
        key = self._declare(name, DimInfo(min, max, factor))
        self._list()
        return key

    def load_dynamic_dims_config(self, path: str | os.PathLike[str]) -> None:
        """Declare the dimensions of a file, as ``create_dynamic_dim`` does.

        Args:
            path: YAML or JSON with lines such as ``batch_size: {min: 1, max: 16, factor: 1}``.

        Raises:
            UsageError: The file cannot be read, or declares no dimensions.
        """
        for name, dimension in read_dimensions(path).items():
            self._declare(name, dimension)
        self._list()

    def _declare(self, name: str, dimension: DimInfo) -> str:
        """Add a dimension, and say once what becomes of it."""
        key = dimension.key(name)
        self.declared[key] = dimension
        LOGGER.warning(
            "%s is declared dynamic: a PEF takes inputs of the sizes it is compiled for; compile for "
            "%d and pad, or compile one for every size",
            key,
            dimension.max,
        )
        return key

    def _list(self) -> None:
        self._options.record_hint("dynamic_dims", sorted(self.declared))


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
