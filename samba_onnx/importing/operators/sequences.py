"""Sequences and optionals, whose lengths are known while the graph is traced."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from samba_onnx.importing.operators.computations import Node, computes
from samba_onnx.importing.values import Array


@computes("SequenceConstruct")
def sequence_construct(node: Node, *items: Tensor) -> list[Tensor]:
    """Make a sequence."""
    del node
    return list(items)


@computes("SequenceEmpty")
def sequence_empty(node: Node) -> list[Tensor]:
    """Make a sequence of nothing."""
    del node
    return []


@computes("SequenceAt", known=(1,))
def sequence_at(node: Node, sequence: list[Tensor], place: Array) -> Tensor:
    """Take an item."""
    del node
    return sequence[int(place.item())]


@computes("SequenceLength")
def sequence_length(node: Node, sequence: list[Tensor]) -> Array:
    """Count items."""
    del node
    return np.array(len(sequence), np.int64)


@computes("SequenceInsert", known=(2,))
def sequence_insert(
    node: Node, sequence: list[Tensor], item: Tensor, place: Array | None = None
) -> list[Tensor]:
    """Add an item, by default at the end."""
    del node
    at = len(sequence) if place is None else int(place.item())
    at += len(sequence) if at < 0 else 0
    return [*sequence[:at], item, *sequence[at:]]


@computes("SequenceErase", known=(1,))
def sequence_erase(node: Node, sequence: list[Tensor], place: Array | None = None) -> list[Tensor]:
    """Remove an item, by default the last."""
    del node
    at = (-1 if place is None else int(place.item())) % len(sequence)
    return [*sequence[:at], *sequence[at + 1 :]]


@computes("SplitToSequence", known=(1,))
def split_to_sequence(node: Node, value: Tensor, sizes: Array | None = None) -> list[Tensor]:
    """Cut along an axis: into single elements, pieces of one size, or pieces of given sizes."""
    axis = node.integer("axis")
    if sizes is None:
        pieces = list(torch.split(value, 1, axis))
        return pieces if node.integer("keepdims", 1) else [p.squeeze(axis) for p in pieces]
    # One number cuts pieces of that size, a list gives each size, and they differ by rank.
    lengths = int(sizes.item()) if sizes.ndim == 0 else [int(size) for size in sizes]
    return list(torch.split(value, lengths, axis))


@computes("ConcatFromSequence")
def concat_from_sequence(node: Node, sequence: list[Tensor]) -> Tensor:
    """Join the items along an old or a new axis."""
    axis = node.integer("axis")
    return torch.stack(sequence, axis) if node.integer("new_axis") else torch.cat(sequence, axis)


@computes("Optional", "OptionalGetElement")
def optional(node: Node, value: Any = None) -> Any:
    """Return the content of an optional, which stands for itself here."""
    del node
    # None stands for an empty optional, so that no type of its own is needed.
    return value


@computes("OptionalHasElement")
def optional_has_element(node: Node, value: Any = None) -> Array:
    """Return whether there is any content."""
    del node
    return np.array(value is not None)
