"""Follow shape arithmetic element by element, also where some dimensions are dynamic."""

from __future__ import annotations

import fractions
import functools
import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from samba_onnx.facts.families import SIZES
from samba_onnx.passes.rewrites.interface import dimensions
from samba_onnx.passes.rewrites.refusals import ReasonedPass, Refusal
from samba_onnx.passes.rewrites.rewriting import (
    add_constant,
    add_integers,
    constant,
    executed_graphs,
    folded_name,
    forward,
    integer_attribute,
    integers,
    small_array,
    static_shape,
    would_be_no_size,
)

Element = int | str | None
"""A known number, the name of a dynamic dimension, or unknown."""
Elements = tuple[Element, ...]

# A tensor has 64 dimensions at most (safety.limits), so that longer vectors are no shapes.
MOST_ELEMENTS = 64
"""Elements up to which a tensor is taken for shape arithmetic."""

_INTEGERS = (ir.DataType.INT64, ir.DataType.INT32)


class FoldShapesPass(ReasonedPass):
    """Compute what follows from static dimensions.

    1. Shape, Size and the integer arithmetic that follows (Gather, Slice, Concat, Squeeze,
       Unsqueeze, Cast, Add, Sub, Mul, Div, Equal, Where, ReduceProd) are followed for tensors of
       rank 0 and 1, element by element; a dynamic dimension is an element known by name.
    2. A tensor of which all elements are known becomes a constant, whatever else is dynamic.
    3. The shape operand of a Reshape becomes a constant when it has at most one element that is
       neither known nor the input's own dimension at that place: -1 stands for it, 0 for those. A -1
       in it becomes a number where the input's dynamic dimensions all are among the sizes.
    4. Graphs that may never be executed stay as they are: their sizes need not fit.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Fold the shape arithmetic whose elements are known."""
        tracker = _Tracker()
        modified = False
        # Case 4.
        for graph in list(executed_graphs(model)):
            for node in graph:
                if node.domain != "" or not node.outputs:
                    continue
                elements = tracker.visit(node)
                # Case 2.
                if elements is not None and all(isinstance(item, int) for item in elements):
                    modified |= self.refusals.applied(node, _replace(model, node, elements))
                # Case 3. An operand that is constant already says the same in the best way.
                elif node.op_type == "Reshape" and constant(node.inputs[1]) is None:
                    modified |= self.refusals.applied(node, _fix_reshape(model, node, tracker))
        return ir.passes.PassResult(model, modified=modified)


def _replace(model: ir.Model, node: ir.Node, elements: Elements) -> Refusal | None:
    """Replace a node all of whose elements are numbers by a constant."""
    output = node.outputs[0]
    shape = static_shape(output)
    if shape is None:
        # A vector is what most of these operators make; the check below finds out where it is not.
        shape = (len(elements),)
    if output.dtype is None:
        return Refusal("the type of its output is not known")
    if math.prod(shape) != len(elements):
        return Refusal("its output is declared with another number of elements than it computes")
    # Of a weight only the shape is looked at, however large it is.
    described = node.op_type in SIZES
    if not described and all(constant(value) is not None for value in node.inputs):
        return Refusal("its operands are constants, which FoldConstants folds")
    array = np.array(elements, output.dtype.numpy()).reshape(shape)
    if (refusal := would_be_no_size(output, array)) is not None:
        return refusal
    return forward(node, add_constant(model, folded_name(output), array))


def _fix_reshape(model: ir.Model, node: ir.Node, tracker: _Tracker) -> Refusal | None:
    """Write the computed shape operand of a Reshape as a constant."""
    source, operand = node.inputs
    if source is None or operand is None:
        return Refusal("it lacks an operand")
    sizes = tracker.elements(operand)
    if sizes is None:
        return Refusal("nothing is known of its shape operand")
    own = dimensions(source.shape) or ()
    sizes = _without_rest(sizes, own)
    fixed: list[int] = []
    for axis, item in enumerate(sizes):
        if isinstance(item, int):
            fixed.append(item)
        else:
            # The place counts: a 0 in a Reshape copies the dimension at the same place.
            copied = item is not None and own[axis : axis + 1] == (item,)
            fixed.append(0 if copied else -1)
    numbers = [item for item in sizes if isinstance(item, int)]
    if fixed.count(-1) > 1:
        return Refusal("more than one element of its shape operand is not known")
    # -1 and 0 mean something else in a shape that is written as a constant.
    if any(number <= 0 and number != -1 for number in numbers):
        return Refusal("an element of its shape operand is 0 already, or negative")
    # Two sizes that may both be zero would leave -1 undetermined.
    if -1 in fixed and fixed.count(0) > 1:
        return Refusal("several dimensions of its input that are copied may be empty")
    name = f"{node.outputs[0].name}_shape"
    node.replace_input_with(1, add_integers(model, name, fixed))
    node.attributes.pop("allowzero", None)  # no number is 0, and a 0 copies a dimension now
    return None


def _without_rest(sizes: Elements, own: Elements) -> Elements:
    """Return the sizes of a Reshape with the number that its -1 stands for, where that is known.

    The dynamic dimensions of its input must all be among the sizes, so that they cancel out.
    """
    rest = [axis for axis, item in enumerate(sizes) if item == -1]
    names = sorted(item for item in sizes if isinstance(item, str))
    # Other names on either side would not cancel out.
    if len(rest) != 1 or None in own or names != sorted(dim for dim in own if isinstance(dim, str)):
        return sizes
    whole = math.prod(dim for dim in own if isinstance(dim, int))
    others = [item for axis, item in enumerate(sizes) if axis not in rest and isinstance(item, int)]
    part = math.prod(others)
    # An empty dimension leaves -1 undetermined, and a remainder means that the sizes do not fit.
    if None in sizes or min((*others, 1)) < 1 or whole < 1 or whole % part:
        return sizes
    return tuple(whole // part if axis in rest else item for axis, item in enumerate(sizes))


class _Tracker:
    """Follows small integer tensors element by element, in the order of the nodes."""

    def __init__(self) -> None:
        self._known: dict[ir.Value, Elements] = {}

    def elements(self, value: ir.Value | None) -> Elements | None:
        """Return the elements of a tensor of rank 0 or 1, None when nothing is known."""
        if value is None:
            return None
        if constant(value) is None:
            return self._known.get(value)
        array = small_array(value, MOST_ELEMENTS)
        if array is None or array.ndim > 1 or array.dtype.kind not in "biu":
            return None
        return tuple(int(item) for item in array.ravel())

    def visit(self, node: ir.Node) -> Elements | None:
        """Follow one node and return what is known of its first output."""
        rule = _RULES.get(node.op_type)
        output = node.outputs[0]
        # Only scalars and vectors are shape arithmetic; the order of their elements is all that is
        # followed.
        if rule is None or output.shape is None or len(output.shape) > 1:
            return None
        elements = rule(self, node)
        # What is long is no shape, and would take time in every node behind.
        if elements is None or len(elements) > MOST_ELEMENTS:
            return None
        self._known[output] = elements
        return elements


def _shape(tracker: _Tracker, node: ir.Node) -> Elements | None:
    del tracker
    source = node.inputs[0]
    dims = None if source is None else dimensions(source.shape)
    if dims is None:
        return None
    # Negative bounds count from the end, in ONNX as in Python.
    start, end = integer_attribute(node, "start", 0), integer_attribute(node, "end", len(dims))
    return dims[start:end]


def _size(tracker: _Tracker, node: ir.Node) -> Elements | None:
    del tracker
    shape = static_shape(node.inputs[0])
    return None if shape is None else (math.prod(shape),)


def _same(tracker: _Tracker, node: ir.Node) -> Elements | None:
    return tracker.elements(node.inputs[0])


def _cast(tracker: _Tracker, node: ir.Node) -> Elements | None:
    elements = tracker.elements(node.inputs[0])
    if elements is None or node.attributes["to"].as_int() not in _INTEGERS:
        return None
    # A name is a dimension, which every integer type of shapes holds.
    fits = all(not isinstance(item, int) or _fitting(item) is not None for item in elements)
    return elements if fits else None


def _gather(tracker: _Tracker, node: ir.Node) -> Elements | None:
    data, places = tracker.elements(node.inputs[0]), integers(node.inputs[1])
    if data is None or places is None:
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
    # A step backwards would need other bounds in Python.
    if step < 1:
        return None
    return data[start:stop:step]


def _concat(tracker: _Tracker, node: ir.Node) -> Elements | None:
    joined: list[Element] = []
    for value in node.inputs:
        part = tracker.elements(value)
        if part is None:
            size = static_shape(value)
            if size is None or math.prod(size) > MOST_ELEMENTS:
                return None
            # An operand of unknown elements has at least a known number of them, which keeps places
            # of others.
            part = (None,) * math.prod(size)
        joined += part
    return tuple(joined)


def _operands(tracker: _Tracker, node: ir.Node) -> list[Elements] | None:
    """Return the elements of all operands, those of one element as often as the longest has some."""
    sides = [tracker.elements(value) for value in node.inputs]
    known = [side for side in sides if side is not None]
    lengths = {len(side) for side in known} - {1}
    if len(known) < len(sides) or len(lengths) > 1:
        return None
    count = lengths.pop() if lengths else 1
    return [side * count if len(side) == 1 else side for side in known]


def _elementwise(
    compute: Callable[..., Element], tracker: _Tracker, node: ir.Node
) -> Elements | None:
    operands = _operands(tracker, node)
    return None if operands is None else tuple(map(compute, *operands))


def _add(a: Element, b: Element) -> Element:
    if isinstance(a, int) and isinstance(b, int):
        return _fitting(a + b)
    # A name plus 0 is the name; anything else of a name is a number that nobody knows.
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
        # ONNX rounds quotients of integers to zero, Python rounds down; Fraction keeps all digits
        # of large numbers.
        return _fitting(math.trunc(fractions.Fraction(a, b)))
    return a if b == 1 else None


def _equal(a: Element, b: Element) -> Element:
    if a is None or b is None:
        return None
    if a == b:
        return 1
    # Two numbers, or a dimension, which is never negative, and a number that is.
    numbers = [item for item in (a, b) if isinstance(item, int)]
    return 0 if len(numbers) == 2 or any(number < 0 for number in numbers) else None


def _choose(test: Element, yes: Element, no: Element) -> Element:
    if isinstance(test, int):
        return yes if test else no
    # Both choices being equal, the condition does not matter.
    return yes if yes == no else None


def _fitting(number: int) -> Element:
    """Return a number that every integer type of shapes holds; None for others."""
    return number if abs(number) < 1 << 31 else None


def _product(tracker: _Tracker, node: ir.Node) -> Elements | None:
    # Empty axes would mean: no reduction at all.
    if integer_attribute(node, "noop_with_empty_axes", 0):
        return None
    elements = tracker.elements(node.inputs[0])
    if elements is None:
        return None
    numbers = [item for item in elements if isinstance(item, int)]
    if len(numbers) < len(elements):
        return None
    return (_fitting(math.prod(numbers)),)


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
    "Add": functools.partial(_elementwise, _add),
    "Sub": functools.partial(_elementwise, _subtract),
    "Mul": functools.partial(_elementwise, _multiply),
    "Div": functools.partial(_elementwise, _divide),
    "Equal": functools.partial(_elementwise, _equal),
    "Where": functools.partial(_elementwise, _choose),
    "ReduceProd": _product,
}
