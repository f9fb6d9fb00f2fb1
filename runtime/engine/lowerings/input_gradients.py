"""Transposed convolutions of few positions as one matrix product.

The gradient of a convolution's input is a ConvTranspose. onnxruntime multiplies picture by picture, by
matrices of as few columns as a picture has elements, so that a large weight is read once per picture.
One product for all kernel offsets and pictures, whose columns are put in place and added, reads it once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import onnx

from samba_onnx.runtime.engine.lowerings.graph_view import GraphView, is_operator
from samba_onnx.runtime.engine.lowerings.nodes import Nodes, Shape, default_version
from samba_onnx.runtime.engine.lowerings.windows import Geometry, geometry_of, offsets

# Found by timing onnxruntime's kernels on layers of LeNet, ResNet and U-Net.
_SMALL_PLANE = 64
_MANY_CHANNELS = 32
_OLDEST_VERSION = 18

_FLOAT = onnx.TensorProto.FLOAT
_HALVES = frozenset({onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16})


def multiply_input_gradients(model: onnx.ModelProto) -> dict[str, str]:
    """Replace transposed convolutions of small pictures with many channels by matrix products.

    1. It is a ConvTranspose of the default domain without bias and with one group, whose padding
       is explicit and whose shapes are all declared.
    2. Its pictures have few positions, and both sides many channels.
    3. Numbers are float32, float16 or bfloat16; the latter two are summed up in float32 and
       rounded once.

    Args:
        model: Is changed in place; subgraphs are not.

    Returns:
        Why transposed convolutions stay what they are, by the name of their result.
    """
    graph = model.graph
    reasons: dict[str, str] = {}
    if all(node.op_type != "ConvTranspose" for node in graph.node):
        return reasons
    old = default_version(model) < _OLDEST_VERSION
    view = GraphView(graph)
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        if not is_operator(node, "ConvTranspose"):
            nodes.append(node)
            continue
        match = "an old operator set" if old else _match(node, view)
        if isinstance(match, str):
            reasons[node.output[0]] = match
            nodes.append(node)
        else:
            nodes += match.nodes()
    del graph.node[:]
    graph.node.extend(nodes)
    return reasons


@dataclass(frozen=True)
class _InputGradient:
    """A transposed convolution."""

    data: str
    weight: str
    batch: int
    plane: Shape
    """Sizes of the data per spatial axis."""
    outer: int
    """Channels of the data."""
    inner: int
    """Channels of the result."""
    kernel: Shape
    spread: Shape
    """Sizes of the result per spatial axis."""
    geometry: Geometry
    result: str
    dtype: int

    def nodes(self) -> list[onnx.NodeProto]:
        """Return what computes the same."""
        build = Nodes(self.result)
        data, weight = self.data, self.weight
        narrow = self.dtype in _HALVES
        if narrow:
            # Case 3: partial sums of 16 bits would be rounded at every addition, not once.
            data, weight = (build.make("Cast", [name], to=_FLOAT) for name in (data, weight))
        rank = len(self.plane)
        last = build.make("Transpose", [data], perm=[0, *range(2, rank + 2), 1])
        rows = build.make(
            "Reshape", [last, build.integers(self.batch * math.prod(self.plane), self.outer)]
        )
        parts = self._products_by_offset(build, rows, weight)
        starts = offsets(self.kernel, self.geometry.dilations)
        placed = [
            self._placed(build, part, start) for part, start in zip(parts, starts, strict=True)
        ]
        total = build.make("Sum", placed) if len(placed) > 1 else placed[0]
        order = [0, rank + 1, *range(1, rank + 1)]
        if narrow:
            total = build.make("Transpose", [total], perm=order)
            build.make("Cast", [total], result=self.result, to=self.dtype)
        else:
            build.make("Transpose", [total], perm=order, result=self.result)
        return build.nodes

    def _products_by_offset(self, build: Nodes, rows: str, weight: str) -> Sequence[str]:
        """Multiply rows of outer channels by the weight; return rows of inner channels per offset.

        Either the weight or the product is put in order so that offsets are apart: what is smaller.
        """
        count = math.prod(self.kernel)
        positions = self.batch * math.prod(self.plane)
        outer, inner = self.outer, self.inner
        if positions < outer:
            flat = build.make("Reshape", [weight, build.integers(outer, inner * count)])
            product = build.make("MatMul", [rows, flat])
            product = build.make("Reshape", [product, build.integers(positions, inner, count)])
            product = build.make("Transpose", [product], perm=[2, 0, 1])
            return build.split(product, [1] * count, 0)
        split = build.make("Reshape", [weight, build.integers(outer, inner, count)])
        by_offset = build.make("Transpose", [split], perm=[0, 2, 1])
        flat = build.make("Reshape", [by_offset, build.integers(outer, count * inner)])
        return build.split(build.make("MatMul", [rows, flat]), [inner] * count, 1)

    def _placed(self, build: Nodes, part: str, start: Sequence[int]) -> str:
        """Put what belongs to one kernel offset where it lies in the result, channels last."""
        shape = (self.batch, *self.plane, self.inner)
        value = build.make("Reshape", [part, build.integers(*shape)])
        value = self._interleaved(build, value)
        strides = self.geometry.strides
        before = [n - pad for n, pad in zip(start, self.geometry.before, strict=True)]
        taken = [size * step for size, step in zip(self.plane, strides, strict=True)]
        behind = [n - b - t for n, b, t in zip(self.spread, before, taken, strict=True)]
        # Either may be negative, where the layer's padding lay: Pad then cuts off.
        if not any(before) and not any(behind):
            return value
        return build.make("Pad", [value, build.integers(0, *before, 0, 0, *behind, 0)])

    def _interleaved(self, build: Nodes, rows: str) -> str:
        """Put ``stride - 1`` zeros behind each element of each spatial axis."""
        strides = self.geometry.strides
        if all(step == 1 for step in strides):
            return rows
        # No operator spreads elements apart. Each gets an axis of its own instead, which is padded
        # to the stride and joined with the next one.
        spaced = [n for size in self.plane for n in (size, 1)]
        value = build.make("Reshape", [rows, build.integers(self.batch, *spaced, self.inner)])
        behind = [n for step in strides for n in (0, step - 1)]
        front = [0] * (len(behind) + 2)
        value = build.make("Pad", [value, build.integers(*front, 0, *behind, 0)])
        wide = [size * step for size, step in zip(self.plane, strides, strict=True)]
        return build.make("Reshape", [value, build.integers(self.batch, *wide, self.inner)])


def _match(node: onnx.NodeProto, view: GraphView) -> _InputGradient | str:
    """Return a transposed convolution that a product computes; a reason if it shall stay."""
    if len(node.input) > 2 and node.input[2]:
        return "it has a bias"
    data, weight = (view.shapes.get(name) for name in node.input[:2])
    result = view.shapes.get(node.output[0])
    if data is None or weight is None or result is None:
        return "a shape is not declared"
    dtype = view.types[node.input[0]]
    if dtype not in _HALVES | {_FLOAT}:
        return "its type is none of float32, float16 and bfloat16"
    geometry = geometry_of(node, len(data) - 2)
    if isinstance(geometry, str):
        return geometry
    if geometry.groups != 1:
        return "it has groups"
    # Case 2: a large picture has columns enough to make up for the weight that is read again,
    # and few channels leave a product with too little to do.
    if math.prod(data[2:]) > _SMALL_PLANE:
        return "its pictures are large"
    if min(*weight[:2]) < _MANY_CHANNELS:
        return "it has few channels"
    return _InputGradient(
        data=node.input[0],
        weight=node.input[1],
        batch=data[0],
        plane=data[2:],
        outer=weight[0],
        inner=weight[1],
        kernel=weight[2:],
        spread=result[2:],
        geometry=geometry,
        result=node.output[0],
        dtype=dtype,
    )
