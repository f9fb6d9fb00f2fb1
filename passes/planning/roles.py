"""What the inputs and outputs of a graph are to the device, exchanged in every run or kept, and what is known at load."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import onnx_ir as ir

from samba_onnx.facts.names import gradient_name
from samba_onnx.facts.operator_facts import UNKNOWN_WORK, Randomness
from samba_onnx.facts.operators import facts
from samba_onnx.program.dataflow import is_weight, name_of, reads
from samba_onnx.program.kinds import LOADED_KINDS, SymbolKind


@dataclass(frozen=True)
class Roles:
    """The parts that the inputs and outputs of a graph play."""

    inputs: tuple[ir.Value, ...]
    """Given by the host in every run, argins included."""
    outputs: tuple[ir.Value, ...]
    """Given to the host by every run."""
    residents: Mapping[ir.Value, SymbolKind] = field(default_factory=lambda: MappingProxyType({}))
    """Inputs and outputs that stay in device memory between runs. Each has a region; a fallback
    that reads one gets a copy from there unless the host knows it, and what a fallback writes to
    one is copied there."""
    argins: frozenset[ir.Value] = frozenset()
    """Scalars among the inputs that are registers of the device, set without a transfer."""
    regions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Region by the name of a value, where it is not the value's own name."""
    changed: frozenset[str] = frozenset()
    """Regions that a run of any graph of the PEF may change."""
    spatial_batches: int = 0
    """Mini-batches of a run in spatial mapping; 0 in section mapping."""

    @classmethod
    def of(cls, graph: ir.Graph) -> Roles:
        """Return the roles in a graph that exchanges all its inputs and outputs.

        Args:
            graph: Any graph.
        """
        return cls(tuple(graph.inputs), tuple(graph.outputs))

    def region(self, value: ir.Value) -> str:
        """Return the name of a value's region, if it has one."""
        name = name_of(value)
        return self.regions.get(name, name)

    def is_batch(self, value: ir.Value) -> bool:
        """Return whether a value holds all mini-batches of a run, of which sections see one.

        Inputs and outputs of a spatially mapped graph hold all of them, and the gradients of both do;
        what stays on the device and what sections pass on to each other is there once.
        """
        return bool(self.spatial_batches) and value in self._batches

    @functools.cached_property
    def _batches(self) -> frozenset[ir.Value]:
        # An output that nothing computes is an input, counted with those, or a weight, of which there is
        # one.
        computed = (value for value in self.outputs if value.producer() is not None)
        exchanged = frozenset((*self.inputs, *computed)) - self.argins - self.residents.keys()
        gradients = {gradient_name(name_of(value)) for value in exchanged}
        return exchanged.union(
            value
            for value, kind in self.residents.items()
            if kind is SymbolKind.GRADIENT and value.name in gradients
        )

    def copies(self, value: ir.Value) -> int:
        """Return how many mini-batches of a value the device holds."""
        return self.spatial_batches if self.is_batch(value) else 1

    def known_to_host(self, value: ir.Value) -> bool:
        """Return whether a value is a resident that no run changes, so that the host knows it."""
        # A kind that is not loaded has its first value from a run, of which the host sees nothing.
        return self.residents.get(value) in LOADED_KINDS and self.region(value) not in self.changed

    def loaded(self) -> tuple[ir.Value, ...]:
        """Return the residents that get their values when the PEF is loaded, in order.

        An update of one has its region, and is not loaded itself.
        """
        first: dict[str, ir.Value] = {}
        for value, kind in self.residents.items():
            if kind in LOADED_KINDS and value.is_graph_input():
                # By region: what several programs or names share is loaded once.
                first.setdefault(self.region(value), value)
        return tuple(first.values())


def unique(values: Iterable[ir.Value]) -> tuple[ir.Value, ...]:
    """Return values, each once, in order."""
    return tuple(dict.fromkeys(values))


def known_at_load(nodes: Iterable[ir.Node], roles: Roles) -> frozenset[ir.Node]:
    """Return the nodes whose results nothing but weights decides.

    Args:
        nodes: Nodes in topological order; what others write counts as computed in every run.
        roles: What inputs and outputs of their graph are to the device.

    Returns:
        The nodes that read only initializers, residents that no run changes, and results of each other.
        Operators that draw random numbers, carry graphs or are not known are none of them, and no node
        whose results have no known type, for it must be stated what is kept.
    """
    values: set[ir.Value] = set()
    fixed: set[ir.Node] = set()
    for node in nodes:
        if _is_fixed(node) and all(_is_known(value, values, roles) for value in reads(node)):
            fixed.add(node)
            values.update(node.outputs)
    return frozenset(fixed)


def _is_fixed(node: ir.Node) -> bool:
    """Return whether a node with the same operands always has the same results."""
    row = facts(node.op_type, node.domain)
    if row is None or any(value.name and value.type is None for value in node.outputs):
        return False
    return row.random is Randomness.NEVER and row.kind not in UNKNOWN_WORK


def _is_known(value: ir.Value, known: Collection[ir.Value], roles: Roles) -> bool:
    return value in known or is_weight(value) or roles.known_to_host(value)
