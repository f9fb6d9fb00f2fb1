"""The forms in which a gradient of a convolution's weight is a product of matrices."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx

from samba_onnx.runtime.engine.lowerings.blocked_channels import SPATIAL_AXES, BlockedNodes
from samba_onnx.runtime.engine.lowerings.nodes import Nodes, Shape
from samba_onnx.runtime.engine.lowerings.windows import Geometry, offsets, with_axes

FEW_CHANNELS = 8
"""Fewer are stacked with their kernel offsets into one product. Found, like the numbers below, by
timing onnxruntime's kernels on layers of LeNet, ResNet and U-Net."""
_LARGE_PLANE = 2048
_SMALL_BATCH = 256
_LONGEST_SUM = 4096
"""Positions of a picture that are added one after the other: more would lose digits that torch keeps."""

_FLOAT = onnx.TensorProto.FLOAT
HALVES = frozenset({onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16})
"""Types of 16 bits, which are computed in float32 and rounded once."""


@dataclass(frozen=True)
class Operand:
    """A value together with the order of axes in which a convolution reads it."""

    name: str
    order: Sequence[int]
    """Its axes as they are wanted: channels, batch, then spatial ones."""
    narrow: bool
    """Whether it is of 16 bits, so that arithmetic needs it widened."""

    def arranged(self, build: Nodes, order: Sequence[int], pads: Geometry | None = None) -> str:
        """Write the value in another order of axes, by at most one Transpose.

        Args:
            build: Where nodes go.
            order: The axes wanted: 0 is channels, 1 is batch, others are spatial.
            pads: Padding of the spatial axes, if any is wanted.
        """
        value = build.make("Cast", [self.name], to=_FLOAT) if self.narrow else self.name
        if pads is not None and (any(pads.before) or any(pads.behind)):
            amounts = [0] * (2 * len(self.order))
            for axis, size in enumerate((*pads.before, *pads.behind)):
                side, spatial = divmod(axis, len(pads.before))
                amounts[side * len(self.order) + self.order[2 + spatial]] = size
            value = build.make("Pad", [value, build.integers(*amounts)])
        permutation = [self.order[axis] for axis in order]
        if permutation == sorted(permutation):
            return value
        return build.make("Transpose", [value], perm=permutation)


@dataclass(frozen=True)
class WeightGradient:
    """A convolution that computes the gradient of a layer's weight."""

    under: Operand
    """What lies under the layer's window."""
    over: Operand
    """What has an element per position of the window."""
    shape: Shape
    """Shape of the gradient: outer channels, inner channels of a group, kernel."""
    batch: int
    plane: Shape
    """Positions of the window, per spatial axis."""
    padded: Shape
    """Sizes of what lies under it with its padding, per spatial axis."""
    layer: Geometry
    """How the layer's window moves, which is the convolution's with stride and dilation exchanged."""
    result: str
    dtype: int
    replaced: frozenset[str]
    """Results of the convolution and the Transpose, whose place the product takes."""

    @property
    def positions(self) -> int:
        """Number of positions of the window in the whole batch."""
        return self.batch * math.prod(self.plane)

    @property
    def _spatial(self) -> range:
        return range(2, len(self.shape))

    def replacement(self, block: int = 0) -> Nodes:
        """Return what computes the same as the convolution and what reads it.

        Args:
            block: Channels of a block in the engine's blocked layout; 0 where it has no kernels for it.
        """
        build = BlockedNodes(self.result)
        narrow = self.dtype in HALVES
        name = f"{self.result}.wide" if narrow else self.result
        # With groups, each channel is a group of its own, and leaves no matrix to multiply.
        if self.layer.groups > 1:
            positions = math.prod(self.plane)
            suits = len(self.plane) <= SPATIAL_AXES and positions <= _LONGEST_SUM
            if suits and block and self.shape[0] % block == 0:
                self._depthwise_in_blocks(build, name)
            else:
                self._depthwise(build, name)
        elif self.shape[1] < FEW_CHANNELS:
            self._columns(build, name)
        # To put the channels of large pictures last moves more memory than one product for all
        # pictures saves.
        elif math.prod(self.plane) >= _LARGE_PLANE and math.prod(self.shape[2:]) > 1:
            self._per_picture(build, name)
        else:
            self._channels_last_products(build, name)
        if narrow:
            build.make("Cast", [name], result=self.result, to=self.dtype)
        return build

    def _columns(self, build: Nodes, result: str) -> None:
        """One product with all offsets stacked, channels first: best for few channels."""
        outer, inner = self.shape[:2]
        padded = self.under.arranged(build, range(len(self.shape)), self.layer)
        rows = [
            build.make("Reshape", [part, build.integers(inner, self.positions)])
            for part in self._windows(build, padded, 2)
        ]
        stacked = _concatenated(build, rows, 0)
        columns = build.make("Transpose", [stacked])
        product = build.make("MatMul", [self._left(build, outer), columns])
        self._offsets_last(build, product, result)

    def _channels_last_products(self, build: Nodes, result: str) -> None:
        """One product per offset with channels last; one for all when they are small."""
        outer, inner, *kernel = self.shape
        padded = self.under.arranged(build, [1, *self._spatial, 0], self.layer)
        left = self._left(build, outer)
        rows = [
            build.make("Reshape", [part, build.integers(self.positions, inner)])
            for part in self._windows(build, padded, 1)
        ]
        count = math.prod(kernel)
        # Operand or product has to be brought into the order of a weight: what is smaller is.
        if self.positions < outer:
            columns = _concatenated(build, rows, 1)
            columns = build.make("Reshape", [columns, build.integers(self.positions, count, inner)])
            columns = build.make("Transpose", [columns], perm=[0, 2, 1])
            columns = build.make(
                "Reshape", [columns, build.integers(self.positions, count * inner)]
            )
            product = build.make("MatMul", [left, columns])
            build.reshape_last(product, (outer, count * inner), self.shape, result)
        elif self.positions <= _SMALL_BATCH:
            product = build.make("MatMul", [left, _concatenated(build, rows, 1)])
            self._offsets_last(build, product, result)
        else:
            products = [build.make("MatMul", [left, part]) for part in rows]
            self._together(build, products, result)

    def _per_picture(self, build: Nodes, result: str) -> None:
        """One product per offset and picture: best for large pictures, which are not transposed."""
        outer, inner = self.shape[:2]
        plane = math.prod(self.plane)
        padded = self.under.arranged(build, [1, 0, *self._spatial], self.layer)
        over = self.over.arranged(build, [1, 0, *self._spatial])
        left = build.make("Reshape", [over, build.integers(self.batch, outer, plane)])
        products = []
        for part in self._windows(build, padded, 2):
            right = build.make("Reshape", [part, build.integers(self.batch, inner, plane)])
            right = build.make("Transpose", [right], perm=[0, 2, 1])
            product = build.make("MatMul", [left, right])
            products.append(build.make("ReduceSum", [product, build.integers(0)]))
        self._together(build, products, result)

    def _depthwise(self, build: Nodes, result: str) -> None:
        """One elementwise product and sum per offset, with channels last."""
        channels = self.shape[0]
        padded = self.under.arranged(build, [1, *self._spatial, 0], self.layer)
        factor = self.over.arranged(build, [1, *self._spatial, 0])
        axes = range(len(self.plane) + 1)
        sums = []
        for part in self._windows(build, padded, 1):
            product = build.make("Mul", [part, factor])
            total = build.make("ReduceSum", [product, build.integers(*axes)])
            sums.append(build.make("Reshape", [total, build.integers(channels, 1)]))
        stacked = _concatenated(build, sums, 1)
        build.reshape_last(stacked, (channels, len(sums)), self.shape, result)

    def _depthwise_in_blocks(self, build: BlockedNodes, result: str) -> None:
        """One convolution, with the gradient of every channel of every picture as the window of a group."""
        channels, groups = self.shape[0], self.batch * self.shape[0]
        ones = (1,) * (SPATIAL_AXES - len(self.plane))
        layer = with_axes(self.layer, len(ones))
        plane, padded, kernel = (
            (*ones, *sizes) for sizes in (self.plane, self.padded, self.shape[2:])
        )
        around = zip(padded, layer.before, layer.behind, strict=True)
        inner = [size - before - behind for size, before, behind in around]
        data, window = (
            build.blocked(build.make("Reshape", [value, build.integers(1, groups, *sizes)]))
            for value, sizes in (
                (operand.arranged(build, [1, 0, *self._spatial]), sizes)
                for operand, sizes in ((self.under, inner), (self.over, plane))
            )
        )
        window = build.make("Reshape", [window, build.integers(groups, 1, *plane)])
        sums = build.convolution(
            [data, window],
            groups,
            group=groups,
            kernel_shape=plane,
            pads=[*layer.before, *layer.behind],
            strides=layer.dilations,
            dilations=layer.strides,
        )
        # Where no window reaches the end of the data, there is more than the layer's window has.
        reach = zip(padded, plane, layer.strides, layer.dilations, strict=True)
        found = [(size - (n - 1) * step - 1) // hole + 1 for size, n, step, hole in reach]
        sums = build.make("Reshape", [sums, build.integers(self.batch, channels, *found)])
        if tuple(found) != kernel:
            bounds = [build.integers(0, 0), build.integers(*kernel)]
            sums = build.make("Slice", [sums, *bounds, build.integers(2, 3)])
        total = build.make("ReduceSum", [sums, build.integers(0)], keepdims=0)
        build.reshape_last(total, (channels, *kernel), self.shape, result)

    def _left(self, build: Nodes, outer: int) -> str:
        over = self.over.arranged(build, range(len(self.shape)))
        return build.make("Reshape", [over, build.integers(outer, self.positions)])

    def _together(self, build: Nodes, products: Sequence[str], result: str) -> None:
        """Lay products ``[outer, inner]``, one per kernel offset, side by side as a weight."""
        if len(products) == 1:
            build.reshape_last(products[0], self.shape[:2], self.shape, result)
            return
        last = build.integers(*self.shape[:2], 1)
        offsets_apart = [build.make("Reshape", [product, last]) for product in products]
        stacked = build.make("Concat", offsets_apart, axis=2)
        build.reshape_last(stacked, (*self.shape[:2], len(products)), self.shape, result)

    def _offsets_last(self, build: Nodes, product: str, result: str) -> None:
        """Bring ``[outer, offsets * inner]`` into the order of a weight."""
        outer, inner, *kernel = self.shape
        split = build.make("Reshape", [product, build.integers(outer, math.prod(kernel), inner)])
        turned = build.make("Transpose", [split], perm=[0, 2, 1])
        build.reshape_last(turned, (outer, inner, math.prod(kernel)), self.shape, result)

    def _windows(self, build: Nodes, padded: str, first: int) -> Iterator[str]:
        """Yield, per kernel offset, the elements that lie under it at every window position.

        Args:
            build: Where nodes go.
            padded: The tensor under the window.
            first: Its first spatial axis.
        """
        # The window has a position for each element, so that its kernel has one element only.
        if self.padded == self.plane:
            yield padded
            return
        axes = build.integers(*range(first, first + len(self.plane)))
        steps = build.integers(*self.layer.strides)
        for start in offsets(self.shape[2:], self.layer.dilations):
            # Right behind the last element that is taken: a whole step further may be outside.
            ends = [
                begin + (count - 1) * step + 1
                for begin, count, step in zip(start, self.plane, self.layer.strides, strict=True)
            ]
            bounds = [build.integers(*start), build.integers(*ends)]
            yield build.make("Slice", [padded, *bounds, axes, steps])


def _concatenated(build: Nodes, values: Sequence[str], axis: int) -> str:
    return build.make("Concat", values, axis=axis) if len(values) > 1 else values[0]
