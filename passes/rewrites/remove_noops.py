"""Remove nodes that return one of their operands unchanged."""

from __future__ import annotations

import functools
from collections.abc import Callable

import onnx_ir as ir

from samba_onnx.facts.families import NEUTRAL
from samba_onnx.facts.operators import Kind, operators
from samba_onnx.passes.rewrites.float_twins import WHOLE
from samba_onnx.passes.rewrites.interface import dimensions
from samba_onnx.passes.rewrites.refusals import ReasonedPass, Refusal
from samba_onnx.passes.rewrites.rewriting import (
    add_integers,
    constant,
    each_graph,
    forward,
    integer_attribute,
    integers,
    replace_node,
    small_array,
    static_shape,
)

RESHAPING = operators(kind=Kind.VIEW) - {"Identity"}
"""Operators that a Reshape of their result makes superfluous."""

SAME_SHAPE = RESHAPING | {"Expand", "Tile"}
"""Operators that change nothing when the shape stays the same and is known."""

REDUCING = frozenset({"ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"})
"""Operators that change nothing when their result has as many elements as there were: what they
reduce over is of size 1."""

SINGLE = frozenset({"Concat", "Max", "Mean", "Min", "Sum"})
"""Operators of any number of inputs that change nothing when there is one."""

BEYOND = (1 << 31) - 1
"""A bound of a Slice from which on it means the end: no dimension is larger."""

_PLACES = ("first", "second")


class RemoveNoopsPass(ReasonedPass):
    """Let readers of a node's output read its input instead, where the two are always equal.

    1. Identity; Dropout outside training; Cast to the type that it is.
    2. Transpose in the order that it is, and Concat, Sum, Max, Min, Mean of one input.
    3. Reshape, Expand, Flatten, Squeeze, Tile to the same static shape; Slice of everything, whatever
       the shape; Pad by nothing; Resize by 1.
    4. Multiplication and division by one, subtraction of zero, addition of an integer zero, And with
       true, Or with false; a mean, sum, product or extreme over
       axes of size 1 that stay.
    5. Two Transposes, or two Unsqueezes, in a row become one; of two Reshapes in a row the first is
       skipped; CastLike of a known type becomes Cast.
    6. Whole numbers in float32 that become int32 and float32 again are what they were.

    A node whose output is a graph's output is kept as an Identity where the input cannot carry
    the output's name.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Remove the nodes that change nothing, and merge neighbours that undo each other."""
        modified = False
        for graph in list(each_graph(model)):
            dropped: list[ir.Node] = []
            for node in graph:
                if node.domain == "" and node.inputs and node.inputs[0] is not None:
                    modified |= self._visit(model, node, node.inputs[0], dropped)
            graph.remove(dropped, safe=True)
        return ir.passes.PassResult(model, modified=modified)

    def _visit(
        self, model: ir.Model, node: ir.Node, first: ir.Value, dropped: list[ir.Node]
    ) -> bool:
        """Try all rules on a node whose first operand is ``first``; it may go to the dropped ones."""
        # Case 5 goes first: a merged Transpose may be one that changes nothing.
        if node.op_type == "CastLike":
            return self.refusals.applied(node, _name_type(node))
        modified = False
        before = first.producer()
        if before is not None and before.domain == "":
            if node.op_type == "Transpose" and before.op_type == "Transpose":
                modified = self.refusals.applied(node, _merge_transposes(node, before))
            elif node.op_type == "Reshape" and before.op_type in RESHAPING:
                modified = self.refusals.applied(node, _skip_reshape(node, before))
            elif node.op_type == "Cast" and before.op_type == "Cast":
                modified = self.refusals.applied(node, _skip_integers(node, before))
            elif node.op_type == "Unsqueeze" and before.op_type == "Unsqueeze":
                modified = self.refusals.applied(node, _merge_unsqueezes(model, node, before))
        if node.op_type in NEUTRAL and constant(first) is not None:
            return self.refusals.applied(node, _keep_second(node, dropped)) or modified
        # Cases 1 to 4: the rule says whether the output equals the first operand.
        rule = _RULES.get(node.op_type)
        source = node.inputs[0]
        if rule is None or source is None:
            return modified
        if any(extra.uses() or extra.is_graph_output() for extra in node.outputs[1:]):
            return self.refusals.applied(node, Refusal("its other outputs are read"))
        return self.refusals.applied(node, rule(node) or forward(node, source, dropped)) or modified


Rule = Callable[[ir.Node], Refusal | None]
"""Says why a node's first output may differ from its first operand; None when they are equal."""


def _same_shape(node: ir.Node) -> Refusal | None:
    shape = static_shape(node.inputs[0])
    if shape is None:
        return Refusal("the shape of its input is not static")
    if shape != static_shape(node.outputs[0]):
        return Refusal("its output has another shape than its input")
    return None


def _reshape(node: ir.Node) -> Refusal | None:
    sizes, source = integers(node.inputs[1]), node.inputs[0]
    before = None if source is None else dimensions(source.shape)
    if sizes is None or before is None or len(sizes) != len(before):
        return _same_shape(node)
    copies = not integer_attribute(node, "allowzero", 0)
    # Where one dimension at most is not said to be what it is, it is so all the same.
    changed = sum(
        not (size == dim or (size == 0 and copies)) for size, dim in zip(sizes, before, strict=True)
    )
    if changed == 0 or (changed == sizes.count(-1) == 1 and 0 not in before):
        return None
    return _same_shape(node)


def _same_dimensions(node: ir.Node) -> Refusal | None:
    """Apply to operators whose result has the dimensions of its input where it is its input."""
    source = node.inputs[0]
    before = None if source is None else dimensions(source.shape)
    if before is None or None in before:
        return Refusal("the dimensions of its input are not known")
    if before != dimensions(node.outputs[0].shape):
        return Refusal("its output has another shape than its input")
    return None


def _single(node: ir.Node) -> Refusal | None:
    if len(node.inputs) == 1:
        return None
    return Refusal("it has more than one input")


def _dropout(node: ir.Node) -> Refusal | None:
    if len(node.inputs) < 3 or node.inputs[2] is None:
        return None
    training = small_array(node.inputs[2])
    if training is None:
        return Refusal("whether it drops is only known at run time")
    if not training.any():
        return None
    return Refusal("it drops values")


def _cast(node: ir.Node) -> Refusal | None:
    source = node.inputs[0]
    if source is None or not isinstance(source.type, ir.TensorType):
        return Refusal("the type of its input is not known")
    if source.dtype != node.attributes["to"].as_int():
        return Refusal("it changes the type")
    return None


def _skip_integers(node: ir.Node, before: ir.Node) -> Refusal | None:
    """Let a Cast read the whole numbers in float32 that the Cast before it makes int32 of."""
    # Case 6.
    source, whole = node.inputs[0], before.inputs[0]
    if (
        whole is None
        or source is None
        or WHOLE not in whole.meta
        or whole.dtype != ir.DataType.FLOAT
    ):
        return Refusal("what its input was cast from is not known to be whole numbers")
    if integer_attribute(before, "to", 0) != ir.DataType.INT32:
        return Refusal("its input was cast to another type than int32")
    node.replace_input_with(0, whole)
    return None


def _name_type(node: ir.Node) -> Refusal | None:
    """Write CastLike of a value of known type as a Cast."""
    _, like = node.inputs
    if like is None or like.dtype is None or not isinstance(like.type, ir.TensorType):
        return Refusal("the type that it casts to is not known")
    attributes = {name: item for name, item in node.attributes.items() if name == "saturate"}
    cast = ir.node("Cast", [node.inputs[0]], {**attributes, "to": int(like.dtype)})
    replace_node(node, cast, cast.outputs)
    return None


def _transpose(node: ir.Node) -> Refusal | None:
    order = _order(node)
    if order is None:
        return Refusal("the rank of its input is not known")
    if order == tuple(range(len(order))):
        return None
    return Refusal("it changes the order of axes")


def _order(node: ir.Node) -> tuple[int, ...] | None:
    """Return the axes of the input in the order of the output's; None while the rank is unknown."""
    permutation = node.attributes.get("perm")
    if permutation is not None:
        return tuple(permutation.as_ints())
    source = node.inputs[0]
    if source is None or source.shape is None:
        return None
    return tuple(range(len(source.shape)))[::-1]


def _slice(node: ir.Node) -> Refusal | None:
    if (
        len(node.inputs) < 3
    ):  # before version 10, of which a model may be that nothing newer can express
        return _same_shape(node)
    starts, stops = (integers(value) for value in node.inputs[1:3])
    steps = integers(node.inputs[4]) if len(node.inputs) > 4 and node.inputs[4] else [1]
    if steps is None:
        return Refusal("its steps are computed at run time")
    # A step of -1 keeps the shape and reverses the order.
    if any(step != 1 for step in steps):
        return Refusal("its steps are not all 1")
    if starts is not None and not any(starts) and stops and min(stops) >= BEYOND:
        return None
    return _same_shape(node)


def _pad(node: ir.Node) -> Refusal | None:
    # Before version 11 an attribute says it; ConvertOpset makes an operand of that.
    pads = integers(node.inputs[1]) if len(node.inputs) > 1 else None
    if pads is None:
        return Refusal("its padding is computed at run time")
    if not any(pads):
        return None
    return Refusal("it adds or removes elements")


def _resize(node: ir.Node) -> Refusal | None:
    scales = small_array(node.inputs[2]) if len(node.inputs) > 2 else None
    if scales is None or not scales.size:
        return Refusal("its scales are not known")
    mode = node.attributes.get("coordinate_transformation_mode")
    if mode is not None and mode.as_string() == "tf_crop_and_resize":
        return Refusal("it may cut out a region")
    # One Resize for each direction is how an older one with computed scales is written.
    return None if bool((scales == 1).all()) else Refusal("its scales are not all 1")


def _neutral(number: int, node: ir.Node, place: int = 1) -> Refusal | None:
    """Apply to operators that change nothing when the operand at ``place`` is ``number``."""
    value, other = node.inputs[place], node.inputs[1 - place]
    array = small_array(value)
    if array is None or array.size != 1:
        return Refusal(f"its {_PLACES[place]} operand is not one constant number")
    # An operand of higher rank would add dimensions to the result.
    if other is None or other.shape is None or array.ndim > len(other.shape):
        return Refusal(f"its {_PLACES[place]} operand may raise the rank")
    if node.op_type == "Add" and array.dtype.kind not in "iu":
        return Refusal("the sum of a negative and a positive zero is a positive one")
    if bool(array == number):
        return None
    return Refusal(f"its {_PLACES[place]} operand is not {number}")


def _keep_second(node: ir.Node, dropped: list[ir.Node]) -> Refusal | None:
    """Let readers read the second operand, where the first one is the neutral number."""
    second = node.inputs[1]
    if second is None:
        return Refusal("it lacks an operand")
    return _neutral(NEUTRAL[node.op_type], node, 0) or forward(node, second, dropped)


_RULES: dict[str, Rule] = {
    "Identity": lambda node: None,
    "Dropout": _dropout,
    "Cast": _cast,
    "Transpose": _transpose,
    "Slice": _slice,
    "Pad": _pad,
    "Resize": _resize,
    "Div": functools.partial(_neutral, 1),
    "Sub": functools.partial(_neutral, 0),
    **{name: functools.partial(_neutral, number) for name, number in NEUTRAL.items()},
    **dict.fromkeys(SAME_SHAPE, _same_shape),
    "Reshape": _reshape,
    **dict.fromkeys(SINGLE, _single),
    **dict.fromkeys(REDUCING, _same_dimensions),
}


def _merge_transposes(node: ir.Node, before: ir.Node) -> Refusal | None:
    """Write Transpose(Transpose(x)) as one Transpose of x."""
    first, second = _order(before), _order(node)
    if first is None or second is None:
        return Refusal("it follows a Transpose of unknown rank")
    node.attributes["perm"] = ir.AttrInt64s("perm", [first[axis] for axis in second])
    node.replace_input_with(0, before.inputs[0])
    return None


def _merge_unsqueezes(model: ir.Model, node: ir.Node, before: ir.Node) -> Refusal | None:
    """Write Unsqueeze(Unsqueeze(x)) as one Unsqueeze of x."""
    if len(before.inputs) < 2 or len(node.inputs) < 2:
        return Refusal("its axes are attributes, as before version 13")
    source = before.inputs[0]
    first, second = integers(before.inputs[1]), integers(node.inputs[1])
    if source is None or source.shape is None or first is None or second is None:
        return Refusal("it follows an Unsqueeze of unknown rank or axes")
    inner = len(source.shape) + len(first)
    rank = inner + len(second)
    outer = {axis % rank for axis in second}
    stays = [axis for axis in range(rank) if axis not in outer]
    axes = sorted(outer | {stays[axis % inner] for axis in first})
    node.replace_input_with(0, source)
    node.replace_input_with(1, add_integers(model, f"{node.outputs[0].name}_axes", axes))
    return None


def _skip_reshape(node: ir.Node, before: ir.Node) -> Refusal | None:
    """Write Reshape(Reshape(x)) as a Reshape of x."""
    shape = integers(node.inputs[1])
    if shape is None:
        return Refusal("it follows a Reshape, but its shape is computed at run time")
    # A 0 copies the size from the value between the two, which would be gone.
    if 0 in shape and not integer_attribute(node, "allowzero", 0):
        return Refusal("it copies a size from the Reshape before it")
    node.replace_input_with(0, before.inputs[0])
    return None
