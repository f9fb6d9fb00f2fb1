"""Shapes that contradict each other, which onnx's inference lets pass and no engine can compute.

Every rule states what onnxruntime refuses when it runs the node; what it computes all the same, as a
pooling whose strides hide that its window is too large, is no contradiction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import onnx_ir as ir

from samba_onnx.passes.rewrites.rewriting import integer_attribute, integers, small_array

Sizes: TypeAlias = tuple[int | None, ...]
"""Dimensions of a value; None for one that is not known."""


@dataclass(frozen=True)
class OperandShapes:
    """A node with what inference makes of its shapes."""

    node: ir.Node
    inputs: tuple[Sizes | None, ...]
    """Shapes of all inputs; None for one that is left out or of unknown rank."""
    output: Sizes | None
    """Shape of the first output."""

    def shape(self, index: int) -> Sizes | None:
        """Return the shape of an input; None where it is not known or not given."""
        return self.inputs[index] if index < len(self.inputs) else None

    def size(self, index: int, axis: int) -> int | None:
        """Return one size of an input; None where it is not known."""
        shape = self.shape(index)
        return None if shape is None or not -len(shape) <= axis < len(shape) else shape[axis]


Rule: TypeAlias = Callable[[OperandShapes], str | None]
"""Says what is wrong with a node: a sentence's end after "cannot be computed:", or None."""


def contradiction(shapes: OperandShapes) -> str | None:
    """Return what makes a node impossible, whatever values it is given.

    Args:
        shapes: A node of the default domain.

    Returns:
        The reason; None where none is known.
    """
    rule = RULES.get(shapes.node.op_type)
    return None if rule is None else rule(shapes)


def _reshape(shapes: OperandShapes) -> str | None:
    before, after = shapes.shape(0), shapes.output
    if before is None or after is None:
        return None
    counts = [_product(before), _product(after)]
    # A dynamic size may make the numbers of elements agree.
    if None in counts or counts[0] == counts[1]:
        return None
    return f"{_text(before)} has {counts[0]} elements, {_text(after)} has {counts[1]}"


def _convolution(shapes: OperandShapes, weight: int, bias: int | None) -> str | None:
    """Look at Conv or a quantised form of it, whose weight and bias are at these places."""
    kernel = shapes.shape(weight)
    if kernel is None or len(kernel) < 3:
        return None
    group = integer_attribute(shapes.node, "group", 1)
    channels, each, filters = shapes.size(0, 1), kernel[1], kernel[0]
    # ONNX's weight has the channels of one group.
    if channels is not None and each is not None and channels != each * group:
        return (
            f"its input has {channels} channels, its weight is for {each * group} ({each} in "
            f"each of {group} groups)"
        )
    if filters is not None and group > 0 and filters % group:
        return f"its weight has {filters} filters, which {group} groups cannot share"
    # One reason is enough, though a fault may make several checks fail.
    offset = None if bias is None else _length(shapes, bias, filters, "bias", "filters")
    return offset or _kernel(shapes, kernel[2:]) or _window(shapes, kernel[2:])


def _transposed_convolution(shapes: OperandShapes) -> str | None:
    kernel = shapes.shape(1)
    if kernel is None or len(kernel) < 3:
        return None
    group = integer_attribute(shapes.node, "group", 1)
    # The weight of a transposed convolution has input channels first, and output channels of one
    # group behind.
    channels, filters = shapes.size(0, 1), kernel[0]
    if channels is not None and filters is not None and channels != filters:
        return f"its input has {channels} channels, its weight is for {filters}"
    made = None if kernel[1] is None else kernel[1] * group
    return _length(shapes, 2, made, "bias", "filters") or _kernel(shapes, kernel[2:])


def _kernel(shapes: OperandShapes, sizes: Sizes) -> str | None:
    """Compare ``kernel_shape`` with the weight."""
    stated = _integers(shapes.node, "kernel_shape")
    # Without the attribute the weight's own sizes hold.
    if not stated or all(a == b or b is None for a, b in zip(stated, sizes, strict=False)):
        return None
    return f"its kernel_shape is {_text(tuple(stated))}, its weight's is {_text(sizes)}"


def _window(shapes: OperandShapes, kernel: Sizes) -> str | None:
    """Compare the kernel of a convolution with the padded input."""
    for padded, reach, _ in _windows(shapes, kernel):
        if padded < reach:
            return f"its kernel reaches over {reach} elements of an input of {padded}, padding included"
    return None


def _pooling(shapes: OperandShapes) -> str | None:
    kernel = tuple(_integers(shapes.node, "kernel_shape"))
    for padded, reach, stride in _windows(shapes, kernel):
        # onnxruntime computes an output size of 0 or more; a negative one it refuses.
        if padded < reach and int((padded - reach) / stride) + 1 < 0:
            return f"its window reaches over {reach} elements of an input of {padded}, padding included"
    return None


def _windows(shapes: OperandShapes, kernel: Sizes) -> list[tuple[int, int, int]]:
    """Return padded size, reach and stride along every axis where they are known."""
    node, rank = shapes.node, len(kernel)
    data, mode = shapes.shape(0), node.attributes.get("auto_pad")
    # An empty input gives an empty result, whatever the window is.
    if data is None or len(data) != rank + 2 or 0 in data:
        return []
    # Padding that depends on the size is always enough.
    if mode is not None and mode.as_string() not in ("NOTSET", "VALID"):
        return []
    valid = mode is not None and mode.as_string() == "VALID"
    # VALID pads nothing, and attributes beside it are ignored.
    pads = (not valid and _integers(node, "pads")) or [0] * (2 * rank)
    strides = _integers(node, "strides") or [1] * rank
    dilations = _integers(node, "dilations") or [1] * rank
    if len(pads) != 2 * rank or len(strides) != rank or len(dilations) != rank:
        return []
    return [
        (size + pads[axis] + pads[axis + rank], (width - 1) * dilations[axis] + 1, strides[axis])
        for axis, (size, width) in enumerate(zip(data[2:], kernel, strict=True))
        if size is not None and width is not None and strides[axis] > 0
    ]


def _gemm(shapes: OperandShapes) -> str | None:
    left, right, bias = shapes.shape(0), shapes.shape(1), shapes.shape(2)
    if left is None or right is None or (len(left), len(right)) != (2, 2):
        return None
    flips = [integer_attribute(shapes.node, name, 0) for name in ("transA", "transB")]
    (rows, inner), (other, columns) = (
        shape[::-1] if flip else shape for shape, flip in zip((left, right), flips, strict=True)
    )
    if inner is not None and other is not None and inner != other:
        return f"it multiplies {_text((rows, inner))} by {_text((other, columns))}"
    return None if bias is None else _broadcast(bias, (rows, columns), "its third operand")


def _normalization(shapes: OperandShapes, places: Sequence[int]) -> str | None:
    """Compare operands at these places, which have one element per channel, with the input."""
    channels = shapes.size(0, 1)
    wrong = (_length(shapes, i, channels, f"operand {i}", "channels") for i in places)
    return next((text for text in wrong if text), None)


def _group_normalization(shapes: OperandShapes) -> str | None:
    """Compare scale and bias with the channels, or before version 21 with the groups."""
    node, channels = shapes.node, shapes.size(0, 1)
    groups = integer_attribute(node, "num_groups", 1)
    if channels is not None and groups > 0 and channels % groups:
        return f"its input has {channels} channels, which {groups} groups cannot share"
    # A node outside of a graph, as in a test, is of no version, which means the older meaning.
    version = 0 if node.graph is None else node.graph.opset_imports.get("", 0)
    each, what = (groups, "groups") if (node.version or version) < 21 else (channels, "channels")
    wrong = (_length(shapes, i, each, f"operand {i}", what) for i in (1, 2))
    return next((text for text in wrong if text), None)


def _layer_normalization(shapes: OperandShapes) -> str | None:
    data = shapes.shape(0)
    if data is None:
        return None
    operands = [(i, shapes.shape(i)) for i in (1, 2)]
    wrong = (_broadcast(s, data, f"operand {i}") for i, s in operands if s is not None)
    return next((text for text in wrong if text), None)


def _prelu(shapes: OperandShapes) -> str | None:
    data, slope = shapes.shape(0), shapes.shape(1)
    return None if data is None or slope is None else _broadcast(slope, data, "its slope")


def _recurrent(shapes: OperandShapes, gates: int) -> str | None:
    """Compare the weights of an operator with so many gates with its input and hidden size."""
    # Exporters may leave hidden_size out: the recurrent weight says it, too.
    hidden = integer_attribute(shapes.node, "hidden_size", 0) or shapes.size(2, 2)
    width = shapes.size(0, 2)
    if not hidden:
        return None
    for place, name, wanted in (
        # The first axis has an entry for each direction, whose number is not compared.
        (1, "W", (None, gates * hidden, width)),
        (2, "R", (None, gates * hidden, hidden)),
        (3, "B", (None, 2 * gates * hidden)),
    ):
        actual = shapes.shape(place)
        if actual is not None and not _agree(actual, wanted):
            return f"its operand {name} is {_text(actual)}, expected {_text(wanted)}"
    return None


def _blocks(shapes: OperandShapes) -> str | None:
    data, block = shapes.shape(0), integer_attribute(shapes.node, "blocksize", 1)
    if data is None or len(data) != 4 or block < 1:
        return None
    deep = shapes.node.op_type == "DepthToSpace"
    sizes, unit = ((data[1],), block * block) if deep else (data[2:], block)
    wrong = next((size for size in sizes if size is not None and size % unit), None)
    return None if wrong is None else f"{wrong} of {_text(data)} is no multiple of {unit}"


def _gather(shapes: OperandShapes) -> str | None:
    size = shapes.size(0, integer_attribute(shapes.node, "axis", 0))
    # Only constant indices are known before a run.
    indices = integers(shapes.node.inputs[1]) if len(shapes.node.inputs) > 1 else None
    if size is None or not indices:
        return None
    # Negative indices count from the end.
    wrong = next((index for index in indices if not -size <= index < size), None)
    return None if wrong is None else f"index {wrong} is outside of an axis of {size}"


def _transpose(shapes: OperandShapes) -> str | None:
    data, order = shapes.shape(0), _integers(shapes.node, "perm")
    if data is None or not order or sorted(order) == list(range(len(data))):
        return None
    return f"{_text(tuple(order))} is no order of the {len(data)} axes of its input"


def _scatter(shapes: OperandShapes) -> str | None:
    data, indices = shapes.shape(0), shapes.shape(1)
    if data is None or not indices or indices[-1] is None or indices[-1] <= len(data):
        return None
    return f"its indices have {indices[-1]} coordinates for {len(data)} axes"


def _resize(shapes: OperandShapes) -> str | None:
    """Look at the scales of Resize and Upsample, from which sizes are computed."""
    # Version 10 of Resize has scales as the second operand, later ones as the third behind a
    # region.
    place = 1 if shapes.node.op_type == "Upsample" or len(shapes.node.inputs) == 2 else 2
    operand = shapes.node.inputs[place] if place < len(shapes.node.inputs) else None
    scales = small_array(operand)
    if "scales" in shapes.node.attributes:
        scales = np.array(shapes.node.attributes["scales"].as_floats(), np.float32)
    if scales is None or scales.dtype.kind != "f":
        return None
    wrong = [float(scale) for scale in scales.ravel() if not 0 < float(scale) < math.inf]
    return f"its scales have {wrong[0]}, expected numbers above 0" if wrong else None


def _einsum(shapes: OperandShapes) -> str | None:
    attribute = shapes.node.attributes.get("equation")
    equation = "" if attribute is None else attribute.as_string().replace(" ", "")
    # An ellipsis stands for axes whose labels nobody can compare.
    if "." in equation:
        return None
    sizes: dict[str, int] = {}
    for letters, shape in zip(equation.partition("->")[0].split(","), shapes.inputs, strict=False):
        if shape is None or len(shape) != len(letters):
            continue
        for letter, size in zip(letters, shape, strict=True):
            # A size of 1 spreads over others.
            if size in (None, 1):
                continue
            assert size is not None
            if sizes.setdefault(letter, size) != size:
                return f"{letter!r} of {equation} is {sizes[letter]} and {size}"
    return None


def _length(
    shapes: OperandShapes, place: int, wanted: int | None, name: str, of_what: str
) -> str | None:
    """Compare the length of a vector with what it is for."""
    actual = shapes.shape(place)
    if actual is None or wanted is None or len(actual) != 1 or actual[0] in (None, wanted):
        return None
    return f"its {name} has {actual[0]} elements for {wanted} {of_what}"


def _broadcast(small: Sizes, large: Sizes, name: str) -> str | None:
    """Say why one shape does not spread over another from the last axis on."""
    pairs = zip(reversed(small), reversed(large), strict=False)
    fits = all(a == b or a in (1, None) or b is None for a, b in pairs)
    # Axes that the larger one lacks must be of size 1.
    extra = small[: max(len(small) - len(large), 0)]
    if fits and all(size in (1, None) for size in extra):
        return None
    return f"{name}, {_text(small)}, does not spread over {_text(large)}"


def _agree(actual: Sizes, wanted: Sizes) -> bool:
    return len(actual) == len(wanted) and all(
        a == b or a is None or b is None for a, b in zip(actual, wanted, strict=True)
    )


def _product(sizes: Sizes) -> int | None:
    known = [size for size in sizes if size is not None]
    return math.prod(known) if len(known) == len(sizes) else None


def _integers(node: ir.Node, name: str) -> Sequence[int]:
    attribute = node.attributes.get(name)
    return [] if attribute is None or attribute.is_ref() else list(attribute.as_ints())


def _text(sizes: Sequence[int | None]) -> str:
    return f"[{', '.join('?' if size is None else str(size) for size in sizes)}]"


RULES: Final[Mapping[str, Rule]] = {
    "AveragePool": _pooling,
    "BatchNormalization": partial(_normalization, places=(1, 2, 3, 4)),
    "Conv": partial(_convolution, weight=1, bias=2),
    "ConvInteger": partial(_convolution, weight=1, bias=None),
    "ConvTranspose": _transposed_convolution,
    "DepthToSpace": _blocks,
    "Einsum": _einsum,
    "GRU": partial(_recurrent, gates=3),
    "Gather": _gather,
    "Gemm": _gemm,
    "GroupNormalization": _group_normalization,
    "InstanceNormalization": partial(_normalization, places=(1, 2)),
    "LSTM": partial(_recurrent, gates=4),
    "LayerNormalization": _layer_normalization,
    "LpPool": _pooling,
    "MaxPool": _pooling,
    "PRelu": _prelu,
    "QLinearConv": partial(_convolution, weight=3, bias=8),
    "RNN": partial(_recurrent, gates=1),
    "Reshape": _reshape,
    "Resize": _resize,
    "ScatterND": _scatter,
    "SpaceToDepth": _blocks,
    "Transpose": _transpose,
    "Upsample": _resize,
}
"""The rules by operator."""
