"""Which neighbouring nodes are one operator of the model that they come from."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import onnx_ir as ir

from samba_onnx.facts.domains import DROPOUT_MASK
from samba_onnx.facts.names import SEPARATOR
from samba_onnx.passes.sharding.collectives import is_collective
from samba_onnx.passes.timing.matrix_products import is_product, renames, widened_for
from samba_onnx.program.scopes import OPERATOR_KEY, OWN_SCOPE_KEY
from samba_onnx.program.source_location import STACK_TRACE

__all__ = ["by_operator"]


def by_operator(nodes: Sequence[ir.Node]) -> Iterator[tuple[ir.Node, ...]]:
    """Yield nodes by operator: one each, but for what our exporter made of one operator.

    Of a torch program an operator is what torch computes by one, with all nodes that it takes, and so are its
    gradients. What goes through elements one by one is an expression: all of it that stands in one line
    of a module. Products are alone, but for what widens their operands.
    """
    members = set(nodes)
    others: list[ir.Node] = []
    widening: dict[ir.Node, list[ir.Node]] = defaultdict(list)
    for node in nodes:
        product = widened_for(node)
        (widening[product] if product is not None and product in members else others).append(node)
    for run in _with_masks(list(_runs(others))):
        # A product is a run of one node, so that what widens for it is found under the first.
        yield (*widening.get(run[0], ()), *run)


def _with_masks(runs: Sequence[tuple[ir.Node, ...]]) -> Iterator[tuple[ir.Node, ...]]:
    """Yield runs, with what draws the mask of a dropout in the run that reads it.

    A backward draws masks again, from numbers alone: a section that did nothing else would write the mask for
    another one to read it.
    """
    place = {node: index for index, run in enumerate(runs) for node in run}
    drawn: dict[int, list[tuple[ir.Node, ...]]] = defaultdict(list)
    for index, run in enumerate(runs):
        reader = _only_reader(run, place) if _draws_mask(run) else None
        if reader is None:
            yield (*itertools.chain.from_iterable(drawn.pop(index, ())), *run)
        else:
            drawn[reader] += [*drawn.pop(index, ()), run]


def _draws_mask(run: Sequence[ir.Node]) -> bool:
    """Return whether nodes draw a mask from numbers, or go on with what they drew."""
    if not any(node.op_type == DROPOUT_MASK for node in run):
        return False
    outputs = {output for node in run for output in node.outputs}
    read = (value for node in run for value in node.inputs if value is not None)
    # Seeds, rates and shapes have one axis at most; a value with more is data, which the run is there to
    # work on.
    return all(value in outputs or value.shape is None or value.shape.rank() <= 1 for value in read)


def _only_reader(run: Sequence[ir.Node], place: Mapping[ir.Node, int]) -> int | None:
    """Return the one run behind this one that reads what it writes; None where there are others, or none may join it."""
    outputs = [output for node in run for output in node.outputs]
    if any(output.is_graph_output() for output in outputs):
        return None
    users = {user for output in outputs for user, _ in output.uses()}
    # A product or an exchange would not be alone any more.
    if any(map(_is_alone, users)):
        return None
    readers = {place.get(user) for user in users}
    # What the run reads of itself stays inside.
    readers -= {place[run[0]]}
    return readers.pop() if len(readers) == 1 else None


def _is_alone(node: ir.Node) -> bool:
    """Return whether nothing else is computed in the section of a node."""
    return is_product(node) or is_collective(node)


def _runs(nodes: Sequence[ir.Node]) -> Iterator[tuple[ir.Node, ...]]:
    for key, run in itertools.groupby(nodes, key=_origin):
        members = tuple(run)
        if key:
            yield members
        else:
            yield from ((node,) for node in members)


def _origin(node: ir.Node) -> tuple[str, ...]:
    """Return module, line and operator that a node comes from; empty for one that is an operator by itself."""
    scope = node.metadata_props.get(OWN_SCOPE_KEY, "")
    if not scope or _is_alone(node):
        return ()
    module, _, operator = scope.rpartition(SEPARATOR)
    # The scope of a gradient ends in the name of its operator, that of a forward node in its module.
    place = module if operator.endswith("_bwd") else scope
    # Other names of elements take no time; they stay with what stands in their line.
    operator_key = "" if renames(node) else node.metadata_props.get(OPERATOR_KEY, "")
    return place, node.metadata_props.get(STACK_TRACE, ""), operator_key
