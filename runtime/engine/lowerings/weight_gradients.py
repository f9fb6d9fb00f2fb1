"""Gradients of convolutions' weights as matrix products.

The gradient of a weight is written as a convolution of the layer's input by the gradient of its output,
with batch and channels exchanged. Its window is as large as a whole picture and it has a result per
element of the layer's kernel: for onnxruntime, which lays all windows out in memory, the worst case.

With ``a`` the tensor under the layer's window and ``b`` the one that has an element per position::

    gradient[cb, ca, k] = sum over n, l of a[n, ca, l * stride + k * dilation - padding] * b[n, cb, l]

is one matrix product per kernel offset ``k``. Products of channels-last slices are 1.5 to 3 times as
fast as the convolution where there are at least some channels: slices copy whole rows of channels, and
nothing is padded to a kernel as large as the picture.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import onnx

from samba_onnx.runtime.engine.lowerings.blocked_channels import import_blocks
from samba_onnx.runtime.engine.lowerings.graph_view import (
    GraphView,
    is_operator,
    permutation_of,
    remove_unread,
)
from samba_onnx.runtime.engine.lowerings.nodes import Shape, default_version
from samba_onnx.runtime.engine.lowerings.weight_gradient_products import (
    FEW_CHANNELS,
    HALVES,
    Operand,
    WeightGradient,
)
from samba_onnx.runtime.engine.lowerings.windows import Geometry, geometry_of

_FEW_OFFSETS = 9
"""Found by timing onnxruntime's kernels on layers of LeNet, ResNet and U-Net."""
_OLDEST_VERSION = 13


def multiply_weight_gradients(model: onnx.ModelProto, block: int = 0) -> dict[str, str]:
    """Replace convolutions that compute gradients of weights by matrix products.

    1. It is a Conv of the default domain without bias whose only reader is a Transpose that
       exchanges its first two axes.
    2. Both operands come from Transposes. A convolution of the model itself is left alone.
    3. All shapes are declared, padding is explicit, numbers are float32, float16 or bfloat16; the
       latter two are summed up in float32 and rounded once.
    4. It has one group, or as many as channels on both sides, and is none of those for which
       onnxruntime's own kernel was found to be faster: many offsets of few channels.

    Args:
        model: Is changed in place; subgraphs are not.
        block: Channels of a block in the engine's blocked layout; 0 where it has no kernels for it.

    Returns:
        Why convolutions stay what they are, by the name of their result.
    """
    graph = model.graph
    reasons: dict[str, str] = {}
    if all(node.op_type != "Conv" for node in graph.node):
        return reasons
    if default_version(model) < _OLDEST_VERSION:
        return {n.output[0]: "an old operator set" for n in graph.node if is_operator(n, "Conv")}
    view = GraphView(graph)
    nodes: list[onnx.NodeProto] = []
    shapes: dict[str, Shape] = {}
    replaced: set[str] = set()
    operands: set[str] = set()
    for node in graph.node:
        match = _match(node, view) if is_operator(node, "Conv") else None
        if isinstance(match, WeightGradient):
            replacement = match.replacement(block)
            nodes += replacement.nodes
            shapes |= replacement.shapes
            replaced.update(match.replaced)
            operands.update(node.input)
        # The Transpose behind a convolution that was replaced goes with it.
        elif replaced.isdisjoint(node.output):
            nodes.append(node)
        if isinstance(match, str):
            reasons[node.output[0]] = match
    del graph.node[:]
    graph.node.extend(nodes)
    _state_shapes(graph, shapes)
    remove_unread(graph, operands)
    import_blocks(model)
    return reasons


def _state_shapes(graph: onnx.GraphProto, shapes: Mapping[str, Shape]) -> None:
    graph.value_info.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in shapes.items()
    )


def _match(node: onnx.NodeProto, view: GraphView) -> WeightGradient | str:
    """Return the gradient that a convolution computes; a reason if it shall stay."""
    if len(node.input) > 2 and node.input[2]:
        return "it has a bias"
    # Case 1: only the gradient of a weight has batch and channels exchanged afterwards.
    result = _exchanged(node.output[0], view)
    if result is None:
        return "nothing exchanges batch and channels of its result"
    # Case 3.
    names = (*node.input[:2], result)
    data, window, shape = (view.shapes.get(name) for name in names)
    if data is None or window is None or shape is None:
        return "a shape is not declared"
    dtype = view.types[node.input[0]]
    if dtype not in HALVES | {onnx.TensorProto.FLOAT}:
        return "its type is none of float32, float16 and bfloat16"
    turned = geometry_of(node, len(data) - 2)
    if isinstance(turned, str):
        return turned
    # Case 4.
    reason = _better_kernel(turned.groups, data[0], window[0], shape)
    if reason:
        return reason
    stacked = _stacked(node.input[0], view, (turned.groups, window[1], *data[2:]))
    # Case 2: the model's own convolutions read their operands as they are.
    under, over = (_operand(name, view, dtype) for name in (stacked, node.input[1]))
    if under is None or over is None:
        return "its operands are not exchanged"
    # The gradient slides the layer's output over its input: what was a stride is a dilation.
    layer = Geometry(turned.dilations, turned.strides, turned.before, turned.behind, turned.groups)
    under = _uncut(under, view, layer)
    whole = view.shapes.get(under.name)
    if whole is None:
        return "a shape is not declared"
    spatial = [whole[axis] for axis in under.order[2:]]
    pads = zip(layer.before, spatial, layer.behind, strict=True)
    return WeightGradient(
        under=under,
        over=over,
        shape=shape,
        batch=window[1],
        plane=window[2:],
        padded=tuple(sum(sizes) for sizes in pads),
        layer=layer,
        result=result,
        dtype=dtype,
        replaced=frozenset({node.output[0], result}),
    )


def _exchanged(name: str, view: GraphView) -> str | None:
    """Return the result of the Transpose that exchanges the first two axes of a value.

    Args:
        name: The value.
        view: The graph.

    Returns:
        The result; None if the value's only reader is another one, or if there are several.
    """
    transpose = view.only_reader(name, "Transpose")
    if transpose is None:
        return None
    order = permutation_of(transpose, len(view.shapes.get(name, ())))
    return transpose.output[0] if order == [1, 0, *range(2, len(order))] else None


def _better_kernel(groups: int, inner: int, outer: int, shape: Shape) -> str:
    """Return why onnxruntime's own kernel is better for a gradient; nothing if it is not.

    Args:
        groups: Number of groups of the convolution.
        inner: Channels of a group of what lies under the window.
        outer: All channels of what has an element per position.
        shape: Shape of the gradient.
    """
    if groups > 1:
        depthwise = inner == 1 and outer == groups
        return "" if depthwise else "it has groups of several channels"
    if inner < FEW_CHANNELS and math.prod(shape[2:]) > _FEW_OFFSETS:
        return "it has many offsets of few channels, for which a convolution is faster"
    return ""


def _stacked(name: str, view: GraphView, shape: Shape) -> str:
    """Return what a Reshape stacked the channels of into one batch.

    Args:
        name: The value; it is returned itself if it was made in another way.
        view: The graph.
        shape: Before: groups, batch, spatial axes.
    """
    reshape = view.maker(name, "Reshape")
    if reshape is None or view.shapes.get(reshape.input[0]) != shape:
        return name
    source: str = reshape.input[0]
    return source


def _operand(name: str, view: GraphView, dtype: int) -> Operand | None:
    """Return an operand without what transposes it; None if nothing does."""
    transpose = view.maker(name, "Transpose")
    if transpose is None:
        return None
    order = permutation_of(transpose, len(view.shapes.get(name, ())))
    return Operand(transpose.input[0], order, dtype in HALVES)


def _uncut(operand: Operand, view: GraphView, layer: Geometry) -> Operand:
    """Return what lies under the window without what cuts off the part that no window reaches.

    Args:
        operand: Maybe the result of a Slice that takes the front along spatial axes.
        view: The graph.
        layer: How the window moves; a cut axis must not be padded behind, where the rest lies.
    """
    cut = view.maker(operand.name, "Slice")
    whole = view.shapes.get(cut.input[0]) if cut is not None else None
    part = view.shapes.get(operand.name)
    if cut is None or whole is None or part is None or not _takes_front(cut, view):
        return operand
    padded = [0, 0, *layer.behind]
    for axis, pad in zip(operand.order, padded, strict=True):
        if whole[axis] != part[axis] and (pad or axis in operand.order[:2]):
            return operand
    return replace(operand, name=cut.input[0])


def _takes_front(cut: onnx.NodeProto, view: GraphView) -> bool:
    """Return whether a Slice is known to begin at the first element and to skip none."""
    starts = view.integers(cut.input[1])
    steps = view.integers(cut.input[4]) if len(cut.input) > 4 and cut.input[4] else ()
    if starts is None or steps is None:
        return False
    return not any(starts) and all(step == 1 for step in steps)
