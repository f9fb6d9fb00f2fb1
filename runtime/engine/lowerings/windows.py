"""Geometry of convolutions, as attributes of nodes state it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx


@dataclass(frozen=True)
class Geometry:
    """How the window of a Conv or ConvTranspose moves; one number per spatial axis."""

    strides: Sequence[int]
    dilations: Sequence[int]
    before: Sequence[int]
    """Padding in front of each axis."""
    behind: Sequence[int]
    """Padding behind each axis."""
    groups: int


def with_axes(geometry: Geometry, missing: int) -> Geometry:
    """Return a geometry with axes of one element in front, along which nothing moves.

    Args:
        geometry: How a window moves.
        missing: Number of the axes.
    """
    ones, zeros = (1,) * missing, (0,) * missing
    return Geometry(
        (*ones, *geometry.strides),
        (*ones, *geometry.dilations),
        (*zeros, *geometry.before),
        (*zeros, *geometry.behind),
        geometry.groups,
    )


def geometry_of(node: onnx.NodeProto, rank: int) -> Geometry | str:
    """Return the geometry of a convolution.

    Args:
        node: A Conv or ConvTranspose.
        rank: Number of its spatial axes.

    Returns:
        The geometry; a reason where attributes leave padding to be computed.
    """
    attributes = {attribute.name: attribute for attribute in node.attribute}
    if "auto_pad" in attributes and attributes["auto_pad"].s not in {b"", b"NOTSET"}:
        return "its padding is named"
    if "output_shape" in attributes:
        return "its padding follows from an output shape"
    pads = _numbers(attributes, "pads", 0, 2 * rank)
    return Geometry(
        _numbers(attributes, "strides", 1, rank),
        _numbers(attributes, "dilations", 1, rank),
        pads[:rank],
        pads[rank:],
        attributes["group"].i if "group" in attributes else 1,
    )


def _numbers(
    attributes: Mapping[str, onnx.AttributeProto], name: str, default: int, count: int
) -> Sequence[int]:
    return tuple(attributes[name].ints) if name in attributes else (default,) * count


def offsets(kernel: Sequence[int], dilations: Sequence[int]) -> Iterator[list[int]]:
    """Yield where a window's elements lie, from its first one on; the first axis is the slowest.

    Args:
        kernel: Number of elements per spatial axis.
        dilations: Distance between them per spatial axis.
    """
    for indices in itertools.product(*map(range, kernel)):
        yield [index * hole for index, hole in zip(indices, dilations, strict=True)]
