"""Which neighbouring nodes are one operator of the model that they come from."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import onnx_ir as ir

from samba_onnx.facts.names import SEPARATOR
from samba_onnx.passes.planning.products import is_product
from samba_onnx.passes.sharding.collectives import is_collective
from samba_onnx.program.scopes import OWN_SCOPE_KEY
from samba_onnx.program.source_location import STACK_TRACE

__all__ = ["by_operator"]


def by_operator(nodes: Sequence[ir.Node]) -> Iterator[tuple[ir.Node, ...]]:
    """Yield nodes by operator: one each, but for what our exporter made of one operator.

    An operator of a torch program that is no product is what stands in one line of a module: its nodes
    follow each other, with the same module and the same place in the source, and so do its gradients.
    """
    for key, run in itertools.groupby(nodes, key=_origin):
        own = tuple(run)
        if key:
            yield own
        else:
            yield from ((node,) for node in own)


def _origin(node: ir.Node) -> tuple[str, ...]:
    """Return module and line that a node comes from; empty for one that is an operator by itself."""
    scope = node.metadata_props.get(OWN_SCOPE_KEY, "")
    if not scope or is_product(node) or is_collective(node):
        return ()
    module, _, operator = scope.rpartition(SEPARATOR)
    own = module if operator.endswith("_bwd") else scope
    return own, node.metadata_props.get(STACK_TRACE, "")
