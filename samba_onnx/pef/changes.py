"""What a manifest says about what would change if the target ran what it refuses."""

from __future__ import annotations

from dataclasses import dataclass, field

from samba_onnx.pef.decoding import MAY_BE_MISSING


@dataclass(frozen=True)
class Change:
    """What a run would save if the target ran the nodes that it refuses for one reason.

    Each change is planned alone, all other nodes as they are: of two that are of use together only,
    neither saves anything.
    """

    graph: str
    """The graph."""
    code: str
    """Short name of the reason, as fallbacks have it."""
    operator: str
    """Operator of the nodes with its domain; several, joined by commas, where one data type is their reason."""
    nodes: tuple[str, ...]
    """The nodes, by name."""
    transfers: int
    """Transfers of a run that would not be made."""
    bytes: int
    """Bytes that would not be copied."""
    seconds: float
    """Modelled seconds by which a run would be shorter."""
    advice: str
    """What to write instead."""
    dtype: str = field(default="", metadata=MAY_BE_MISSING)
    """The data type that is refused, as ``float64``; empty where the reason is another."""


@dataclass(frozen=True)
class Bound:
    """What a run of a graph would cost if the target ran every node."""

    graph: str
    """The graph."""
    transfers: int
    """Transfers of a run."""
    bytes: int
    """Bytes that a run would copy."""
    seconds: float
    """Modelled time of a run."""
