"""Takes out of a functional graph what only moves memory around."""

from __future__ import annotations

import operator
from typing import Final

import torch
from torch import Tensor, fx

aten = torch.ops.aten

_COPIES: Final = frozenset(
    {
        # A functional graph writes nothing in place, so that a copy is the same value.
        aten.alias.default,
        aten.alias_copy.default,
        aten.clone.default,
        aten.contiguous.default,
        aten.detach.default,
        aten.detach_copy.default,
        aten.lift_fresh.default,
        aten.lift_fresh_copy.default,
    }
)
_TO_SHAPE: Final = frozenset({aten.view.default, aten._unsafe_view.default, aten.reshape.default})
_MAYBE_NOTHING: Final = _TO_SHAPE | {aten.expand.default, aten._to_copy.default}
_SHAPE_ONLY: Final = frozenset(
    {
        aten._adaptive_avg_pool2d_backward.default,
        aten._adaptive_avg_pool3d_backward.default,
        aten.adaptive_max_pool2d_backward.default,
        aten.adaptive_max_pool3d_backward.default,
        aten.avg_pool2d_backward.default,
        aten.avg_pool3d_backward.default,
        aten.max_pool2d_with_indices_backward.default,
        aten.max_pool3d_with_indices_backward.default,
        aten.reflection_pad1d_backward.default,
        aten.reflection_pad2d_backward.default,
        aten.reflection_pad3d_backward.default,
        aten.replication_pad1d_backward.default,
        aten.replication_pad2d_backward.default,
        aten.replication_pad3d_backward.default,
    }
)
"""Operators whose second operand, a value of the forward, counts by its shape alone."""
_FREE: Final = _TO_SHAPE | {aten.squeeze.dims, aten.squeeze.dim, aten.unsqueeze.default}


def simplify(graph: fx.Graph) -> None:
    """Remove copies and conversions that change neither shape nor type, and merge equal nodes.

    Args:
        graph: Functional; strides have no meaning in it any more.
    """
    seen: dict[object, fx.Node] = {}
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        # First, so that nodes that differ only in what they do not read become equal.
        _forget_unread(node)
        source = _same_value(node) or _twin(node, seen)
        if source is not None:
            node.replace_all_uses_with(source)
        elif node.target in _TO_SHAPE:
            _reshape_of_source(node)
    # Here and not when a node is replaced, as the loop walks over the nodes.
    graph.eliminate_dead_code()


def _forget_unread(node: fx.Node) -> None:
    """Leave out operands whose values do not matter, so that nothing keeps them for the backward."""
    if node.target in _SHAPE_ONLY or _has_no_weight_gradient(node):
        _forget(node, 1)
    elif node.target is aten.native_batch_norm_backward.default and node.args[7]:
        # A batch is normalised by its own statistics while the running ones move on.
        node.args = (*node.args[:3], None, None, *node.args[5:])


def _has_no_weight_gradient(node: fx.Node) -> bool:
    """Return whether a node is a convolution's backward that leaves the weight out."""
    output_mask = node.args[-1] if node.args else None
    is_backward = node.target is aten.convolution_backward.default
    return is_backward and isinstance(output_mask, list | tuple) and not output_mask[1]


def _forget(node: fx.Node, position: int) -> None:
    """Put zeros of the same shape in an operand's place."""
    operand = node.args[position]
    # Such a constant is nothing that would be kept.
    if not isinstance(operand, fx.Node) or operand.target is aten.full.default:
        return
    value: Tensor = operand.meta["val"]
    with node.graph.inserting_before(node):
        zeros = node.graph.call_function(
            aten.full.default, (list(map(int, value.shape)), 0), {"dtype": value.dtype}
        )
    # With the place of its reader, as that is what it is computed for.
    zeros.meta = {**node.meta, "val": value}
    node.update_arg(position, zeros)


def _same_value(node: fx.Node) -> fx.Node | None:
    """Return the operand of a node that changes nothing."""
    if not node.args or not isinstance(node.args[0], fx.Node):
        return None
    source = node.args[0]
    if node.target in _COPIES:
        return source
    before, after = source.meta.get("val"), node.meta.get("val")
    if node.target in _MAYBE_NOTHING and isinstance(before, Tensor) and isinstance(after, Tensor):
        # A conversion or view to what the value is already.
        return source if (before.shape, before.dtype) == (after.shape, after.dtype) else None
    return None


def _twin(node: fx.Node, seen: dict[object, fx.Node]) -> fx.Node | None:
    """Return an earlier node that computes the same; remember this one if there is none."""
    target = node.target
    if target is not operator.getitem:
        # Rules and graphs within the graph may have effects.
        if not isinstance(target, torch._ops.OpOverload):
            return None
        # Two draws are two values, although their operands are the same.
        if torch.Tag.nondeterministic_seeded in target.tags:
            return None
    key = (target, _hashable(node.args), _hashable(node.kwargs))
    first = seen.setdefault(key, node)
    return None if first is node else first


def _hashable(operand: object) -> object:
    """Return operands in a form that compares by value and type: 1, 1.0 and True differ."""
    if isinstance(operand, list | tuple):
        return tuple(_hashable(item) for item in operand)
    if isinstance(operand, dict):
        return tuple((key, _hashable(operand[key])) for key in sorted(operand))
    return operand if isinstance(operand, fx.Node) else (type(operand), repr(operand))


def _reshape_of_source(node: fx.Node) -> None:
    """Reshape from the first of a chain of reshapes."""
    node.target = aten.reshape.default
    source = node.args[0]
    # What lies between only says how the same elements are cut: the last shape decides.
    while isinstance(source, fx.Node) and source.target in _FREE:
        source = source.args[0]
    value: Tensor = node.meta["val"]
    node.args = (source, list(map(int, value.shape)))
