"""Model-local functions: what there is, and how many nodes remain when all are inlined."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx

from samba_onnx.errors import InvalidModelError, ModelLimitError
from samba_onnx.facts.domains import normal_domain
from samba_onnx.safety.files import printable
from samba_onnx.safety.limits import Limits
from samba_onnx.safety.node_checks import FunctionKey, function_key, subgraphs
from samba_onnx.safety.text_checks import check_pairs, check_text

__all__ = ["FunctionKey", "check_expansion", "index_functions"]


def index_functions(proto: onnx.ModelProto) -> dict[FunctionKey, onnx.FunctionProto]:
    """Return the model's functions by what calls them.

    Raises:
        InvalidModelError: A function has no name, or two have the same.
    """
    functions: dict[FunctionKey, onnx.FunctionProto] = {}
    for function in proto.functions:
        check_text((function.domain, function.name, function.overload), "a function's name")
        check_text((*function.input, *function.output, *function.attribute), "a function")
        check_pairs(function.metadata_props, "a function")
        key = (normal_domain(function.domain), function.name, function.overload)
        if not function.name or "\0" in "".join(key):
            raise InvalidModelError("a function's name is empty or holds a NUL character")
        if key in functions:
            raise InvalidModelError(
                f"function {printable(function.domain)}::{printable(function.name)} occurs twice"
            )
        functions[key] = function
    return functions


def check_expansion(
    proto: onnx.ModelProto, functions: dict[FunctionKey, onnx.FunctionProto], limits: Limits
) -> None:
    """Refuse functions that call themselves or expand to too many nodes.

    Raises:
        InvalidModelError: A function calls itself, directly or through others.
        ModelLimitError: Calls nest too deep, or inlining makes too many nodes.
    """
    if not functions:
        return
    # Sizes of functions are kept, so that a function called a million times is walked once.
    sizes: dict[FunctionKey, int] = {}
    own = 0
    for function in functions.values():
        own += sum(1 for _ in _all_nodes(function.node))
    for key in functions:
        _expanded(key, functions, sizes, [], limits)
    total = 0
    for node in _all_nodes(proto.graph.node):
        own += 1
        total += sizes.get(function_key(node), 1)
    # A large file may expand a few times, as one with a call for each layer does; a small one must
    # not explode.
    allowed = max(limits.expanded_nodes, 4 * own)
    if total > allowed:
        raise ModelLimitError(
            f"its functions expand to {total:.3g} nodes, at most {allowed} are safe"
        )


def _expanded(
    key: FunctionKey,
    functions: dict[FunctionKey, onnx.FunctionProto],
    sizes: dict[FunctionKey, int],
    callers: list[FunctionKey],
    limits: Limits,
) -> int:
    """Return the nodes of a function after inlining, each function being counted once."""
    if key in sizes:
        return sizes[key]
    name = f"function {printable(key[0])}::{printable(key[1])}"
    if key in callers:
        raise InvalidModelError(f"{name} calls itself, directly or through others")
    if len(callers) >= limits.call_depth:
        # Nesting is bounded before recursion could be: calls may nest in functions of one node
        # each.
        raise ModelLimitError(f"{name} is called more than {limits.call_depth} calls deep")
    callers.append(key)
    total = 0
    for node in _all_nodes(functions[key].node):
        callee = function_key(node)
        total += _expanded(callee, functions, sizes, callers, limits) if callee in functions else 1
    callers.pop()
    # A function without nodes still takes time to inline.
    sizes[key] = max(total, 1)
    return sizes[key]


def _all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield nodes and those of their subgraphs; nesting was limited before."""
    for node in nodes:
        yield node
        for _, graph in subgraphs(node):
            yield from _all_nodes(graph.node)
