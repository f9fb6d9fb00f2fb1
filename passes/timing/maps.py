"""What convolutions do with maps: how many of them cross the edge of the chip, and how long the first one takes.

A *map* is one channel of one image. The published curve of single convolutions on an SN10 (arXiv 2311.04417,
figure 6) does not follow their bytes: maps of 7 by 7 come at 3 GB/s, of 14 by 14 at 7, of 28 by 28 at 20, large ones
at the rate of all other values. It follows a time for every map, whatever its size, and the bytes behind it. So
channels lie one behind another (NCHW), and each is a copy of its own. Weights, whose rows are as short, come in bulk.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

import onnx_ir as ir

from samba_onnx.facts.domains import normal_domain
from samba_onnx.facts.families import CONVOLUTIONS
from samba_onnx.passes.timing.matrix_products import renames, static_sizes

__all__ = ["crossing_maps", "positions"]


def crossing_maps(nodes: Sequence[ir.Node]) -> int:
    """Return how many maps the convolutions of a section read from outside, or write for outside.

    Args:
        nodes: The section's nodes.
    """
    inside = set(nodes)
    crossing: dict[ir.Value, int] = {}
    for node in nodes:
        if _is_convolution(node):
            crossing.update(_crossing(node, inside))
    return sum(crossing.values())


def positions(node: ir.Node) -> int:
    """Return the places of a map that a convolution goes through; 0 for another node.

    The first result of the pipeline leaves when the first image has passed, place by place: that takes 110 µs
    of a published convolution of 1 by 1 to maps of 112 by 112, and 126 of one of 7 by 7 to maps of that size. So
    it is not the size of the window that counts, as it would if patches were laid out first (im2col).
    """
    if not _is_convolution(node):
        return 0
    places = _places(node.outputs[0])
    return max(_places(node.inputs[1]), places) if places else 0


def _crossing(node: ir.Node, inside: Collection[ir.Node]) -> Iterator[tuple[ir.Value, int]]:
    """Yield the maps of a convolution that other sections make or take, by the value that they are."""
    operands = [_beyond(node.inputs[0], inside)]
    # The gradient of a weight slides one activation over another: its window is a map, its result is none.
    if 0 < _places(node.outputs[0]) < _places(node.inputs[1]):
        operands.append(_beyond(node.inputs[1], inside))
    elif _leaves(node.outputs[0], inside):
        yield node.outputs[0], _maps(node.outputs[0])
    for value in operands:
        if value is not None and value.producer() not in inside:
            yield value, _maps(value)


def _beyond(value: ir.Value | None, inside: Collection[ir.Node]) -> ir.Value | None:
    """Return what a value is another form of, as far as a section gives elements other places only."""
    producer = None if value is None else value.producer()
    while producer is not None and producer in inside and renames(producer):
        value = producer.inputs[0]
        producer = None if value is None else value.producer()
    return value


def _leaves(value: ir.Value, inside: Collection[ir.Node]) -> bool:
    return value.is_graph_output() or any(use.node not in inside for use in value.uses())


def _is_convolution(node: ir.Node) -> bool:
    return node.op_type in CONVOLUTIONS and not normal_domain(node.domain)


def _maps(value: ir.Value) -> int:
    """Return the channels of all images; 0 where the shape is not known."""
    sizes = static_sizes(value)
    return math.prod(sizes[:2]) if len(sizes) > 2 else 0


def _places(value: ir.Value | None) -> int:
    """Return the product of a value's spatial axes, which stand behind the first two; 0 where one is not known."""
    sizes = static_sizes(value)
    return math.prod(sizes[2:]) if len(sizes) > 2 else 0
