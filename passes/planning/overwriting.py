"""Lets an output that shares a region with an input be written when nobody needs the input any more.

Sections run one after the other, and each leaves what it writes in device memory. So of two values in
one region, the new one has to be written by a section that none follows that reads the old one. Within
a section the engine sees to that. Nothing of this concerns values that are read on the way to the new
one: who reads those runs before it anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from samba_onnx.facts.names import FreeNames
from samba_onnx.passes.planning.partitioning import Group
from samba_onnx.passes.planning.roles import Roles
from samba_onnx.program.dataflow import Dataflow, name_of

__all__ = ["copy_what_is_read_on", "overwrite_last"]


def copy_what_is_read_on(graph: ir.Graph, regions: Mapping[str, str]) -> None:
    """Give an output a place of its own that is read beside the input that it overwrites.

    1. The output is computed, and has the region of an input of the graph.
    2. The input has a reader that the output does not depend on.
    3. The output has readers, too.

    A copy into the region is put at the end of the graph, and nobody reads the copy.

    Args:
        graph: In topological order; it is changed.
        regions: Region by the name of a value, where it is not the value's own name.
    """
    # Case 1. Few programs have such pairs, and no others need to know who depends on whom.
    pairs = list(_pairs(graph.inputs, graph.outputs, regions))
    if not pairs:
        return
    flow = Dataflow.of(graph)
    names = FreeNames(
        {value.name for node in graph for value in node.outputs if value.name}, first=2
    )
    copied: set[ir.Value] = set()
    for old, new in pairs:
        # Cases 3 and 2. An output that nobody reads needs no copy: `overwrite_last` moves the node itself.
        if new in copied or new not in flow.readers or not _late_readers(flow, old, new):
            continue
        copied.add(new)
        _copy(graph, new, names)


def overwrite_last(groups: Sequence[Group], roles: Roles) -> tuple[Group, ...]:
    """Return groups in which no value is overwritten before a later group has read it.

    A node whose result would be there too early becomes a group of its own, behind the last of its part that
    reads the old value.

    Args:
        groups: In execution order, of a graph for which ``copy_what_is_read_on`` was called.
        roles: What inputs and outputs are to the device.
    """
    nodes = [node for group in groups for node in group.nodes]
    written = (*roles.outputs, *(v for v in roles.residents if v.producer() is not None))
    read = (*roles.inputs, *(v for v in roles.residents if v.producer() is None))
    pairs = list(_pairs(read, tuple(dict.fromkeys(written)), roles.regions))
    if not pairs:
        return tuple(groups)
    flow = Dataflow.of(nodes)
    place = {node: index for index, group in enumerate(groups) for node in group.nodes}
    moves: dict[ir.Node, int] = {}
    for old, new in pairs:
        producer = new.producer()
        # What has readers still is read on by nobody, or its copy has taken its place as an output.
        if producer not in place or new in flow.readers:
            continue
        # From part to part a region hands on what is in it: the gradients that a backward adds to, and that
        # ZEROGRAD sets to zero before, are meant for whoever reads them after it.
        kind = groups[place[producer]].type
        readers = (place[flow.nodes[reader]] for reader in flow.readers.get(old, ()))
        last = max((reader for reader in readers if groups[reader].type is kind), default=-1)
        if last > place[producer]:
            moves[producer] = max(last, moves.get(producer, last))
    return _moved(groups, moves) if moves else tuple(groups)


def _pairs(
    inputs: Sequence[ir.Value], outputs: Sequence[ir.Value], regions: Mapping[str, str]
) -> Iterator[tuple[ir.Value, ir.Value]]:
    """Yield the inputs with the outputs that share their regions."""

    def region(value: ir.Value) -> str:
        name = name_of(value)
        return regions.get(name, name)

    by_region: dict[str, list[ir.Value]] = {}
    for value in inputs:
        by_region.setdefault(region(value), []).append(value)
    for new in outputs:
        if new.producer() is not None:
            yield from ((old, new) for old in by_region.get(region(new), ()))


def _late_readers(flow: Dataflow, old: ir.Value, new: ir.Value) -> set[int]:
    """Return the readers of an old value that need not run before the new one is computed."""
    pending = [flow.producer[new]]
    before = set(pending)
    while pending:
        for earlier in flow.predecessors(pending.pop()):
            if earlier not in before:
                before.add(earlier)
                pending.append(earlier)
    return set(flow.readers.get(old, ())) - before


def _copy(graph: ir.Graph, new: ir.Value, names: FreeNames) -> None:
    """Put a copy of an output at the end of its graph, in the output's place and of its name."""
    name = name_of(new)
    copy = ir.node("Identity", [new], name=f"{name}__overwrite")
    (last,) = copy.outputs
    last.type, last.shape = new.type, new.shape
    new.name = names.take(name)
    last.name = name
    graph.append(copy)
    # A graph may return one value several times.
    places = [index for index, value in enumerate(graph.outputs) if value is new]
    for index in places:
        graph.outputs[index] = last


def _moved(groups: Sequence[Group], moves: Mapping[ir.Node, int]) -> tuple[Group, ...]:
    """Return the groups without the nodes that move, each of these behind the group that it must follow."""
    pieces: list[Group] = []
    for index, group in enumerate(groups):
        stay = tuple(node for node in group.nodes if node not in moves)
        if stay:
            pieces.append(replace(group, nodes=stay))
        homes = {
            node: other for other in groups for node in other.nodes if moves.get(node) == index
        }
        # One group each: what they do belongs to no rule of fusion.
        pieces += [
            replace(group, nodes=(node,), home=home.home, rule="") for node, home in homes.items()
        ]
    return tuple(pieces)
