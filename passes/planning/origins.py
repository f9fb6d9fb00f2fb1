"""Which neighbouring nodes are one operator of the model that they come from."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence

import onnx_ir as ir

from samba_onnx.facts.names import SEPARATOR
from samba_onnx.passes.planning.products import is_product, renames, widened_for
from samba_onnx.passes.sharding.collectives import is_collective
from samba_onnx.program.scopes import OPERATOR_KEY, OWN_SCOPE_KEY
from samba_onnx.program.source_location import STACK_TRACE

__all__ = ["by_operator"]


def by_operator(nodes: Sequence[ir.Node]) -> Iterator[tuple[ir.Node, ...]]:
    """Yield nodes by operator: one each, but for what our exporter made of one operator.

    Of a torch program an operator is what torch computes by one, with all nodes that it takes, and so are its
    gradients. What goes through elements one by one is an expression: all of it that stands in one line
    of a module. Products are alone, but for what widens their operands.
    """
    known = set(nodes)
    others: list[ir.Node] = []
    widening: dict[ir.Node, list[ir.Node]] = defaultdict(list)
    for node in nodes:
        product = widened_for(node)
        (widening[product] if product is not None and product in known else others).append(node)
    for own in _runs(others):
        yield (*widening.get(own[0], ()), *own)


def _runs(nodes: Sequence[ir.Node]) -> Iterator[tuple[ir.Node, ...]]:
    for key, run in itertools.groupby(nodes, key=_origin):
        own = tuple(run)
        if key:
            yield own
        else:
            yield from ((node,) for node in own)


def _origin(node: ir.Node) -> tuple[str, ...]:
    """Return module, line and operator that a node comes from; empty for one that is an operator by itself."""
    scope = node.metadata_props.get(OWN_SCOPE_KEY, "")
    if not scope or is_product(node) or is_collective(node):
        return ()
    module, _, operator = scope.rpartition(SEPARATOR)
    own = module if operator.endswith("_bwd") else scope
    # Other names of elements take no time; they stay with what stands in their line.
    whole = "" if renames(node) else node.metadata_props.get(OPERATOR_KEY, "")
    return own, node.metadata_props.get(STACK_TRACE, ""), whole
