"""Dropouts of a graph that only runs forward: their rates and seeds become operands of the graph."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import fx

from samba_onnx.export.decomposition.dropout import (
    Draw,
    Site,
    applied,
    is_dropout,
    rate_of,
    sites,
)
from samba_onnx.export.decomposition.rewriting import rewritten
from samba_onnx.export.decomposition.torch_decompositions import traced
from samba_onnx.export.naming import refused
from samba_onnx.program.program import ArginSpec

_TRANSPARENT: Final = frozenset({"wrap_with_set_grad_enabled", "invoke_subgraph"})
"""Operators that call a graph of their own and change none of its values."""
_PLACE: Final = ("nn_module_stack", "stack_trace")


@dataclasses.dataclass(frozen=True)
class DroppingGraph:
    """A graph whose dropouts take masks from nodes of their own."""

    graph_module: fx.GraphModule
    argins: Mapping[str, ArginSpec]
    """Rates and seeds, by the names of the placeholders that were added for them."""


def with_dropout_operands(
    graph_module: fx.GraphModule, names: Callable[[fx.Node, str], str]
) -> DroppingGraph | None:
    """Return a graph in which every dropout reads its rate and its seed.

    Args:
        graph_module: A functional graph whose nodes have ``meta["val"]``; it stays as it is.
        names: Gives a unique name from a dropout and the name of its kind.

    Returns:
        The new graph; None if nothing is dropped.

    Raises:
        ModelError: A dropout cannot be written with a mask from outside.
    """
    inner = (module for module in graph_module.modules() if isinstance(module, fx.GraphModule))
    if not any(rate_of(node) for one in inner for node in one.graph.nodes):
        return None  # most graphs: they need no copy
    copied = fx.GraphModule(graph_module, _copy(graph_module.graph))
    # Inside a called graph, nothing can read placeholders of this one.
    _inline_graphs(copied)
    found = sites(list(copied.graph.nodes), names)
    if not found:
        return None
    argins: dict[str, ArginSpec] = {}
    for node, site in found.items():
        rate = _operand(copied.graph, node, f"dropout_rate_{site.stream}", torch.float32)
        seed = _operand(copied.graph, node, f"dropout_seed_{site.stream}", torch.int32)
        argins |= {rate.name: site.rate, seed.name: site.seed}
        _replace(copied, node, site, rate, seed)
    copied.recompile()
    return DroppingGraph(copied, MappingProxyType(argins))


def _copy(graph: fx.Graph) -> fx.Graph:
    copied = fx.Graph()
    copied.output(copied.graph_copy(graph, {}))
    return copied


def _inline_graphs(module: fx.GraphModule) -> None:
    """Put the nodes of graphs that are called for their side effects in place of the calls."""
    # A list, as calls are erased meanwhile.
    for call in list(module.graph.nodes):
        is_call = isinstance(call.target, torch._ops.HigherOrderOperator)
        if not is_call or call.target.name() not in _TRANSPARENT:
            continue
        index, inner = next(
            (index, called)
            for index, argument in enumerate(call.args)
            if (called := _called(module, argument)) is not None
        )
        # Innermost first, so that what is copied has no calls of its own left.
        _inline_graphs(inner)
        placeholders = inner.graph.find_nodes(op="placeholder")
        operands = dict(zip(placeholders, call.args[index + 1 :], strict=False))
        with module.graph.inserting_before(call):
            results = _inlined(module, inner, operands)
        _read_instead(call, results)


def _called(module: fx.GraphModule, argument: Any) -> fx.GraphModule | None:
    is_attribute = isinstance(argument, fx.Node) and argument.op == "get_attr"
    member = getattr(module, str(argument.target), None) if is_attribute else None
    return member if isinstance(member, fx.GraphModule) else None


def _operand(graph: fx.Graph, like: fx.Node, name: str, dtype: torch.dtype) -> fx.Node:
    """Add a placeholder of rank 0."""
    example = next(one.meta["val"] for one in like.all_input_nodes if "val" in one.meta)
    # In the mode of the other examples: torch does not mix two.
    mode = torch.utils._pytree.tree_leaves(example)[0].fake_mode
    with graph.inserting_before():  # all of its nodes
        node = graph.placeholder(name)
    with mode:
        node.meta["val"] = torch.empty((), dtype=dtype)
    return node


def _replace(
    module: fx.GraphModule, node: fx.Node, site: Site, rate: fx.Node, seed: fx.Node
) -> None:
    """Put what drops by a mask from outside in the place of a dropout."""

    def dropping(rate: torch.Tensor, seed: torch.Tensor, *args: Any, **keywords: Any) -> Any:
        draw = Draw(site, rate, seed)
        if is_dropout(node):
            return applied(node, draw, args[0])
        rewriting = rewritten(node.target, args, draw)
        assert rewriting is not None, "an operator that drops values is always rewritten"
        return rewriting(*args, **keywords)

    operands = [rate, seed, *node.all_input_nodes]
    smaller = traced(dropping, (rate, seed, *node.args), dict(node.kwargs), operands)
    if smaller is None:
        raise refused(
            node,
            " cannot be compiled with its dropout: call eval() on the module, or write it apart",
        )
    for inner in smaller.graph.nodes:
        # Messages and reports speak of the dropout's line, and not of ours.
        inner.meta |= {key: node.meta[key] for key in _PLACE if key in node.meta}
    places = dict(zip(smaller.graph.find_nodes(op="placeholder"), operands, strict=True))
    with module.graph.inserting_before(node):
        results = _inlined(module, smaller, places)
    _read_instead(node, results)


def _inlined(module: fx.GraphModule, inner: fx.GraphModule, places: dict[fx.Node, Any]) -> Any:
    """Copy the nodes of a graph to where the outer one is being written; return its results."""
    for attribute in inner.graph.find_nodes(op="get_attr"):
        # Of the same name in both, they may be different tensors.
        name = f"inlined_{id(inner)}_{attribute.target}".replace(".", "_")
        content: Any = inner
        for step in str(attribute.target).split("."):
            content = getattr(content, step)
        setattr(module, name, content)
        attribute.target = name
    return module.graph.graph_copy(inner.graph, places)


def _read_instead(node: fx.Node, results: Any) -> None:
    """Let readers of a node's results read others, and take the node away."""
    several = isinstance(node.meta.get("val"), tuple | list)
    if not several:
        node.replace_all_uses_with(results[0] if isinstance(results, tuple | list) else results)
    # A list, as readers are erased meanwhile.
    for user in list(node.users):
        assert user.target is operator.getitem, "several results are read one by one"
        user.replace_all_uses_with(results[user.args[1]])
        user.graph.erase_node(user)
    node.graph.erase_node(node)
