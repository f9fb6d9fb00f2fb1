"""Graphs without effects: what is written in place becomes a value of its own."""

from __future__ import annotations

import operator
from typing import Any, Final

import torch
from torch import fx

_aten = torch.ops.aten

# Their result may be the operand itself, although their schemas do not say so.
_MAY_ALIAS: Final = frozenset(
    {
        "alpha_dropout",
        "contiguous",
        "dropout",
        "expand_as",
        "feature_alpha_dropout",
        "feature_dropout",
        "flatten",
        "native_dropout",
        "reshape",
        "reshape_as",
        "to",
        "type_as",
        "view_as",
    }
)
_TRANSFORMS: Final = "torch._functorch.predispatch"
"""Where the steps of vmap come from that stand in an exported graph."""
_NOTHING: Final = frozenset({_aten.detach_.default, _aten.requires_grad_.default})
"""In-place operators that change no value."""
_WRITING_UNSAID: Final = frozenset(
    {_aten.batch_norm.default, _aten.instance_norm.default, _aten.native_batch_norm.default}
)
"""Write to running statistics in training, their fourth and fifth operands, without saying so in their
schemas; the sixth is whether they train."""


def functionalized(graph_module: fx.GraphModule) -> fx.GraphModule | None:
    """Replace operators that write in place, where that is simple.

    It is simple as long as nothing else refers to the memory that is written: neither a view of it
    nor what it is a view of is read afterwards.

    Args:
        graph_module: A graph of ATen operators.

    Returns:
        A graph whose ``meta["written"]`` maps the name of each placeholder that was written to the
        node with its last value; None if it is not that simple.
    """
    # A copy, as the attempt may be given up half way.
    graph = fx.Graph()
    graph.output(graph.graph_copy(graph_module.graph, {}))
    graph_module = fx.GraphModule(graph_module, graph)
    # Numbered once: what takes a node's place keeps its number.
    order = {node: index for index, node in enumerate(graph.nodes)}
    groups = _Groups()
    written: dict[str, fx.Node] = {}
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            if not _is_pure(node, graph_module):
                return None
            continue
        if getattr(node.target, "__module__", "") == _TRANSFORMS:
            return None  # Torch itself takes its transformations apart.
        if not isinstance(node.target, torch._ops.OpOverload):
            groups.join(node, node.all_input_nodes)
            continue
        if _writes_statistics(node):
            if node.target is not _aten.batch_norm.default:
                return None
            _replace_batch_norm(node, order, written)
        elif not node.target._schema.is_mutable:
            groups.join(node, _aliased(node))
        elif not _replace(node, order, groups, written):
            return None
    graph_module.meta["written"] = written
    graph_module.recompile()
    return graph_module


def is_written(node: fx.Node) -> bool:
    """Return whether anything in a graph may write to the memory of a node's value.

    Args:
        node: A node of a graph of ATen operators.
    """
    family, pending = set[fx.Node](), [node]
    while pending:
        member = pending.pop()
        if member in family:
            continue
        family.add(member)
        pending += _may_share(member)
        for user in member.users:
            # Whichever operand it writes: too many names are safe here, too few are not.
            if isinstance(user.target, torch._ops.OpOverload) and user.target._schema.is_mutable:
                return True
            if member in _may_share(user):
                pending.append(user)
    return False


def is_mutated(node: fx.Node, operand: fx.Node) -> bool:
    """Return whether an operator writes to one of its operands.

    Args:
        node: A node of a graph of ATen operators.
        operand: One of its operands.
    """
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    pairs = zip(node.target._schema.arguments, node.args, strict=False)
    return any(
        value is operand and argument.alias_info is not None and argument.alias_info.is_write
        for argument, value in pairs
    )


def _may_share(node: fx.Node) -> list[fx.Node]:
    """Return the operands whose memory a node's value may share."""
    if node.op != "call_function":
        return []
    return (
        _aliased(node) if isinstance(node.target, torch._ops.OpOverload) else node.all_input_nodes
    )


def _is_pure(node: fx.Node, graph_module: fx.GraphModule) -> bool:
    """Return whether a node calls a graph that writes nothing and only switches gradients."""
    if node.target.name() != "wrap_with_set_grad_enabled":  # type: ignore[union-attr]
        return False
    inner = getattr(graph_module, node.args[1].target)  # type: ignore[union-attr, arg-type]
    return all(
        (
            isinstance(call.target, torch._ops.OpOverload)
            and not call.target._schema.is_mutable
            and not _writes_statistics(call)
        )
        or call.target is operator.getitem
        for call in inner.graph.nodes
        if call.op == "call_function"
    )


class _Groups:
    """Which nodes may refer to the same memory."""

    def __init__(self) -> None:
        self._members: dict[fx.Node, set[fx.Node]] = {}

    def of(self, node: fx.Node) -> set[fx.Node]:
        return self._members.setdefault(node, {node})

    def join(self, node: fx.Node, others: list[fx.Node]) -> None:
        merged = set(self.of(node)).union(*(self.of(other) for other in others))
        for member in merged:
            self._members[member] = merged


def _aliased(node: fx.Node) -> list[fx.Node]:
    """Return the operands whose memory an operator's result may share."""
    schema = node.target._schema  # type: ignore[union-attr]
    if schema.name.rpartition("::")[2] in _MAY_ALIAS:
        return node.all_input_nodes[:1]
    aliased: list[fx.Node] = []
    for argument, operand in zip(schema.arguments, node.args, strict=False):
        if argument.alias_info is not None:
            fx.node.map_arg(operand, aliased.append)
    return aliased


def _replace(
    node: fx.Node, order: dict[fx.Node, int], groups: _Groups, written: dict[str, fx.Node]
) -> bool:
    """Turn an operator that writes its first operand into one that does not."""
    target = node.args[0] if node.args else None
    if not isinstance(target, fx.Node):
        return False
    if node.target in _NOTHING:
        node.replace_all_uses_with(target)
        node.graph.erase_node(node)
        return True
    counterpart = _counterpart(node.target)
    # Another name of the memory would need a value of its own from here on.
    if counterpart is None or _still_read(node, target, order, groups):
        return False
    example = node.meta["val"]
    node.target = counterpart
    result = node
    if counterpart is _aten.copy.default:
        node.args = node.args[:2]
    else:
        dtype = _result_type(node)
        # In place the target's type stays, while the operator itself may promote.
        if dtype != example.dtype:
            result = _cast(node, example.dtype, order)
            node.meta["val"] = example.to(dtype)
    # Earlier readers saw the value before.
    target.replace_all_uses_with(
        result, delete_user_cb=lambda user: user is not node and order[user] > order[node]
    )
    if result is not node:
        node.replace_all_uses_with(result, delete_user_cb=lambda user: user is not result)
    _record(target, result, written)
    return True


def _counterpart(target: Any) -> torch._ops.OpOverload | None:
    """Return the operator that computes what another one writes into its first operand."""
    schema = target._schema
    arguments = [a for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    name = schema.name.rpartition("::")[2]
    # Names such as __iand__ have counterparts that are called otherwise.
    if len(arguments) != 1 or not name.endswith("_") or name.endswith("__"):
        return None
    packet = getattr(_aten, name[:-1], None)
    if packet is None:
        return None
    # Not always of the same name: pow_.Scalar is pow.Tensor_Scalar.
    named = schema.overload_name or "default"
    for overload in sorted(packet.overloads(), key=lambda overload: overload != named):
        operator = getattr(packet, overload)
        clean = overload == named or not operator._schema.is_mutable
        if clean and _types(operator) == _types(target):
            return operator  # type: ignore[no-any-return]
    return None


def _types(target: torch._ops.OpOverload) -> list[str]:
    return [str(argument.type) for argument in target._schema.arguments]


def _still_read(node: fx.Node, target: fx.Node, order: dict[fx.Node, int], groups: _Groups) -> bool:
    """Return whether the memory that a node writes is read later under another name."""
    others = groups.of(target) - {target}
    # A placeholder's memory belongs to others, who may read it when the graph has ended.
    return any(
        other.op == "placeholder" or any(order[user] > order[node] for user in other.users)
        for other in others
    )


def _result_type(node: fx.Node) -> torch.dtype:
    """Return the dtype of the operator that a node calls now."""
    # On meta tensors, as nothing but the type is asked for.
    args, keywords = fx.node.map_arg(
        (node.args, node.kwargs), lambda operand: operand.meta["val"].to(device="meta")
    )
    result: torch.Tensor = node.target(*args, **keywords)  # type: ignore[operator]
    return result.dtype


def _cast(node: fx.Node, dtype: torch.dtype, order: dict[fx.Node, int]) -> fx.Node:
    with node.graph.inserting_after(node):
        cast = node.graph.call_function(_aten._to_copy.default, (node,), {"dtype": dtype})
    cast.meta = dict(node.meta)
    # It counts as being where its source is, whose readers are compared with it.
    order[cast] = order[node]
    return cast


def _record(target: fx.Node, result: fx.Node, written: dict[str, fx.Node]) -> None:
    """Remember the last value of a placeholder that is written."""
    if target.op == "placeholder":
        written[target.name] = result
        return
    for name, value in list(written.items()):
        if value is target:
            written[name] = result


def _writes_statistics(node: fx.Node) -> bool:
    """Return whether a node is a normalisation that updates its running statistics unsaid."""
    if node.target not in _WRITING_UNSAID:
        return False
    return bool(node.args[5]) and isinstance(node.args[3], fx.Node)


def _replace_batch_norm(
    node: fx.Node, order: dict[fx.Node, int], written: dict[str, fx.Node]
) -> None:
    """Make the running statistics that a batch norm updates results of it."""
    means, variances = node.args[3:5]
    value = node.meta["val"]
    statistics = [operand.meta["val"] for operand in (means, variances)]  # type: ignore[union-attr]
    node.target = _aten._native_batch_norm_legit_functional.default
    node.args = node.args[:8]
    # What it keeps for a backward has the shapes of the running statistics.
    node.meta["val"] = (value, *statistics, *statistics)
    position, parts = node, []
    # Results 1 and 2 are for torch's backward alone.
    for index in (0, 3, 4):
        with node.graph.inserting_after(position):
            position = node.graph.call_function(operator.getitem, (node, index))
        position.meta = {**node.meta, "val": node.meta["val"][index]}
        order[position] = order[node]
        parts.append(position)
    node.replace_all_uses_with(parts[0], delete_user_cb=lambda user: user not in parts)
    for old, new in zip((means, variances), parts[1:], strict=True):
        old.replace_all_uses_with(  # type: ignore[union-attr]
            new, delete_user_cb=lambda user: user is not node and order[user] > order[node]
        )
        _record(old, new, written)  # type: ignore[arg-type]
