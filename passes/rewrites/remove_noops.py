"""Remove nodes that return one of their operands unchanged."""

from __future__ import annotations

import functools
from collections.abc import Callable

import onnx_ir as ir

from samba_onnx.facts.operators import Kind, operators
from samba_onnx.passes.rewrites.refusals import ReasonedPass, Refusal
from samba_onnx.passes.rewrites.rewriting import (
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


class RemoveNoopsPass(ReasonedPass):
    """Let readers of a node's output read its input instead, where the two are always equal.

    1. Identity; Dropout outside training; Cast to the type that it is.
    2. Transpose in the order that it is, and Concat, Sum, Max, Min, Mean of one input.
    3. Reshape, Expand, Flatten, Squeeze, Tile to the same static shape; Slice of everything; Pad
       by nothing.
    4. Multiplication and division by one, subtraction of zero; a mean, sum, product or extreme over
       axes of size 1 that stay.
    5. Two Transposes in a row become one; of two Reshapes in a row the first is skipped; CastLike
       of a known type becomes Cast.

    A node whose output is a graph's output is kept as an Identity where the input cannot carry
    the output's name.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Remove the nodes that change nothing, and merge neighbours that undo each other."""
        modified = False
        for graph in list(each_graph(model)):
            for node in graph:
                if node.domain == "" and node.inputs and node.inputs[0] is not None:
                    modified |= self._visit(node, node.inputs[0])
        return ir.passes.PassResult(model, modified=modified)

    def _visit(self, node: ir.Node, first: ir.Value) -> bool:
        """Try all rules on a node whose first operand is ``first``."""
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
        # Cases 1 to 4: the rule says whether the output equals the first operand.
        rule = _RULES.get(node.op_type)
        source = node.inputs[0]
        if rule is None or source is None:
            return modified
        if any(extra.uses() or extra.is_graph_output() for extra in node.outputs[1:]):
            return self.refusals.applied(node, Refusal("its other outputs are read"))
        return self.refusals.applied(node, rule(node) or forward(node, source)) or modified


Rule = Callable[[ir.Node], Refusal | None]
"""Says why a node's first output may differ from its first operand; None when they are equal."""


def _same_shape(node: ir.Node) -> Refusal | None:
    shape = static_shape(node.inputs[0])
    if shape is None:
        return Refusal("the shape of its input is not static")
    if shape != static_shape(node.outputs[0]):
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
    if (refusal := _same_shape(node)) is not None:
        return refusal
    if len(node.inputs) < 5 or node.inputs[4] is None:
        return None
    steps = integers(node.inputs[4])
    if steps is None:
        return Refusal("its steps are computed at run time")
    # A step of -1 keeps the shape and reverses the order.
    if all(step == 1 for step in steps):
        return None
    return Refusal("its steps are not all 1")


def _pad(node: ir.Node) -> Refusal | None:
    # Before version 11 an attribute says it; ConvertOpset makes an operand of that.
    pads = integers(node.inputs[1]) if len(node.inputs) > 1 else None
    if pads is None:
        return Refusal("its padding is computed at run time")
    if not any(pads):
        return None
    return Refusal("it adds or removes elements")


def _neutral(number: int, node: ir.Node) -> Refusal | None:
    """Apply to operators that change nothing when their second operand is ``number``."""
    first, second = node.inputs
    array = small_array(second)
    if array is None or array.size != 1:
        return Refusal("its second operand is not one constant number")
    # An operand of higher rank would add dimensions to the result.
    if first is None or first.shape is None or array.ndim > len(first.shape):
        return Refusal("its second operand may raise the rank")
    if bool(array == number):
        return None
    return Refusal(f"its second operand is not {number}")


_RULES: dict[str, Rule] = {
    "Identity": lambda node: None,
    "Dropout": _dropout,
    "Cast": _cast,
    "Transpose": _transpose,
    "Slice": _slice,
    "Pad": _pad,
    "Mul": functools.partial(_neutral, 1),
    "Div": functools.partial(_neutral, 1),
    "Sub": functools.partial(_neutral, 0),
    **dict.fromkeys(SAME_SHAPE, _same_shape),
    **dict.fromkeys(SINGLE, _single),
    **dict.fromkeys(REDUCING, _same_shape),
}


def _merge_transposes(node: ir.Node, before: ir.Node) -> Refusal | None:
    """Write Transpose(Transpose(x)) as one Transpose of x."""
    first, second = _order(before), _order(node)
    if first is None or second is None:
        return Refusal("it follows a Transpose of unknown rank")
    node.attributes["perm"] = ir.AttrInt64s("perm", [first[axis] for axis in second])
    node.replace_input_with(0, before.inputs[0])
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
