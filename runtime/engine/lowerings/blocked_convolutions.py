"""Convolutions, and the gradients of their inputs, with channels in blocks.

onnxruntime lays all windows of a picture out in memory and multiplies, for convolutions of each channel by itself with a
matrix of one row. Where weights are constant its optimizer writes them for channels in blocks, as its vectors hold them;
those that are trained are not. What is written here brings data into blocks and back, and the weight.

Against the plain form, on one thread of an AMD EPYC with AVX2: 0.06 to 0.37 of the time for convolutions of each channel
(8 pictures of 960 channels of 3x3 by a window of 3x3, and of 32 of 48x48); 0.7 for 4 pictures of 32 channels of 96x96 and a
window of 3x3, 0.9 for 16 of 64 of 16x16, and no less for smaller pictures and larger weights; 1.3 to 1.6 for a window of 2.
"""

from __future__ import annotations

import math
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
from samba_onnx.runtime.engine.lowerings.windows import Geometry, geometry_of, with_axes

_OLDEST_VERSION = 13
_SMALLEST_PLANE = 256
_MOST_CHANNELS = 128
_SMALLEST_WINDOW = 9


def block_convolutions(model: onnx.ModelProto, block: int) -> dict[str, str]:
    """Write convolutions for channels in blocks.

    1. It is a Conv or ConvTranspose of the default domain with one or two spatial axes, in float32, whose shapes are
       declared and whose padding is explicit.
    2. Each channel is a group, or all are one; channels are whole blocks.
    3. The weight is computed or trained: with a constant one onnxruntime does the same for the whole graph.
    4. In one group pictures are large, channels few, a window has many elements and moves by one. All else is quicker
       as products of matrices.

    A ConvTranspose is a convolution by the window turned round, of data with zeros in between where it moves by more.

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
        return match if isinstance(match, str) else match.nodes()

    reasons = rewrite_nodes(model.graph, {"Conv", "ConvTranspose"}, write)
    import_blocks(model)
    return reasons


@dataclass(frozen=True)
class _Convolution:
    """A convolution as blocks have it."""

    operands: Sequence[str]
    """Data, weight and maybe a bias."""
    data: Shape
    weight: Shape
    result: Shape
    geometry: Geometry
    turned: bool
    """Whether it is a ConvTranspose."""
    block: int
    name: str
    """Name of the result."""
    is_flat: bool
    """Whether there is one spatial axis, in front of which shapes and geometry have one more."""

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel is convolved by itself."""
        return 1 < self.data[1] == self.result[1] == self.geometry.groups

    def spread(self) -> Sequence[int]:
        """Return the sizes of the data with zeros in between, and behind the last element."""
        steps = self.geometry.strides if self.turned else (1, 1)
        return [size * step for size, step in zip(self.data[2:], steps, strict=True)]

    def pads(self) -> Sequence[int]:
        """Return the padding in front of and behind each axis; negative where it would be cut off."""
        geometry = self.geometry
        if not self.turned:
            return [*geometry.before, *geometry.behind]
        window = zip(self.weight[2:], geometry.dilations, strict=True)
        reach = [(size - 1) * hole for size, hole in window]
        before = [far - pad for far, pad in zip(reach, geometry.before, strict=True)]
        # What padding of the output adds is part of the declared size.
        sizes = zip(self.result[2:], self.spread(), reach, before, strict=True)
        return [*before, *(wanted - size + far - pad for wanted, size, far, pad in sizes)]

    def nodes(self) -> BlockedNodes:
        """Return what computes the same."""
        build, geometry = BlockedNodes(self.name), self.geometry
        data, weight, *bias = self.operands
        if self.is_flat:
            data = build.make("Reshape", [data, build.integers(*self.data)])
        value = build.convolution(
            [self._interleaved(build, build.blocked(data)), self._weight(build, weight), *bias],
            self.result[1],
            group=geometry.groups,
            kernel_shape=self.weight[2:],
            pads=self.pads(),
            strides=(1, 1) if self.turned else geometry.strides,
            dilations=geometry.dilations,
        )
        if self.is_flat:
            flat = [*self.result[:2], self.result[-1]]
            value = build.make("Reshape", [value, build.integers(*flat)])
        build.finish(value, self.name)
        return build

    def _interleaved(self, build: BlockedNodes, data: str) -> str:
        """Put ``stride - 1`` zeros behind each element of each axis: whole blocks of them."""
        spread = self.spread()
        if list(self.data[2:]) == spread:
            return data
        batch, channels, height, width = self.data
        rows = batch * channels // self.block * height
        behind = [step - 1 for step in self.geometry.strides]
        value = build.make("Reshape", [data, build.integers(rows, 1, width, self.block)])
        amounts = (*[0] * 5, behind[0], 0, behind[1] * self.block)
        value = build.make("Pad", [value, build.integers(*amounts)])
        return build.make("Reshape", [value, build.integers(batch, channels, *spread)])

    def _weight(self, build: BlockedNodes, weight: str) -> str:
        """Bring a weight into blocks of the result's channels, and of the data's where they are one group."""
        block, (first, second) = self.block, self.weight[:2]
        count = math.prod(self.weight[2:])
        shape: Shape
        order: Shape
        if self.is_depthwise:
            shape, order = (first // block, block, count), (0, 2, 1)
        else:
            shape = (first // block, block, second // block, block, count)
            order = (2, 0, 4, 1, 3) if self.turned else (0, 2, 4, 3, 1)
        value = build.make("Reshape", [weight, build.integers(*shape)])
        if self.turned and count > 1:
            bounds = [build.integers(-1), build.integers(-count - 1)]
            axis = build.integers(len(shape) - 1)
            value = build.make("Slice", [value, *bounds, axis, build.integers(-1)])
        value = build.make("Transpose", [value], perm=order)
        inputs = 1 if self.is_depthwise else self.data[1]
        return build.make(
            "Reshape", [value, build.integers(self.result[1], inputs, *self.weight[2:])]
        )


def _match(node: onnx.NodeProto, view: GraphView, block: int) -> _Convolution | str:
    """Return a convolution that is written for blocks; a reason if it shall stay."""
    data, weight = (view.shapes.get(name, ()) for name in node.input[:2])
    result = view.shapes.get(node.output[0], ())
    # Case 1.
    missing = 2 + SPATIAL_AXES - len(data)
    if missing not in (0, 1) or not weight or not result:
        return "its shapes are not declared, or not those of pictures or sequences"
    geometry = geometry_of(node, SPATIAL_AXES - missing)
    if isinstance(geometry, str):
        return geometry
    geometry = with_axes(geometry, missing)
    data, weight, result = (
        (*shape[:2], *[1] * missing, *shape[2:]) for shape in (data, weight, result)
    )
    if view.types.get(node.input[0]) != onnx.TensorProto.FLOAT:
        return "its type is not float32"
    found = _Convolution(
        operands=[name for name in node.input if name],
        data=data,
        weight=weight,
        result=result,
        geometry=geometry,
        turned=node.op_type == "ConvTranspose",
        block=block,
        name=node.output[0],
        is_flat=missing == 1,
    )
    # Case 2.
    if not found.is_depthwise and geometry.groups > 1:
        return "its groups are neither one nor as many as channels"
    if data[1] % block or result[1] % block:
        return "its channels are no whole blocks"
    # Case 3.
    if view.is_constant(node.input[1]):
        return "its weight is constant"
    # Case 4.
    if not found.is_depthwise and not _is_quicker(found):
        return "it is quicker as a product"
    if min(found.pads()) < 0:
        return "its padding is larger than its window"
    return found


def _is_quicker(convolution: _Convolution) -> bool:
    """Return whether a convolution of one group is quicker in blocks."""
    planes = (convolution.data[2:], convolution.result[2:])
    is_large = min(map(math.prod, planes)) >= _SMALLEST_PLANE
    is_narrow = max(convolution.weight[:2]) <= _MOST_CHANNELS
    steps = math.prod(convolution.geometry.strides)
    is_wide = math.prod(convolution.weight[2:]) >= _SMALLEST_WINDOW
    return is_large and is_narrow and is_wide and steps == 1
