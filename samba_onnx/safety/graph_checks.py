"""Decide in Python, in linear time and without weights, whether a model may reach native code.

onnx's checker, its shape inference and onnxruntime crash, hang or allocate without bound on some
malformed models. ``check_model`` refuses those first, with the place named, and accepts whatever a
runtime could make sense of: custom domains, unsorted but acyclic graphs, missing names of nodes,
missing types of inner values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import onnx

from samba_onnx.errors import InvalidModelError, ModelError
from samba_onnx.facts.domains import ONNXRUNTIME_DOMAINS, is_default, normal_domain
from samba_onnx.safety.files import printable
from samba_onnx.safety.function_checks import FunctionKey, check_expansion, index_functions
from samba_onnx.safety.limits import DEFAULT_LIMITS, Limits
from samba_onnx.safety.node_checks import check_nesting, check_node, label, subgraphs
from samba_onnx.safety.operators import newest_version
from samba_onnx.safety.tensor_checks import (
    ExternalSize,
    check_sparse_tensor,
    check_tensor,
    check_type,
    is_whole_type,
)
from samba_onnx.safety.text_checks import check_pairs, check_text
from samba_onnx.safety.value_checks import Constants, check_values

__all__ = ["check_model"]

_BEFORE_NODES = -1
"""Index of the definition of inputs and initializers."""


def check_model(
    proto: onnx.ModelProto,
    *,
    name: str = "",
    external_size: ExternalSize | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> None:
    """Check a model in Python only, before any native code sees it.

    Args:
        proto: The model. It is not changed, and its weights are measured, not read.
        name: What messages begin with, as the file's name; empty leaves that to the caller.
        external_size: Called with each location of external data; returns the size in bytes of
            the file there, or raises ModelFileError. None refuses external data.
        limits: Bounds on what the model may ask for.

    Raises:
        InvalidModelError: The model breaks the rules of ONNX; the message names the place.
        ModelLimitError: The model asks for more than ``limits`` allow.
        ModelFileError: ``external_size`` raised it.
    """
    try:
        _check(proto, external_size, limits)
    except ModelError as error:
        raise (error.within(printable(name)) if name else error) from None


def _check(proto: onnx.ModelProto, external_size: ExternalSize | None, limits: Limits) -> None:
    # A message without any field parses as well.
    if not proto.HasField("graph"):
        raise InvalidModelError("it holds no graph: this is no ONNX model, or a truncated one")
    if not limits.oldest_ir_version <= proto.ir_version <= limits.newest_ir_version:
        raise InvalidModelError(
            f"its IR version is {proto.ir_version}, versions {limits.oldest_ir_version} to "
            f"{limits.newest_ir_version} are supported: {_version_advice(proto.ir_version, limits.oldest_ir_version)}"
        )
    check_text(
        [proto.producer_name, proto.producer_version, proto.domain, proto.doc_string], "model"
    )
    check_pairs(proto.metadata_props, "model")
    opsets = _opsets(proto.opset_import, limits)
    functions = index_functions(proto)
    scope = _Scope(opsets, functions, external_size, limits, in_function=False)
    free = _check_graph(proto.graph, scope, "graph", Constants(), depth=0)
    _refuse_undefined(free, "the graph")
    # Functions are checked by themselves, as inference and inlining look at them even if nobody
    # calls them.
    for (domain, function_name, _), function in functions.items():
        where = f"function {printable(domain)}::{printable(function_name)}"
        inner = _Scope(
            _opsets(function.opset_import, limits),
            functions,
            external_size,
            limits,
            in_function=True,
        )
        _check_function(function, inner, where)
    check_expansion(proto, functions, limits)


def _opsets(imports: Iterable[onnx.OperatorSetIdProto], limits: Limits) -> dict[str, int]:
    """Return the version of each domain that is imported or needs no import, all known to be supported."""
    opsets: dict[str, int] = {}
    for entry in imports:
        check_text([entry.domain], "operator set")
        domain = normal_domain(entry.domain)
        if opsets.setdefault(domain, entry.version) != entry.version:
            raise InvalidModelError(
                f"it imports two versions of operator set {printable(domain or 'ai.onnx')}"
            )
        # None for a custom domain, of which any version may be right.
        newest = newest_version(domain)
        oldest = limits.oldest_opset if is_default(domain) else 1
        if entry.version < oldest or (newest is not None and entry.version > newest):
            raise InvalidModelError(
                f"it imports version {entry.version} of operator set "
                f"{printable(domain or 'ai.onnx')}, versions {oldest} to {newest or 'any'} are "
                f"supported: {_version_advice(entry.version, oldest)}"
            )
    if not opsets:
        raise InvalidModelError("it imports no operator set: this is no complete ONNX model")
    for domain in ONNXRUNTIME_DOMAINS:  # onnxruntime needs no import of its own operators
        opsets.setdefault(domain, 1)
    return opsets


def _version_advice(version: int, oldest: int) -> str:
    """Return what to do about a version that is not supported."""
    if version < oldest:
        return "export it again with an exporter of today; the file may also be damaged"
    return (
        "export it again for one of these (torch.onnx.export takes opset_version), or install a newer "
        "onnx package, which knows more of them"
    )


@dataclass(frozen=True)
class _Scope:
    """What is the same for a graph and all of its subgraphs."""

    opsets: dict[str, int]
    functions: dict[FunctionKey, onnx.FunctionProto]
    external_size: ExternalSize | None
    limits: Limits
    in_function: bool


def _check_function(function: onnx.FunctionProto, scope: _Scope, where: str) -> None:
    defined = _define(function.input, {}, f"{where}, input")
    _define(function.output, {}, f"{where}, output")
    for info in function.value_info:
        check_type(info.type, f"{where}, value {printable(info.name)!r}", scope.limits)
    free = _check_nodes(function.node, defined, scope, where, Constants(), depth=0)
    for name in function.output:
        if name not in defined:
            free.setdefault(name, "its list of outputs")
    _refuse_undefined(free, where)


def _check_graph(
    graph: onnx.GraphProto, scope: _Scope, where: str, constants: Constants, *, depth: int
) -> dict[str, str]:
    """Check a graph with its subgraphs.

    Returns:
        The names that the graph takes from the graphs around it, each with its first user.
    """
    check_nesting(depth, where, scope.limits)
    check_text([graph.name, graph.doc_string], where)
    check_pairs(graph.metadata_props, where)
    inputs = [info.name for info in graph.input]
    defined = _define(inputs, {}, f"{where}, input")
    declared = _check_declared_types(graph, scope, where, main=depth == 0)
    constants = Constants(constants, inputs)
    # Declared types tell lengths of operands that are no constants.
    for name, declared_type in declared.items():
        constants.add_type(name, declared_type)
    _check_initializers(graph, scope, where, defined, declared, constants)
    free = _check_nodes(graph.node, defined, scope, where, constants, depth=depth)
    outputs = [info.name for info in graph.output]
    _define(outputs, {}, f"{where}, output")
    for name in outputs:
        if name not in defined:
            raise InvalidModelError(
                f"{where}: output {printable(name)!r} is defined by nothing in this graph"
            )
    return free


def _define(names: Iterable[str], defined: dict[str, int], where: str) -> dict[str, int]:
    """Enter names that are there before the first node, refusing empty ones and duplicates."""
    for name in names:
        _check_name(name, where)
        if name in defined:
            raise InvalidModelError(f"{where} {printable(name)!r} occurs twice")
        defined[name] = _BEFORE_NODES
    return defined


def _check_name(name: str, where: str) -> None:
    check_text([name], where)
    if not name:
        raise InvalidModelError(f"{where} has an empty name")
    if "\0" in name:
        raise InvalidModelError(f"{where} {printable(name)!r} has a NUL character in its name")


def _check_declared_types(
    graph: onnx.GraphProto, scope: _Scope, where: str, *, main: bool
) -> dict[str, onnx.TypeProto.Tensor]:
    """Check all declared types; return the tensor types among them by name."""
    declared: dict[str, onnx.TypeProto.Tensor] = {}
    for kind, infos in (
        ("input", graph.input),
        ("value", graph.value_info),
        ("output", graph.output),
    ):
        for info in infos:
            if main and kind == "input" and not is_whole_type(info.type):
                raise InvalidModelError(f"{where}, input {printable(info.name)!r} has no type")
            place = f"{where}, {kind} {printable(info.name)!r}"
            check_text([info.name, info.doc_string], place)
            check_pairs(info.metadata_props, place)
            tensor = check_type(info.type, place, scope.limits)
            if tensor is not None:
                declared.setdefault(info.name, tensor)
    return declared


def _check_initializers(
    graph: onnx.GraphProto,
    scope: _Scope,
    where: str,
    defined: dict[str, int],
    declared: dict[str, onnx.TypeProto.Tensor],
    constants: Constants,
) -> None:
    """Check initializers and enter their names; one may give an input its default value."""
    seen: dict[str, int] = {}
    for tensor in graph.initializer:
        place = f"{where}, initializer {printable(tensor.name)!r}"
        _define([tensor.name], seen, f"{where}, initializer")
        check_tensor(tensor, place, scope.limits, scope.external_size)
        if tensor.name in declared:
            _check_agreement(tensor, declared[tensor.name], place)
        constants.add_tensor(tensor.name, tensor)
    for sparse in graph.sparse_initializer:
        name = sparse.values.name
        _define([name], seen, f"{where}, sparse initializer")
        check_sparse_tensor(
            sparse, f"{where}, sparse initializer {printable(name)!r}", scope.limits
        )
    defined.update(seen)


def _check_agreement(tensor: onnx.TensorProto, declared: onnx.TypeProto.Tensor, where: str) -> None:
    """Refuse an initializer whose declared type or shape says something else."""
    if declared.elem_type not in {onnx.TensorProto.UNDEFINED, tensor.data_type}:
        raise InvalidModelError(
            f"{where}: its data type is {tensor.data_type}, but it is declared as "
            f"{declared.elem_type}"
        )
    if not declared.HasField("shape"):
        return
    # -1 stands for a dimension by name, which any size fits.
    dims = [d.dim_value if d.HasField("dim_value") else -1 for d in declared.shape.dim]
    if len(dims) != len(tensor.dims) or any(
        a not in {-1, b} for a, b in zip(dims, tensor.dims, strict=True)
    ):
        raise InvalidModelError(
            f"{where}: its shape is {printable(list(tensor.dims), 60)}, but it is declared as "
            f"{printable(dims, 60)}"
        )


def _check_nodes(
    nodes: Sequence[onnx.NodeProto],
    defined: dict[str, int],
    scope: _Scope,
    where: str,
    constants: Constants,
    *,
    depth: int,
) -> dict[str, str]:
    """Check nodes in any order; enter their outputs into ``defined``; return the free names."""
    # All outputs first, then all uses: nodes may stand in any order.
    for index, node in enumerate(nodes):
        check_text(node.output, label(node, index, where))
        for name in node.output:
            if not name:
                continue
            if name in defined or "\0" in name:
                fault = "is already defined" if name in defined else "holds a NUL character"
                raise InvalidModelError(
                    f"{label(node, index, where)}: output {printable(name)!r} {fault}",
                    node=node.name,
                    operator=node.op_type,
                )
            defined[name] = index
        constants.add_node(node)
    free: dict[str, str] = {}
    uses: list[list[str]] = []
    # Cycles are looked for only where the order is wrong already, which in nearly no model it is.
    is_sorted = True
    for index, node in enumerate(nodes):
        used = list(_check_one(node, index, scope, where, constants, depth))
        uses.append(used)
        for name in used:
            position = defined.get(name)
            if position is None:
                free.setdefault(name, label(node, index, where))
            elif position >= index:
                is_sorted = False
    if not is_sorted:
        _refuse_cycle(nodes, uses, defined, where)
    return free


def _check_one(
    node: onnx.NodeProto,
    index: int,
    scope: _Scope,
    where: str,
    constants: Constants,
    depth: int,
) -> Iterator[str]:
    """Check one node with its subgraphs; yield the names that it uses."""
    try:
        check_node(
            node,
            scope.opsets,
            scope.functions,
            scope.limits,
            scope.external_size,
            in_function=scope.in_function,
        )
        check_values(node, constants, scope.limits)
    except ModelError as error:
        place = label(node, index, where)
        raise error.within(place, node=node.name, operator=node.op_type) from None
    for name in node.input:
        if name:
            yield name
    for attribute, graph in subgraphs(node):
        place = f"{label(node, index, where)}, subgraph {printable(attribute)!r}"
        yield from _check_graph(graph, scope, place, constants, depth=depth + 1)


def _refuse_undefined(free: dict[str, str], where: str) -> None:
    for name, user in free.items():
        raise InvalidModelError(
            f"{user} uses value {printable(name)!r}, which nothing in {where} defines"
        )


def _refuse_cycle(
    nodes: Sequence[onnx.NodeProto],
    uses: list[list[str]],
    defined: dict[str, int],
    where: str,
) -> None:
    """Accept nodes in the wrong order, unless no order is right."""
    # Kahn's algorithm, without recursion: chains may be as long as the model.
    waiting = [0] * len(nodes)
    users: list[list[int]] = [[] for _ in nodes]
    for index, used in enumerate(uses):
        for name in used:
            producer = defined.get(name, _BEFORE_NODES)
            if producer >= 0:
                waiting[index] += 1
                users[producer].append(index)
    ready = [index for index, count in enumerate(waiting) if not count]
    done = 0
    while ready:
        done += 1
        for user in users[ready.pop()]:
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    if done < len(nodes):
        index = next(index for index, count in enumerate(waiting) if count)
        raise InvalidModelError(
            f"{label(nodes[index], index, where)}: it is part of a cycle or depends on one",
            node=nodes[index].name,
            operator=nodes[index].op_type,
        )
