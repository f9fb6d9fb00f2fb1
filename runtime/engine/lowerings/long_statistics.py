"""Normalisations whose means and variances are of many numbers, written as sums.

onnxruntime adds the numbers of a plane one after the other, and takes the variance of a group for the difference
of two means, of which nothing is left where the mean is large: with a mean of 100 and a deviation of 1 a
GroupNormalization of a million numbers is off by 2e-2, and by 1e-6 in torch. As a mean, and a mean of the
squares of what is centred, each is computed by what :mod:`long_sums` makes of those.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx

from samba_onnx.runtime.engine.lowerings.graph_view import GraphView, rewrite_nodes
from samba_onnx.runtime.engine.lowerings.nodes import Nodes, Shape, default_version

_FLOAT: Final = onnx.TensorProto.FLOAT
_OLDEST: Final = 18
_EPSILON: Final = 1e-5

LONG: Final = {
    # Its variance is a difference of means, however few they are of.
    "GroupNormalization": 0,
    "InstanceNormalization": 1 << 12,
    "RMSNormalization": 1 << 12,
    "LayerNormalization": 1 << 16,
}
"""How many numbers may belong to one mean: onnxruntime's own kernels, which read memory once or twice less, are
about as near to float64 as torch's up to there. Not here is a BatchNormalization by the batch's statistics, whose
kernel adds planes first: it is off by 7e-7 for 4 million random numbers of a channel, and would take seven times
as long; of 100,000 equal ones it is off by 2e-4, and torch by 9e-7."""


def write_statistics(model: onnx.ModelProto) -> dict[str, str]:
    """Write normalisations by means of many numbers as sums, products and roots.

    1. It is a node of the default domain in the table, in the main graph or in a subgraph.
    2. Shape and type of its operand are declared, and that is float32.
    3. Many numbers belong to one mean.

    Args:
        model: Is changed in place.

    Returns:
        Why nodes of the table's operators stay what they are, by the name of their first result.
    """
    # ReduceMean takes its axes as an operand from there on.
    return rewrite_nodes(model.graph, LONG, _write) if default_version(model) >= _OLDEST else {}


def _write(node: onnx.NodeProto, view: GraphView) -> Nodes | str:
    planes = _planes(node, view)
    return planes if isinstance(planes, str) else _Written(node, planes).nodes()


@dataclass(frozen=True)
class _Planes:
    """What a normalisation takes means of."""

    shape: Shape
    """Sizes of the operand."""
    view: Shape
    """The operand with each group of channels in an axis of its own."""
    axes: Shape
    """Axes of the view that belong to a mean."""
    channels: bool
    """Whether scale and shift are per channel, along the second axis; else they are of the last axes."""


def _attribute(node: onnx.NodeProto, name: str, default: float) -> float:
    for item in node.attribute:
        if item.name == name:
            return float(item.f if item.type == onnx.AttributeProto.FLOAT else item.i)
    return default


def _planes(node: onnx.NodeProto, view: GraphView) -> _Planes | str:
    """Return what a node takes means of; a reason if it shall stay."""
    shape = view.shapes.get(node.input[0])
    # Case 2.
    if shape is None or view.types.get(node.input[0]) != _FLOAT:
        return "shape or type of its operand are not declared, or not float32"
    rank = len(shape)
    split: Shape
    if node.op_type in {"LayerNormalization", "RMSNormalization"}:
        axis = int(_attribute(node, "axis", -1)) % rank
        planes = _Planes(shape, shape, tuple(range(axis, rank)), channels=False)
    elif node.op_type == "GroupNormalization":
        groups = int(_attribute(node, "num_groups", 1))
        split = (shape[0], groups, math.prod(shape[1:]) // groups)
        planes = _Planes(shape, split, (2,), channels=True)
    else:
        split = (*shape[:2], math.prod(shape[2:]))
        planes = _Planes(shape, split, (2,), channels=True)
    # Case 3.
    count = math.prod(planes.view[axis] for axis in planes.axes)
    return planes if count > LONG[node.op_type] else "few numbers belong to a mean"


class _Written:
    """Writes one normalisation."""

    def __init__(self, node: onnx.NodeProto, planes: _Planes) -> None:
        self._node = node
        self._planes = planes
        self.build = Nodes(node.output[0])

    def nodes(self) -> Nodes:
        """Return all nodes."""
        build, node = self.build, self._node
        value = self._shaped(node.input[0], self._planes.shape, self._planes.view)
        mean = error = ""
        if node.op_type != "RMSNormalization":
            mean = self._mean(value)
            value = self._declared(build.make("Sub", [value, mean]), self._planes.view)
            # The mean was rounded: numbers that hardly differ have a deviation that is no larger.
            error = self._mean(value)
        square = self._mean(self._declared(build.make("Mul", [value, value]), self._planes.view))
        if error:
            square = build.make("Sub", [square, build.make("Mul", [error, error])])
            square = build.make("Max", [square, build.constant(np.float32(0))])
        epsilon = build.constant(np.float32(_attribute(node, "epsilon", _EPSILON)))
        root = build.make("Sqrt", [build.make("Add", [square, epsilon])])
        inverse = build.make("Reciprocal", [root])
        if self._planes.channels:
            self._by_channel(value, error, inverse)
        else:
            self._by_element(value, error, inverse)
        # LayerNormalization alone returns statistics.
        if len(node.output) > 1 and node.output[1]:
            build.make("Add", [mean, error], result=node.output[1])
        if len(node.output) > 2 and node.output[2]:
            build.make("Reciprocal", [root], result=node.output[2])
        return build

    def _mean(self, value: str) -> str:
        axes = self.build.integers(*self._planes.axes)
        return self.build.make("ReduceMean", [value, axes], keepdims=1)

    def _declared(self, name: str, shape: Shape) -> str:
        self.build.shapes[name] = shape
        return name

    def _shaped(self, value: str, before: Shape, after: Shape) -> str:
        if before == after:
            return value
        sizes = self.build.integers(*after)
        return self._declared(self.build.make("Reshape", [value, sizes]), after)

    def _by_element(self, value: str, error: str, inverse: str) -> None:
        """Multiply, and apply scale and shift of the last axes."""
        build = self.build
        if error:
            value = build.make("Sub", [value, error])
        value = build.make("Mul", [value, inverse])
        for operator, operand in zip(("Mul", "Add"), self._node.input[1:], strict=False):
            if operand:
                value = build.make(operator, [value, operand])
        build.nodes[-1].output[0] = build.nodes[-1].name = self._node.output[0]

    def _by_channel(self, value: str, error: str, inverse: str) -> None:
        """Multiply and add a number per plane, in one pass over memory."""
        build, shape = self.build, self._planes.shape
        batch, channels = shape[:2]
        groups = self._planes.view[1]

        def per_plane(name: str) -> str:
            """Return a number per group and sample as one per channel and sample."""
            column = build.make("Reshape", [name, build.integers(batch, groups, 1)])
            column = build.make("Expand", [column, build.integers(1, 1, channels // groups)])
            return build.make("Reshape", [column, build.integers(batch, channels)])

        factor = build.make("Mul", [per_plane(inverse), self._node.input[1]])
        lost = build.make("Mul", [per_plane(error), factor])
        shift = build.make("Sub", [self._node.input[2], lost])
        planes = build.integers(1, batch * channels, math.prod(shape[2:]))
        flat = build.integers(batch * channels)
        zeros = build.constant(np.zeros(batch * channels, np.float32))
        ones = build.constant(np.ones(batch * channels, np.float32))
        operands = [build.make("Reshape", [name, flat]) for name in (factor, shift)]
        value = build.make("Reshape", [value, planes])
        # By a mean of 0 and a variance of 1 it multiplies and adds.
        value = build.make("BatchNormalization", [value, *operands, zeros, ones], epsilon=0.0)
        build.make("Reshape", [value, build.integers(*shape)], result=self._node.output[0])
