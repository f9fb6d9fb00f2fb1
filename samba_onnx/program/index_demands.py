"""Which integers an input may hold, as torch demands of indices, classes and labels."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["IndexDemand"]


@dataclass(frozen=True)
class IndexDemand:
    """A use of an input's integers as indices, and the range that torch takes there.

    ONNX lets indices count from the end where torch's embeddings, gathers and losses raise: without a
    check, a label of -1 would be the last class.
    """

    input: str
    """The input that holds the integers."""
    operator: str
    """What uses them, as ``embedding``."""
    lowest: int
    """The least of them: 0, or negative where torch counts from the end as well."""
    highest: int
    """The greatest of them."""
    exempt: tuple[int, ...] = ()
    """Further numbers that are taken: the ``ignore_index`` of a loss."""
    part: tuple[tuple[int, ...], ...] = ()
    """First place and place behind the last of what is used, by axis, as labels without their first
    column; empty for all of it."""
