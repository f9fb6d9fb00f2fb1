"""Convolutions with few positions as one matrix product for the whole batch.

onnxruntime multiplies picture by picture. In the last layers of a network on small pictures a picture
has some positions only, so that the weight, which is large there, is read once per picture for hardly
any work. Windows as columns of one matrix read it once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import onnx

from samba_onnx.runtime.engine.lowerings.graph_view import is_operator
from samba_onnx.runtime.engine.lowerings.nodes import Nodes, Shape, declared_shapes, default_version
from samba_onnx.runtime.engine.lowerings.windows import Geometry, geometry_of, offsets

# Found by timing onnxruntime on the layers of ResNet-18 and ResNet-50.
_FEW_POSITIONS = 4
_SOME_PICTURES = 4
_LARGE_WEIGHT = 2**16
_OLDEST_VERSION = 13


def multiply_small_convolutions(model: onnx.ModelProto) -> None:
    """Replace convolutions with few output positions and large weights by matrix products.

    It must be one of the default domain without groups, whose shapes are all declared and whose
    padding is explicit.

    Args:
        model: Is changed in place; subgraphs are not.
    """
    graph = model.graph
    if default_version(model) < _OLDEST_VERSION or all(n.op_type != "Conv" for n in graph.node):
        return
    shapes = declared_shapes(graph)
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        convolution = _small(node, shapes)
        nodes.extend((node,) if convolution is None else convolution.nodes(node))
    del graph.node[:]
    graph.node.extend(nodes)


@dataclass(frozen=True)
class _Convolution:
    """Shapes of a convolution and how its window moves."""

    data: Shape
    weight: Shape
    result: Shape
    geometry: Geometry

    @property
    def is_small(self) -> bool:
        """Whether a product is faster."""
        return (
            math.prod(self.result[2:]) <= _FEW_POSITIONS
            and self.data[0] >= _SOME_PICTURES
            and math.prod(self.weight) >= _LARGE_WEIGHT
        )

    def nodes(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """Return what computes the same as the convolution."""
        batch, inner = self.data[:2]
        outer, positions = self.weight[0], math.prod(self.result[2:])
        depth = math.prod(self.weight[1:])
        build = Nodes(node.output[0])
        windows = [
            build.make("Reshape", [part, build.integers(batch, inner, 1, positions)])
            for part in self._windows(build, node.input[0])
        ]
        columns = build.make("Concat", windows, axis=2)
        columns = build.make("Transpose", [columns], perm=[1, 2, 0, 3])
        columns = build.make("Reshape", [columns, build.integers(depth, batch * positions)])
        rows = build.make("Reshape", [node.input[1], build.integers(outer, depth)])
        product = build.make("MatMul", [rows, columns])
        if len(node.input) > 2 and node.input[2]:
            bias = build.make("Reshape", [node.input[2], build.integers(outer, 1)])
            product = build.make("Add", [product, bias])
        product = build.make("Reshape", [product, build.integers(outer, batch, positions)])
        product = build.make("Transpose", [product], perm=[1, 0, 2])
        build.make("Reshape", [product, build.integers(*self.result)], result=node.output[0])
        return build.nodes

    def _windows(self, build: Nodes, data: str) -> list[str]:
        """Return, per element of the window, what lies under it at every position."""
        before, behind, strides = self.geometry.before, self.geometry.behind, self.geometry.strides
        if any(before) or any(behind):
            amounts = (0, 0, *before, 0, 0, *behind)
            data = build.make("Pad", [data, build.integers(*amounts)])
        axes = build.integers(*range(2, len(self.data)))
        steps = build.integers(*strides)
        windows = []
        for first in offsets(self.weight[2:], self.geometry.dilations):
            # Right behind the last element that is taken: a whole step further may be outside.
            last = [
                begin + (count - 1) * step + 1
                for begin, count, step in zip(first, self.result[2:], strides, strict=True)
            ]
            bounds = [build.integers(*first), build.integers(*last)]
            windows.append(build.make("Slice", [data, *bounds, axes, steps]))
        return windows


def _small(node: onnx.NodeProto, shapes: Mapping[str, Shape]) -> _Convolution | None:
    """Return a convolution that is better a matrix product."""
    if not is_operator(node, "Conv"):
        return None
    data, weight = (shapes.get(name) for name in node.input[:2])
    result = shapes.get(node.output[0])
    if data is None or weight is None or result is None:
        return None
    geometry = geometry_of(node, len(data) - 2)
    if isinstance(geometry, str) or geometry.groups != 1:
        return None
    convolution = _Convolution(data, weight, result, geometry)
    return convolution if convolution.is_small else None
