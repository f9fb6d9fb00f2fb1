"""Copies of the nodes of a body, for rewrites that put one or several of them in the place of a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import onnx_ir as ir

from samba_onnx.passes.rewrites.foreign.drafting import Draft
from samba_onnx.program.dataflow import subgraphs

Values = dict["ir.Value | None", "ir.Value | None"]

MOST_NODES: Final = 4096
"""Nodes that take the place of one node at most: a bound on the time and size of unrolled loops, whoever unrolls
them. An LSTM of 128 steps that is written in single operators has 2,048."""


def copy_nodes(
    draft: Draft,
    nodes: Iterable[ir.Node],
    values: Values,
    attributes: Mapping[str, ir.Attr] | None = None,
    suffix: str = "",
) -> None:
    """Write copies of the nodes of a body into a draft.

    Args:
        draft: The draft.
        nodes: The nodes of a body in topological order.
        values: What values of the body are in the draft, in and out; what is missing is of outside.
        attributes: The attributes of a function's call, by name; None where nodes have no references to such.
        suffix: What names of copies have behind those of the body; without it they have none.
    """
    # Attributes are resolved first: a reference to an attribute of a call means nothing outside of
    # the function.
    for node in nodes:
        own = [
            attribute
            for item in node.attributes.values()
            if (attribute := _resolved(item, attributes)) is not None
        ]
        new = ir.Node(
            node.domain,
            node.op_type,
            # Values that are missing in the table are of outside, and copies read them as they are.
            [values.get(value, value) for value in node.inputs],
            [_copied(item, values) for item in own],
            overload=node.overload,
            num_outputs=len(node.outputs),
            version=node.version,
            name=_suffixed(node.name, suffix),
            metadata_props=dict(node.metadata_props),
        )
        draft.nodes.append(new)
        for before, after in zip(node.outputs, new.outputs, strict=True):
            # Names stay recognisable behind a suffix, by which reports tell the steps of a loop
            # apart.
            after.type, after.name = before.type, _suffixed(before.name, suffix)
            values[before] = after


def _suffixed(name: str | None, suffix: str) -> str | None:
    return f"{name}{suffix}" if name and suffix else None


def _resolved(item: ir.Attr, attributes: Mapping[str, ir.Attr] | None) -> ir.Attr | None:
    """Return an attribute with its own value; None for a reference to one that the call leaves out."""
    if not item.is_ref():
        return item
    stated = (attributes or {}).get(item.ref_attr_name or "")
    return None if stated is None else ir.Attr(item.name, stated.type, stated.value)


def _copied(item: ir.Attr, values: Values) -> ir.Attr:
    """Return an attribute with a graph of its own, which reads the values of the draft."""
    if item.type != ir.AttributeType.GRAPH:
        return item
    # A body may read values of all graphs around it, which only are in other places after copying.
    copy = item.as_graph().clone(allow_outer_scope_values=True)
    _rebind(copy, values)
    return ir.Attr(item.name, item.type, copy)


def _rebind(graph: ir.Graph, values: Values) -> None:
    """Let the nodes of a graph read the values of the draft in place of those of the body."""
    for node in graph:
        for place, value in enumerate(node.inputs):
            if value in values:
                node.replace_input_with(place, values[value])
        for inner in subgraphs(node):
            _rebind(inner, values)
    for place, value in enumerate(graph.outputs):
        bound = values.get(value)
        if bound is not None:
            graph.outputs[place] = bound
