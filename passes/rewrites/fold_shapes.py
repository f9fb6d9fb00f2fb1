"""Follow shape arithmetic element by element, also where some dimensions are dynamic."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from samba_onnx.passes.rewrites.interface import dimensions
from samba_onnx.passes.rewrites.refusals import ReasonedPass, Refusal
from samba_onnx.passes.rewrites.rewriting import (
    add_constant,
    constant,
    each_graph,
    folded_name,
    forward,
    integer_attribute,
    integers,
    static_shape,
)

Element = int | str | None
"""A known number, the name of a dynamic dimension, or unknown."""
Elements = tuple[Element, ...]

MOST_ELEMENTS = 64
"""Elements up to which a tensor is taken for shape arithmetic."""


class FoldShapesPass(ReasonedPass):
    """Compute what follows from static dimensions.

    1. Shape, Size and the integer arithmetic that follows (Gather, Slice, Concat, Squeeze,
       Unsqueeze, Cast, Add, Sub, Mul, Div, Equal, Where, ReduceProd) are followed for tensors of
       rank 0 and 1, element by element; a dynamic dimension is an element known by name.
    2. A tensor of which all elements are known becomes a constant, whatever else is dynamic.
    3. The shape operand of a Reshape becomes a constant when it has at most one element that is
       neither known nor the input's own dimension at that place: -1 stands for it, 0 for those.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Fold the shape arithmetic whose elements are known."""
        tracker = _Tracker()
        modified = False
        for graph in list(each_graph(model)):
            for node in graph:
                if node.domain != "" or not node.outputs:
                    continue
                elements = tracker.visit(node)
                if elements is not None and all(isinstance(item, int) for item in elements):
                    modified |= self.refusals.applied(node, _replace(model, node, elements))
                elif node.op_type == "Reshape" and constant(node.inputs[1]) is None:
                    modified |= self.refusals.applied(node, _fix_reshape(model, node, tracker))
        return ir.passes.PassResult(model, modified=modified)


def _replace(model: ir.Model, node: ir.Node, elements: Elements) -> Refusal | None:
    """Replace a node all of whose elements are numbers by a constant."""
    output = node.outputs[0]
    shape: tuple[int, ...] | None = static_shape(output)
    if shape is None:
        shape = () if output.shape is not None and len(output.shape) == 0 else (len(elements),)
    if output.dtype is None:
        return Refusal("the type of its output is not known")
    if math.prod(shape) != len(elements):
        return Refusal("its output is declared with another number of elements than it computes")
    if all(constant(value) is not None for value in node.inputs):
        return Refusal("its operands are constants, which FoldConstants folds")
    array = np.array(elements, output.dtype.numpy()).reshape(shape)
    return forward(node, add_constant(model, folded_name(output), array))


def _fix_reshape(model: ir.Model, node: ir.Node, tracker: _Tracker) -> Refusal | None:
    """Write the computed shape operand of a Reshape as a constant."""
    source, operand = node.inputs[:2]
    if source is None or operand is None:
        return Refusal("it lacks an operand")
    sizes = tracker.elements(operand)
    if sizes is None:
        return Refusal("nothing is known of its shape operand")
    if integer_attribute(node, "allowzero", 0):
        return Refusal("with allowzero, a 0 would not copy a dimension")
    own = dimensions(source.shape) or ()
    fixed: list[int] = []
    for axis, item in enumerate(sizes):
        if isinstance(item, int):
            fixed.append(item)
        else:
            copied = item is not None and axis < len(own) and item == own[axis]
            fixed.append(0 if copied else -1)
    numbers = [item for item in sizes if isinstance(item, int)]
    if fixed.count(-1) > 1:
        return Refusal("more than one element of its shape operand is not known")
    if any(number <= 0 and number != -1 for number in numbers):
        return Refusal("an element of its shape operand is 0 already, or negative")
    # Two sizes that may both be zero would leave -1 undetermined.
    if -1 in fixed and fixed.count(0) > 1:
        return Refusal("several dimensions of its input that are copied may be empty")
    name = f"{node.outputs[0].name}_shape"
    node.replace_input_with(1, add_constant(model, name, np.array(fixed, np.int64)))
    return None


class _Tracker:
    """Follows small integer tensors element by element, in the order of the nodes."""

    def __init__(self) -> None:
        self._known: dict[ir.Value, Elements] = {}

    def elements(self, value: ir.Value | None) -> Elements | None:
        """Return the elements of a tensor of rank 0 or 1, None when nothing is known."""
        if value is None:
            return None
        tensor = constant(value)
        if tensor is not None:
            if len(tensor.shape) > 1 or tensor.size > MOST_ELEMENTS:
                return None
            if tensor.dtype == ir.DataType.BOOL:
                return tuple(int(item) for item in tensor.numpy().reshape(-1))
            numbers = integers(value)
            return None if numbers is None else tuple(numbers)
        return self._known.get(value)

    def visit(self, node: ir.Node) -> Elements | None:
        """Follow one node and return what is known of its first output."""
        rule = _RULES.get(node.op_type)
        output = node.outputs[0]
        if rule is None or output.shape is None or len(output.shape) > 1:
            return None
        elements = rule(self, node)
        if elements is None or len(elements) > MOST_ELEMENTS:
            return None
        self._known[output] = elements
        return elements


def _shape(tracker: _Tracker, node: ir.Node) -> Elements | None:
    del tracker
    source = node.inputs[0]
    if source is None or source.shape is None:
        return None
    dims = tuple(dim if isinstance(dim, int) else dim.value for dim in source.shape)
    end = node.attributes.get("end")
    start = integer_attribute(node, "start", 0)
    return dims[start : None if end is None else end.as_int()]


def _size(tracker: _Tracker, node: ir.Node) -> Elements | None:
    del tracker
    shape = static_shape(node.inputs[0])
    return None if shape is None else (math.prod(shape),)


def _same(tracker: _Tracker, node: ir.Node) -> Elements | None:
    return tracker.elements(node.inputs[0])


def _cast(tracker: _Tracker, node: ir.Node) -> Elements | None:
    if integer_attribute(node, "to", 0) not in (ir.DataType.INT64, ir.DataType.INT32):
        return None
    elements = tracker.elements(node.inputs[0])
    if elements is None or node.inputs[0] is None or node.inputs[0].dtype is None:
        return None
    small = all(not isinstance(item, int) or abs(item) < 1 << 31 for item in elements)
    return elements if small else None


def _gather(tracker: _Tracker, node: ir.Node) -> Elements | None:
    data, places = tracker.elements(node.inputs[0]), integers(node.inputs[1])
    if data is None or places is None or integer_attribute(node, "axis", 0) not in (0, -1):
        return None
    if any(not -len(data) <= place < len(data) for place in places):
        return None
    return tuple(data[place] for place in places)


def _slice(tracker: _Tracker, node: ir.Node) -> Elements | None:
    data = tracker.elements(node.inputs[0])
    bounds = [integers(value) for value in node.inputs[1:]]
    if data is None or len(bounds) < 2 or any(item is None or len(item) != 1 for item in bounds):
        return None
    numbers = [item[0] for item in bounds if item is not None]
    start, stop = numbers[:2]
    step = numbers[3] if len(numbers) > 3 else 1
    if step < 1:
        return None
    return data[start:stop:step]


def _concat(tracker: _Tracker, node: ir.Node) -> Elements | None:
    joined: list[Element] = []
    for value in node.inputs:
        part = tracker.elements(value)
        if part is None:
            size = static_shape(value)
            if size is None or len(size) != 1 or size[0] > MOST_ELEMENTS:
                return None
            part = (None,) * size[0]
        joined += part
    return tuple(joined)


def _binary(compute: Callable[[Element, Element], Element]) -> Callable[..., Elements | None]:
    def rule(tracker: _Tracker, node: ir.Node) -> Elements | None:
        if len(node.inputs) != 2:
            return None
        left, right = (tracker.elements(value) for value in node.inputs)
        if left is None or right is None:
            return None
        if len(left) != len(right) and 1 not in (len(left), len(right)):
            return None
        count = max(len(left), len(right)) if left and right else 0
        left, right = (side * count if len(side) == 1 else side for side in (left, right))
        return tuple(compute(a, b) for a, b in zip(left, right, strict=True))

    return rule


def _add(a: Element, b: Element) -> Element:
    if isinstance(a, int) and isinstance(b, int):
        return _fitting(a + b)
    return a if b == 0 else b if a == 0 else None


def _subtract(a: Element, b: Element) -> Element:
    if isinstance(a, int) and isinstance(b, int):
        return _fitting(a - b)
    return a if b == 0 else None


def _multiply(a: Element, b: Element) -> Element:
    if isinstance(a, int) and isinstance(b, int):
        return _fitting(a * b)
    return a if b == 1 else b if a == 1 else None


def _divide(a: Element, b: Element) -> Element:
    if isinstance(a, int) and isinstance(b, int) and b != 0:
        quotient = abs(a) // abs(b)
        return quotient if (a < 0) == (b < 0) else -quotient
    return a if b == 1 else None


def _equal(a: Element, b: Element) -> Element:
    if isinstance(a, int) and isinstance(b, int):
        return int(a == b)
    if a is not None and a == b:
        return 1
    negative = (isinstance(a, int) and a < 0) or (isinstance(b, int) and b < 0)
    return 0 if negative and a is not None and b is not None else None


def _fitting(number: int) -> Element:
    return number if abs(number) < 1 << 31 else None


def _where(tracker: _Tracker, node: ir.Node) -> Elements | None:
    sides = [tracker.elements(value) for value in node.inputs]
    if len(sides) != 3 or any(side is None for side in sides):
        return None
    present = [side for side in sides if side is not None]
    count = max(len(side) for side in present)
    if any(len(side) not in (1, count) for side in present):
        return None
    wide = [side * count if len(side) == 1 else side for side in present]
    return tuple(
        (yes if test else no) if isinstance(test, int) else (yes if yes == no else None)
        for test, yes, no in zip(*wide, strict=True)
    )


def _product(tracker: _Tracker, node: ir.Node) -> Elements | None:
    if integer_attribute(node, "noop_with_empty_axes", 0):
        return None
    elements = tracker.elements(node.inputs[0])
    numbers = [item for item in elements or () if isinstance(item, int)]
    if elements is None or len(numbers) != len(elements) or len(numbers) == 0:
        return None
    total = _fitting(math.prod(numbers))
    return None if total is None else (total,)


_RULES: dict[str, Callable[[_Tracker, ir.Node], Elements | None]] = {
    "Shape": _shape,
    "Size": _size,
    "Identity": _same,
    "Squeeze": _same,
    "Unsqueeze": _same,
    "Reshape": _same,
    "Cast": _cast,
    "Gather": _gather,
    "Slice": _slice,
    "Concat": _concat,
    "Add": _binary(_add),
    "Sub": _binary(_subtract),
    "Mul": _binary(_multiply),
    "Div": _binary(_divide),
    "Equal": _binary(_equal),
    "Where": _where,
    "ReduceProd": _product,
}
