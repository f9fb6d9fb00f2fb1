"""Convolutions of each channel by itself, and the gradients of their inputs, with channels in blocks.

onnxruntime computes a group at a time: windows laid out in memory, and a product with a matrix of one row. Where weights are
constant its optimizer writes them for channels in blocks, as its vectors hold them; those that are trained are not. What
is written here brings data into blocks and back, and the weight, which is small. Against the plain form it takes 0.08 to
0.37 of the time on one thread of an AMD EPYC with AVX2 (8 pictures of 960 channels of 3x3, window of 3x3, and of 32 of 48x48).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx

from samba_onnx.runtime.engine.lowerings.blocked_channels import (
    SPATIAL_AXES,
    BlockedNodes,
    import_blocks,
)
from samba_onnx.runtime.engine.lowerings.graph_view import GraphView, rewrite_nodes
from samba_onnx.runtime.engine.lowerings.nodes import Shape, default_version
from samba_onnx.runtime.engine.lowerings.windows import Geometry, geometry_of

_OLDEST_VERSION = 13


def block_depthwise_convolutions(model: onnx.ModelProto, block: int) -> dict[str, str]:
    """Write depthwise convolutions for channels in blocks.

    1. It is a Conv or ConvTranspose of the default domain with two spatial axes, in float32, whose shapes are declared
       and whose padding is explicit.
    2. Each channel is a group, and they are whole blocks.
    3. The weight is computed or trained: with a constant one onnxruntime does the same for the whole graph.
    4. A ConvTranspose moves its window by one element, so that it is a convolution by the window turned round. Spreading
       a picture would take longer than the kernel for it.

    Args:
        model: Is changed in place.
        block: Channels of a block; 0 where the engine has no kernels for blocks.

    Returns:
        Why convolutions stay what they are, by the name of their result.
    """
    if not block or default_version(model) < _OLDEST_VERSION:
        return {}

    def write(node: onnx.NodeProto, view: GraphView) -> BlockedNodes | str:
        match = _match(node, view, block)
        return match if isinstance(match, str) else match.nodes(block)

    reasons = rewrite_nodes(model.graph, {"Conv", "ConvTranspose"}, write)
    import_blocks(model)
    return reasons


@dataclass(frozen=True)
class _Depthwise:
    """A convolution of each channel by itself."""

    operands: Sequence[str]
    """Data, weight and maybe a bias."""
    window: Shape
    geometry: Geometry
    turned: bool
    """Whether it is a ConvTranspose."""
    behind: Sequence[int]
    """How far the window's last position is behind the data, per axis."""
    result: str

    def nodes(self, block: int) -> BlockedNodes:
        """Return what computes the same."""
        build, geometry = BlockedNodes(self.result), self.geometry
        data, weight, *bias = self.operands
        before = list(geometry.before)
        if self.turned:
            reach = zip(self.window, geometry.dilations, geometry.before, strict=True)
            before = [(size - 1) * hole - pad for size, hole, pad in reach]
        value = build.depthwise(
            [build.blocked(data), self._weight(build, weight, block), *bias],
            geometry.groups,
            kernel_shape=self.window,
            pads=[*before, *self.behind],
            strides=geometry.strides,
            dilations=geometry.dilations,
        )
        build.finish(value, self.result)
        return build

    def _weight(self, build: BlockedNodes, weight: str, block: int) -> str:
        groups = self.geometry.groups
        count = self.window[0] * self.window[1]
        value = build.make("Reshape", [weight, build.integers(groups // block, block, count)])
        value = build.make("Transpose", [value], perm=[0, 2, 1])
        if self.turned:
            bounds = [build.integers(-1), build.integers(-count - 1)]
            value = build.make("Slice", [value, *bounds, build.integers(1), build.integers(-1)])
        return build.make("Reshape", [value, build.integers(groups, 1, *self.window)])


def _match(node: onnx.NodeProto, view: GraphView, block: int) -> _Depthwise | str:
    """Return a convolution that is written for blocks; a reason if it shall stay."""
    data, weight = (view.shapes.get(name, ()) for name in node.input[:2])
    result = view.shapes.get(node.output[0], ())
    # Case 1.
    if len(data) != 2 + SPATIAL_AXES or not weight or not result:
        return "its shapes are not declared, or not those of pictures"
    geometry = geometry_of(node, SPATIAL_AXES)
    if isinstance(geometry, str):
        return geometry
    if view.types.get(node.input[0]) != onnx.TensorProto.FLOAT:
        return "its type is not float32"
    # Case 2.
    if not data[1] == result[1] == geometry.groups or geometry.groups % block:
        return "its groups are not channels in whole blocks"
    # Case 3.
    if view.is_constant(node.input[1]):
        return "its weight is constant"
    turned = node.op_type == "ConvTranspose"
    # Case 4.
    if turned and any(step != 1 for step in geometry.strides):
        return "it spreads pictures"
    behind = list(geometry.behind)
    if turned:
        # What padding of the output adds is part of the declared size.
        sizes = zip(result[2:], data[2:], geometry.before, strict=True)
        behind = [after + pad - size for after, size, pad in sizes]
        if any(pad < 0 for pad in behind) or any(
            (size - 1) * hole < pad
            for size, hole, pad in zip(weight[2:], geometry.dilations, geometry.before, strict=True)
        ):
            return "its padding is larger than its window"
    return _Depthwise(
        operands=[name for name in node.input if name],
        window=weight[2:],
        geometry=geometry,
        turned=turned,
        behind=behind,
        result=node.output[0],
    )
