"""Which webs of a graph are proved to fit into a narrower type, and are of use there to a target."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final, Protocol

import onnx_ir as ir

from samba_onnx.passes.rewrites.legalisation.exactness import Exactness
from samba_onnx.passes.rewrites.legalisation.rules import rule_for
from samba_onnx.passes.rewrites.legalisation.webs import Narrowing, Web, webs
from samba_onnx.program.bounds import Bounds, type_limits
from samba_onnx.program.intervals import Interval
from samba_onnx.program.legal_inputs import legal_inputs

NARROW: Final = "narrow"
"""Name of the rule."""


class Supporter(Protocol):
    """A target, as far as narrowing asks it."""

    def support(self, node: ir.Node) -> Answer:
        """Decide whether a node can run on the RDU."""


class Answer(Protocol):
    """The answer of a target about a node."""

    @property
    def reason(self) -> object | None:
        """Why the node cannot run there; None if it can."""


def narrowings(graph: ir.Graph, *, rounds_float64: bool = False) -> tuple[Narrowing, ...]:
    """Return the types that values of a main graph may have instead of theirs, with the proofs.

    Args:
        graph: It is looked at, not changed.
        rounds_float64: Whether float64 needs no proof.
    """
    # An illegal index stops the node with an error in any type, so that it need not be proved away.
    legal = legal_inputs(graph)
    bounds = Bounds(legal, by_type=True)
    exactness = Exactness(bounds, rounds=rounds_float64)
    return (
        _integers(bounds, legal),
        Narrowing(ir.DataType.DOUBLE, ir.DataType.FLOAT, exactness.fits, exactness.reason),
    )


def inner_narrowings(known: Mapping[ir.Value, Interval]) -> tuple[Narrowing, ...]:
    """Return how int64 may be int32 in a graph whose inputs keep their type.

    Args:
        known: Where its inputs lie.
    """
    return (_integers(Bounds(known, by_type=True), fixed=known.keys()),)


def _integers(
    bounds: Bounds,
    legal: Mapping[ir.Value, Interval] = MappingProxyType({}),
    fixed: Collection[ir.Value] = (),
) -> Narrowing:
    limits = type_limits(ir.DataType.INT32)

    def larger(value: ir.Value) -> str:
        interval = bounds.of(value)
        ends = f": from {interval.low:,} to {interval.high:,}" if interval.is_finite else ""
        return f"{value.name!r} may be larger than int32{ends}"

    def fits(value: ir.Value) -> bool:
        # Inputs of a form are values of the model, which others read in their type.
        return value not in fixed and bounds.of(value).is_inside(limits)

    return Narrowing(ir.DataType.INT64, ir.DataType.INT32, fits, larger, legal)


def useful_webs(
    graph: ir.Graph,
    kinds_of: Collection[Narrowing],
    refused: Collection[ir.Node],
    target: Supporter,
    excluded: frozenset[str],
) -> tuple[Web, ...]:
    """Return the webs with nodes that the target refuses for their type, and not only Casts at a border.

    Args:
        graph: With types.
        kinds_of: The types that values may have instead.
        refused: Nodes that the target refuses.
        target: What it says of others.
        excluded: Names of rules that are not to be used.
    """
    return tuple(
        web
        for kinds in kinds_of
        if any(helps(node, kinds, target, excluded) for node in refused)
        for web in webs(graph, kinds)
        # A web that has nothing but a Cast at its border would get a new Cast in its place.
        if any(
            node in refused
            and helps(node, kinds, target, excluded)
            and not (web.has_border and node.op_type == "Cast")
            for node in web.nodes
        )
    )


def helps(node: ir.Node, kinds: Narrowing, target: Supporter, excluded: frozenset[str]) -> bool:
    """Return whether a node would run on the target, or a rule may write it, if its values were narrow.

    Args:
        node: One that the target refuses.
        kinds: The types.
        target: What it says of others.
        excluded: Names of rules that are not to be used.
    """
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    wide = {value: value.type for value in values if value.dtype is kinds.wide}
    if not wide:
        return False
    # Rules write float64 as they write float32, but their result cannot be looked at before types
    # are narrow: what they promise is tried later.
    if kinds.wide is ir.DataType.DOUBLE and rule_for(node, excluded) is not None:
        return True
    try:
        # The types are changed for the question only, since asking about a copy of every node would
        # be slow.
        for value in wide:
            value.type = ir.TensorType(kinds.narrow)
        return target.support(node).reason is None
    finally:
        for value, kind in wide.items():
            value.type = kind
