"""Remove nodes that return what they are given."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from samba_onnx.passes.rewrites.rewriting import (
    constant,
    each_graph,
    forward,
    integer_attribute,
    integers,
    replace_node,
    small_array,
    static_shape,
)

SAME_SHAPE = frozenset({"Reshape", "Expand", "Flatten", "Squeeze", "Unsqueeze", "Tile"})
"""Operators that change nothing when the shape stays the same and is known."""

SINGLE = frozenset({"Concat", "Max", "Mean", "Min", "Sum"})
"""Operators of any number of inputs that change nothing when there is one."""


class RemoveNoopsPass(ir.passes.InPlacePass):
    """Let readers of a node's output read its input instead, where the two are always equal.

    1. Identity; Dropout outside training; Cast to the type that it is.
    2. Transpose in the order that it is, and Concat, Sum, Max, Min, Mean of one input.
    3. Reshape, Expand, Flatten, Squeeze, Tile to the same static shape; Slice of everything; Pad
       by nothing.
    4. Multiplication and division by one, subtraction of zero.
    5. Two Transposes in a row become one; of two Reshapes in a row the first is skipped; CastLike
       of a known type becomes Cast.

    A node whose output is a graph's output is kept as an Identity where the input cannot carry
    the output's name.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Remove."""
        modified = False
        for graph in list(each_graph(model)):
            for node in graph:
                if node.domain != "" or not node.inputs or node.inputs[0] is None:
                    continue
                if _name_type(node):
                    modified = True
                    continue
                modified |= _merge_transposes(node) or _skip_reshape(node)
                if _only_first_output(node) and (equal := _equal_input(node)) is not None:
                    modified |= forward(node, equal)
        return ir.passes.PassResult(model, modified=modified)


def _only_first_output(node: ir.Node) -> bool:
    return not any(extra.uses() or extra.is_graph_output() for extra in node.outputs[1:])


def _equal_input(node: ir.Node) -> ir.Value | None:
    """Return the input that the first output is always equal to, if there is one."""
    first = node.inputs[0]
    if node.op_type in SAME_SHAPE:
        same = static_shape(first) is not None and static_shape(first) == static_shape(
            node.outputs[0]
        )
        return first if same else None
    if node.op_type in SINGLE:
        return first if len(node.inputs) == 1 else None
    rule = _RULES.get(node.op_type)
    return first if rule is not None and rule(node) else None


def _dropout(node: ir.Node) -> bool:
    if len(node.inputs) < 3 or node.inputs[2] is None:
        return True
    training = small_array(node.inputs[2])
    return training is not None and not training.any()


def _cast(node: ir.Node) -> bool:
    source = node.inputs[0]
    return (
        source is not None
        and source.dtype is not None
        and isinstance(source.type, ir.TensorType)
        and source.dtype == integer_attribute(node, "to", 0)
    )


def _name_type(node: ir.Node) -> bool:
    """CastLike of a value of known type becomes a Cast."""
    like = node.inputs[1] if node.op_type == "CastLike" and len(node.inputs) > 1 else None
    if like is None or like.dtype is None or not isinstance(like.type, ir.TensorType):
        return False
    kept = {name: item for name, item in node.attributes.items() if name == "saturate"}
    cast = ir.node("Cast", [node.inputs[0]], {**kept, "to": int(like.dtype)})
    replace_node(node, cast, cast.outputs)
    return True


def _transpose(node: ir.Node) -> bool:
    order = _order(node)
    return order is not None and order == tuple(range(len(order)))


def _order(node: ir.Node) -> tuple[int, ...] | None:
    given = node.attributes.get("perm")
    if given is not None:
        return tuple(given.as_ints())
    source = node.inputs[0]
    if source is None or source.shape is None:
        return None
    return tuple(range(len(source.shape)))[::-1]


def _slice(node: ir.Node) -> bool:
    shape = static_shape(node.inputs[0])
    if shape is None or shape != static_shape(node.outputs[0]):
        return False
    if len(node.inputs) < 5 or node.inputs[4] is None:
        return True
    steps = integers(node.inputs[4])
    return steps is not None and all(step == 1 for step in steps)


def _pad(node: ir.Node) -> bool:
    pads = integers(node.inputs[1]) if len(node.inputs) > 1 else None
    return pads is not None and not any(pads)


def _is_neutral(node: ir.Node, number: int) -> bool:
    """Return whether the second operand is one element equal to ``number`` and shapes stay."""
    if len(node.inputs) != 2:
        return False
    first, second = node.inputs
    tensor = constant(second)
    if tensor is None or tensor.size != 1 or first is None or first.shape is None:
        return False
    array = small_array(second)
    return array is not None and len(tensor.shape) <= len(first.shape) and bool(array == number)


_RULES: dict[str, Callable[[ir.Node], bool]] = {
    "Identity": lambda node: True,
    "Dropout": _dropout,
    "Cast": _cast,
    "Transpose": _transpose,
    "Slice": _slice,
    "Pad": _pad,
    "Mul": lambda node: _is_neutral(node, 1),
    "Div": lambda node: _is_neutral(node, 1),
    "Sub": lambda node: _is_neutral(node, 0),
}


def _merge_transposes(node: ir.Node) -> bool:
    """Transpose(Transpose(x)) becomes one Transpose of x."""
    source = node.inputs[0]
    before = None if source is None else source.producer()
    if node.op_type != "Transpose" or before is None or before.op_type != "Transpose":
        return False
    if before.domain != "":
        return False
    first, second = _order(before), _order(node)
    if first is None or second is None:
        return False
    node.attributes["perm"] = ir.AttrInt64s("perm", [first[axis] for axis in second])
    node.replace_input_with(0, before.inputs[0])
    return True


def _skip_reshape(node: ir.Node) -> bool:
    """Reshape(Reshape(x)) becomes a Reshape of x, when the second shape does not copy sizes."""
    source = node.inputs[0]
    before = None if source is None else source.producer()
    if node.op_type != "Reshape" or before is None or before.domain != "":
        return False
    if before.op_type not in ("Reshape", "Flatten", "Squeeze", "Unsqueeze"):
        return False
    shape = integers(node.inputs[1])
    if shape is None or (0 in shape and not integer_attribute(node, "allowzero", 0)):
        return False
    node.replace_input_with(0, before.inputs[0])
    return True
