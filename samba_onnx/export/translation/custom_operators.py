"""Uses of users' own operators, written as their programs say."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
from torch import fx

from samba_onnx.errors import ModelError, SambaError
from samba_onnx.export.decomposition.torch_decompositions import traced
from samba_onnx.export.decomposition.tracing_logs import without_tracebacks
from samba_onnx.export.naming import refused
from samba_onnx.export.operators.custom import CustomRule
from samba_onnx.export.operators.custom_context import TranslationContext
from samba_onnx.export.translation.builder import element, sizes
from samba_onnx.program.source_location import user_line


def custom_results(
    rule: CustomRule,
    node: fx.Node,
    context: TranslationContext,
    arguments: Sequence[Any],
    operands: Sequence[Any],
    nested: Callable[[fx.GraphModule], Any],
) -> Any:
    """Write a use of an operator by the rule that a user registered for it.

    Args:
        rule: A translation or a decomposition.
        node: The use, with ``meta["val"]`` on it and its operands.
        context: What a translation is given.
        arguments: What the operator is called with, in the order of its schema.
        operands: The same, with values in the place of nodes.
        nested: Translates a graph that computes the node from its operands.

    Returns:
        A value, or a list of them if the operator has several results.

    Raises:
        ModelError: The rule failed, or returned something else than the operator does.
    """
    try:
        answer = (
            nested(_smaller(rule, node, arguments))
            if rule.is_decomposition
            else rule.function(context, *operands)
        )
    except SambaError as error:
        raise refused(node, f": its {rule.kind} at {rule.place} cannot be used: {error}") from error
    except Exception as error:  # whatever the user's function raises
        raise refused(node, f": its {rule.kind} {_failure(error, rule)}") from error
    results = list(answer) if isinstance(answer, list | tuple) else [answer]
    wrong = _difference(results, context)
    if wrong:
        raise refused(node, f": its {rule.kind} at {rule.place} {wrong}")
    return results if isinstance(node.meta.get("val"), list | tuple) else results[0]


def _smaller(rule: CustomRule, node: fx.Node, arguments: Sequence[Any]) -> fx.GraphModule:
    """Return the graph that a decomposition makes of a use."""
    with without_tracebacks():
        smaller = traced(rule.function, arguments, {}, node.all_input_nodes, strict=True)
    if smaller is None:
        raise ModelError("it writes into what it is given: let it compute new tensors")
    if any(inner.target == node.target for inner in smaller.graph.nodes):
        raise ModelError("it calls the operator itself: let it compute with others")
    return smaller


def _difference(results: Sequence[Any], context: TranslationContext) -> str:
    """Return what is wrong with results, by what the fake kernel states; empty if nothing is."""
    expected = context.results
    if len(results) != len(expected):
        return (
            f"returned {len(results)} {'value' if len(results) == 1 else 'values'}, but the operator "
            f"has {len(expected)} {'result' if len(expected) == 1 else 'results'}: return a list of as "
            "many"
        )
    for index, (value, spec) in enumerate(zip(results, expected, strict=True)):
        if spec is None:
            continue
        wanted = f"{spec.dtype.name} {list(spec.shape)} by the operator's fake kernel"
        if not isinstance(value, ir.Value) or value.dtype is None or value.shape is None:
            return f"returned {type(value).__name__} as result {index}, which is {wanted}"
        if (element(value), sizes(value)) != (spec.dtype, spec.shape):
            made = f"{element(value).name} {list(sizes(value))}"
            return f"returned {made} as result {index}, which is {wanted}"
        if value.graph is not context.build.graph:
            return f"returned a value of another graph as result {index}: compute it for each use"
    return ""


def _failure(error: Exception, rule: CustomRule) -> str:
    """Say where a user's function failed, and with what."""
    # Without a line of the user's, the call itself failed.
    place = user_line("".join(traceback.format_tb(error.__traceback__))) or rule.place
    reason = " ".join(str(error).split())[:300]
    return f"failed at {place}: {type(error).__name__}: {reason}"
