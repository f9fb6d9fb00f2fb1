"""What a manifest says of dimensions that are dynamic in the model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DynamicDimension:
    """A dimension that stayed dynamic, and the option that would make it static."""

    name: str
    """Its name in the model."""
    inputs: tuple[str, ...]
    """Where it occurs, as ``input[axis]``."""
    option: str
    """The option that makes it static, for example ``--dim batch=8`` or ``--input-shape x=1,3,224,224``."""


@dataclass(frozen=True)
class BoundDimension:
    """A dimension that is dynamic in the model, and has a size in a graph of the PEF."""

    graph: str
    """The graph of that size."""
    name: str
    """Its name in the model; empty where it has none."""
    inputs: tuple[str, ...]
    """Where it occurs, as ``input[axis]``, with the model's own names."""
    size: int
    """Its size."""
    assumed: bool
    """Whether nobody stated the size."""
    option: str
    """How to state another one, as ``--dim batch=1`` or ``--input-shape x=1,3,1,1``."""
