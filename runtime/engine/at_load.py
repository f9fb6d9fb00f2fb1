"""Splits a fallback into what is computed once, when weights are loaded, and what every run computes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

import onnx

from samba_onnx.errors import PefFormatError


def split_at_load(
    model: onnx.ModelProto, nodes: Collection[str], fixed: Collection[str], title: str
) -> tuple[onnx.ModelProto, onnx.ModelProto | None] | None:
    """Split a model.

    Args:
        model: A step with its weights in place; it is not changed.
        nodes: Names of the nodes that the PEF says are computed at load.
        fixed: Inputs whose values only loading changes.
        title: What messages call the step.

    Returns:
        What is computed at load, whose outputs are what the rest reads of it and outputs of the whole; and what
        every run computes, None where nothing is left. None alone where no node is computed at load.

    Raises:
        PefFormatError: One of these nodes reads something else, or a value between the parts has no type.
    """
    first = [node for node in model.graph.node if node.name in nodes]
    if not first:
        return None
    rest = [node for node in model.graph.node if node.name not in nodes]
    written = {name for node in first for name in node.output if name}
    outputs = [value.name for value in model.graph.output]
    read = dict.fromkeys([*_reads(rest), *outputs])
    between = [name for name in read if name in written]
    known = {*fixed, *(tensor.name for tensor in model.graph.initializer)}
    # A PEF may have been changed by anybody. Computed once, a value that depends on inputs
    # would be that of the first run in all later ones.
    strange = [name for name in _reads(first) if name not in known and name not in written]
    if strange:
        raise PefFormatError(
            f"{title} computes at load what needs {strange[0]!r}, which runs change; convert the model "
            "again"
        )
    left = [name for name in outputs if name not in written]
    return (
        _part(model, first, [], between, title),
        # Without an output left there is nothing that a run has to compute.
        _part(model, rest, between, left, title) if left else None,
    )


def _part(
    model: onnx.ModelProto,
    nodes: Sequence[onnx.NodeProto],
    more_inputs: Sequence[str],
    outputs: Sequence[str],
    title: str,
) -> onnx.ModelProto:
    """Return a model of some nodes, which reads inputs of the whole and others."""
    graph = model.graph
    types = {value.name: value for value in (*graph.input, *graph.value_info, *graph.output)}
    read = set(_reads(nodes))
    inputs = [value.name for value in graph.input if value.name in read]
    inputs += [name for name in more_inputs if name in read]
    untyped = [name for name in (*inputs, *outputs) if name not in types]
    if untyped:
        raise PefFormatError(f"{title} states no type for {untyped[0]!r}; convert the model again")
    written = {name for node in nodes for name in node.output}
    ends = {*inputs, *outputs}
    part = onnx.ModelProto(
        ir_version=model.ir_version,
        opset_import=model.opset_import,
        functions=model.functions,
        graph=onnx.GraphProto(
            name=graph.name,
            node=nodes,
            input=[types[name] for name in inputs],
            output=[types[name] for name in outputs],
            initializer=[tensor for tensor in graph.initializer if tensor.name in read],
            value_info=[
                value
                for value in graph.value_info
                if value.name in written and value.name not in ends
            ],
        ),
    )
    return part


def _reads(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    """Yield the names that nodes and their bodies read; those that bodies define are among them."""
    for node in nodes:
        yield from (name for name in node.input if name)
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from _reads(body.node)
                yield from (value.name for value in body.output)
