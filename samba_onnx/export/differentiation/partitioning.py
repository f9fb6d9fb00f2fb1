"""Cuts a joint graph into forward and backward where least has to be kept between them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, fx
from torch._ops import OpOverload

from samba_onnx.program.minimum_cut import ENDLESS, SINK, SOURCE, Network

aten = torch.ops.aten

_FREE: Final = frozenset(
    {
        aten.reshape.default,
        aten.squeeze.dim,
        aten.squeeze.dims,
        aten.unsqueeze.default,
        aten.view.default,
    }
)
"""No bytes move."""
_CHEAP: Final = _FREE | {
    aten.expand.default,
    aten.permute.default,
    aten.select.int,
    aten.slice.Tensor,
    aten.split.Tensor,
    aten.split_with_sizes.default,
    aten.t.default,
    aten.transpose.int,
    aten.unbind.int,
}
"""Computed again rather than kept."""

LARGE_MASK: Final = 1 << 22
"""Elements from which the mask of a dropout is drawn again rather than kept: it depends on its seed only, and the
RDU draws it in less time than it takes to write and read it. Smaller ones are kept for the emulator's sake."""

_TIE: Final = 4
"""Costs are bytes times this, plus what decides between values of one size."""


@dataclass(frozen=True)
class Half:
    """One part of a joint graph; its nodes are copies that kept their metadata."""

    module: fx.GraphModule
    inputs: tuple[fx.Node, ...]
    """Nodes of the joint graph, in the order of the placeholders."""
    outputs: tuple[fx.Node, ...]
    """Nodes of the joint graph, in the order of the results."""


def partition(
    joint: fx.GraphModule,
    results: Sequence[fx.Node],
    gradients: Sequence[fx.Node],
    seeds: Collection[fx.Node],
    volatile: Collection[fx.Node] = (),
    *,
    keeps_activations: bool = False,
) -> tuple[Half, Half]:
    """Split a joint graph so that the fewest bytes are kept between its halves.

    Views, elementwise arithmetic and large masks of dropouts are computed again, which takes no longer
    than to write and read their results; what only the backward needs is computed on the side where it is smaller;
    nothing else is computed twice. Inputs of the graph and results of the forward cost
    nothing, for they are in memory anyway.

    Elementwise arithmetic takes longer than that where it does not share a section with what reads its
    result: it reads its operands from memory and writes the result there. Programs that are cut so keep
    activations, as torch does; what follows from a mask alone is computed again all the same.

    Args:
        joint: Functional, without dead nodes.
        results: What the forward returns.
        gradients: What the backward returns.
        seeds: Placeholders that only the backward may read.
        volatile: Placeholders whose memory the forward overwrites.
        keeps_activations: Whether elementwise arithmetic is not computed again.

    Returns:
        The forward, which returns the results and then what is kept; the backward, which reads
        inputs, results and what is kept.
    """
    nodes = list(joint.graph.nodes)
    again = _follows_from_masks(nodes) if keeps_activations else set(filter(_is_elementwise, nodes))
    again.update(filter(_computed_again, nodes))
    kept = _kept(nodes, results, gradients, seeds, volatile, again)
    boundary = [_as_real(node) for node in kept]
    # Once more, since complex values have nodes for their parts by now.
    nodes = list(joint.graph.nodes)
    returned, cut = set(results), set(boundary)
    # Inputs are in memory anyway, unless the forward writes over them.
    saved = [n for n in boundary if n not in returned and (n.op != "placeholder" or n in volatile)]
    needed = _ancestors(gradients, stop=cut)
    outputs = [*results, *saved]
    forward = _extract(joint, nodes, _ancestors(outputs), set(), outputs)
    return forward, _extract(joint, nodes, needed, cut, gradients)


def _ancestors(nodes: Iterable[fx.Node], stop: Set[fx.Node] = frozenset()) -> set[fx.Node]:
    """Return nodes and all that they are computed from, not looking behind ``stop``."""
    reached: set[fx.Node] = set()
    pending = list(nodes)
    # Without recursion: graphs are deeper than Python's stack.
    while pending:
        node = pending.pop()
        if node not in reached:
            reached.add(node)
            if node not in stop:
                pending += node.all_input_nodes
    return reached


def _descendants(nodes: Sequence[fx.Node], roots: Collection[fx.Node]) -> set[fx.Node]:
    reached = set(roots)
    for node in nodes:
        if any(source in reached for source in node.all_input_nodes):
            reached.add(node)
    return reached


def _kept(
    nodes: Sequence[fx.Node],
    results: Sequence[fx.Node],
    gradients: Sequence[fx.Node],
    seeds: Collection[fx.Node],
    volatile: Collection[fx.Node],
    computed_again: Set[fx.Node],
) -> list[fx.Node]:
    """Return the values, of the fewest bytes, that the backward can be computed from.

    ``computed_again`` are those of the forward that the backward may compute once more.
    """
    forward, backward = _ancestors(results), _descendants(nodes, seeds)
    # What depends on no placeholder is constant, and may be computed on either side.
    variable = _descendants(nodes, [node for node in nodes if node.op == "placeholder"])
    free, ends, needed = set(results), set(gradients), _ancestors(gradients)
    candidates = [node for node in nodes if node in needed and node not in backward]
    network = Network()
    for node in candidates:
        is_free = node in free or (node.op == "placeholder" and node not in volatile)
        works = node.target not in _FREE and node in computed_again
        cost = _cost(node, prefers=node in forward and works)
        # A value is an edge between two points, so that to cut it costs once, however many readers
        # there are.
        network.edge((node, 0), (node, 1), 0 if is_free else cost)
        again = node not in forward or node not in variable or node in computed_again
        # Only the forward has it: it lies on the side of the source.
        if node.op == "placeholder" or not again:
            network.edge(SOURCE, (node, 0), ENDLESS)
        # What the backward computes needs its operands there, or a cut further up.
        for source in node.all_input_nodes:
            network.edge((source, 1), (node, 0), ENDLESS)
        if node in ends or any(user in backward for user in node.users):
            network.edge((node, 1), SINK, ENDLESS)
    before = network.before_cut()
    return [node for node in candidates if (node, 0) in before and (node, 1) not in before]


def _as_real(node: fx.Node) -> fx.Node:
    """Return what is kept of a value: of complex numbers, their parts."""
    value = node.meta.get("val")
    if not isinstance(value, Tensor) or not value.is_complex():
        return node
    users, graph = list(node.users), node.graph
    chain = [aten.view_as_real.default, aten.view_as_complex.default]
    if value.is_conj():  # by a flag, behind which parts cannot be looked at
        chain.insert(0, aten.resolve_conj.default)
    # An input has no place in the model, and its first reader has.
    origin = users[0] if node.op == "placeholder" and users else node
    views = [node]
    for operator in chain:
        with graph.inserting_after(views[-1]):
            views.append(graph.call_function(operator, (views[-1],)))
        value = operator(value)
        views[-1].meta = {**origin.meta, "val": value}
    *_, real, again = views
    for user in users:
        user.replace_input_with(node, again)
    return real


def _computed_again(node: fx.Node) -> bool:
    """Return whether a value of the forward may be computed once more by the backward in any program."""
    if node.target in _CHEAP or _is_large_mask(node):
        return True
    # Arithmetic on single numbers costs less than to keep one.
    return all(map(_is_number, [node, *node.all_input_nodes]))


def _is_large_mask(node: fx.Node) -> bool:
    if node.target is not torch.ops.samba.dropout_mask.default:
        return False
    elements: int = node.meta["val"].numel()
    return elements >= LARGE_MASK


def _follows_from_masks(nodes: Sequence[fx.Node]) -> set[fx.Node]:
    """Return what elementwise arithmetic makes of masks and of numbers, and of nothing else.

    A mask is one byte an element, what scales by it is four. Small masks themselves are among it only as what
    the rest is made of, and are kept.
    """
    masks = {node for node in nodes if node.target is torch.ops.samba.dropout_mask.default}
    reached = set(masks)
    for node in nodes:
        sources = [source for source in node.all_input_nodes if not _is_number(source)]
        if _is_elementwise(node) and sources and reached.issuperset(sources):
            reached.add(node)
    # Masks are bytes, and cheaper to keep than to draw.
    return reached - masks


def _is_elementwise(node: fx.Node) -> bool:
    return isinstance(node.target, OpOverload) and torch.Tag.pointwise in node.target.tags


def _is_number(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, Tensor) and value.numel() == 1


def _cost(node: fx.Node, *, prefers: bool) -> int:
    """Return what keeping a value costs: bytes, and of equal ones the one that saves more work."""
    value = node.meta.get("val")
    # Of several results, those that are read are kept one by one.
    if not isinstance(value, Tensor):
        return ENDLESS
    preference = 0 if prefers else 2 if node.target in _CHEAP else 1
    return value.numel() * value.element_size() * _TIE + preference


def _extract(
    joint: fx.GraphModule,
    nodes: Sequence[fx.Node],
    chosen: Set[fx.Node],
    boundary: Set[fx.Node],
    outputs: Sequence[fx.Node],
) -> Half:
    """Copy nodes into a graph of their own, in which boundary nodes are placeholders."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    inputs = [n for n in nodes if n in chosen and (n.op == "placeholder" or n in boundary)]
    for node in inputs:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    for node in nodes:
        if node in chosen and node not in copies:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output([copies[node] for node in outputs])
    return Half(fx.GraphModule(joint, graph), tuple(inputs), tuple(outputs))
