"""ATen operators in terms of others, by torch's own rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch
from torch import fx
from torch._decomp import decomposition_table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from samba_onnx.export.decomposition.functionalizing import functionalized
from samba_onnx.export.decomposition.rewriting import rewritten
from samba_onnx.safety.collecting import collections_deferred

_KEPT_META: Final = ("val", "tensor_meta")
_OF_THE_WHOLE: Final = ("nn_module_stack", "stack_trace")


def decomposed(node: fx.Node) -> fx.GraphModule | None:
    """Return an operator as a functional graph of smaller ones.

    Args:
        node: A call of an ATen operator, with ``meta["val"]`` on it and its operands.

    Returns:
        A graph with one placeholder per tensor operand, in the order of ``all_input_nodes``, whose
        nodes carry ``meta["val"]``. None if torch has no rule, or none without effects.
    """
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return None
    for rule, whole in _rules(node, target):
        smaller = traced(rule, node.args, node.kwargs, node.all_input_nodes, whole=whole)
        # A rule may lead back to the operator itself.
        if smaller is not None and all(inner.target != target for inner in smaller.graph.nodes):
            for inner in smaller.graph.nodes:
                inner.meta |= {key: node.meta[key] for key in _OF_THE_WHOLE if key in node.meta}
            return smaller
    return None


def _rules(node: fx.Node, target: Any) -> Iterator[tuple[Callable[..., Any], bool]]:
    """Yield functions that compute an operator, and whether composite operators in it stay whole."""
    # Our own first, which is known to end in what can be written in ONNX.
    own = rewritten(target, node.args, None)
    if own is not None:
        yield own, True
    if target._can_decompose():
        yield target.decompose, False
    if target in decomposition_table:
        # Whole first, as fewer nodes come of it.
        yield decomposition_table[target], True
        yield decomposition_table[target], False


@collections_deferred()
def traced(
    function: Callable[..., Any],
    args: Sequence[Any],
    keywords: dict[str, Any],
    operands: Sequence[fx.Node],
    *,
    whole: bool = True,
    strict: bool = False,
) -> fx.GraphModule | None:
    """Return the functional graph of a function of nodes of another graph.

    Args:
        function: Anything that computes with torch.
        args: Its operands, among them nodes.
        keywords: The same by name.
        operands: All nodes among them.
        whole: Whether composite operators such as ``linear`` stay whole.
        strict: Raise what the function raises.

    Returns:
        As ``decomposed``; None if the function cannot be traced.
    """
    examples = [operand.meta["val"] for operand in operands]

    def call(*tensors: torch.Tensor) -> Any:
        known = dict(zip(operands, tensors, strict=True))
        positional, named = fx.node.map_arg((tuple(args), keywords), lambda node: known[node])
        return pytree.tree_leaves(function(*map(_mutable, positional), **named))

    try:
        with _fake_mode(examples), torch.no_grad():
            # "real", since the examples are without content already.
            graph_module = make_fx(call, tracing_mode="real", pre_dispatch=whole)(*examples)
    # torch's rules refuse what they do not know by any of these.
    except (ArithmeticError, NotImplementedError, RuntimeError):
        if strict:
            raise
        return None
    for node in graph_module.graph.nodes:
        # Stacks are those of the rule's code, and say nothing of the user's.
        node.meta = {key: node.meta[key] for key in _KEPT_META if key in node.meta}
    return functionalized(graph_module)


def _mutable(operand: Any) -> Any:
    """Return a list of a node as a plain one, which some of torch's rules change."""
    return list(operand) if isinstance(operand, list) else operand


def _fake_mode(examples: Sequence[Any]) -> FakeTensorMode:
    for example in pytree.tree_leaves(list(examples)):
        if isinstance(example, torch._subclasses.FakeTensor):
            return example.fake_mode
    return FakeTensorMode(allow_non_fake_inputs=True)
