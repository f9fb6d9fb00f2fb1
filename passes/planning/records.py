"""Turns stages and values of a graph into the records of a manifest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import onnx_ir as ir

from samba_onnx.facts.domains import qualified
from samba_onnx.passes.planning.roles import Roles, known_at_load
from samba_onnx.passes.planning.scheduling import fixed_bytes
from samba_onnx.passes.planning.sectioning import sram_bytes
from samba_onnx.passes.planning.stages import StageInterface
from samba_onnx.passes.sharding.collectives import SHARDED, collective
from samba_onnx.passes.timing.hosts import fallback_seconds, host_seconds
from samba_onnx.passes.timing.node_work import node_flops, value_bytes
from samba_onnx.passes.timing.section_terms import section_terms
from samba_onnx.passes.timing.traffic import by_tier, moved_bytes
from samba_onnx.pef.host_summary import HostSummary
from samba_onnx.pef.manifest import Fallback, FallbackNode, Region, Section, Stage, Symbol
from samba_onnx.pef.stage_records import RepeatedBody
from samba_onnx.program.dataflow import dimensions, each_node, name_of
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.program.mini_batches import batched_shape
from samba_onnx.program.repetition import repetition
from samba_onnx.program.source_location import source_location
from samba_onnx.program.value_types import type_text

if TYPE_CHECKING:
    from samba_onnx.passes.planning.placement import Placement
    from samba_onnx.passes.targets import Target


def stage_record(interface: StageInterface, identity: int, name: str, graph: str) -> Stage:
    """Return the common part of a section and a fallback.

    Args:
        interface: What the stage is made of.
        identity: Its id.
        name: Its name.
        graph: Name of its graph.

    Returns:
        The record; its file is named after the type of a section, or ``cpu``.
    """
    kind = interface.group.type.value if interface.on_rdu else "cpu"
    operators: dict[str, int] = {}
    flops: dict[str, int] = {}
    for node in interface.group.nodes:
        operator = qualified(node.domain, node.op_type)
        operators[operator] = operators.get(operator, 0) + 1
        flops[operator] = flops.get(operator, 0) + node_flops(node)
    return Stage(
        id=identity,
        name=name,
        graph=graph,
        member=f"stages/{identity:03d}_{kind}.onnx",
        inputs=tuple(name_of(value) for value in interface.inputs),
        outputs=tuple(name_of(value) for value in interface.outputs),
        weights=tuple(name_of(value) for value in interface.weights),
        operators=operators,
        operator_flops={operator: count for operator, count in flops.items() if count},
    )


def section_traffic(
    interface: StageInterface, regions: Mapping[str, Region], roles: Roles
) -> Mapping[ir.Value, tuple[str, int]]:
    """Return what one execution of a section reads and writes in off-chip memory.

    Args:
        interface: What the section is made of.
        regions: Regions by the name of their symbol.
        roles: What the values are to the device. In spatial mapping only mini-batches count: all
            else is on the chip.

    Returns:
        Tier and bytes of each value.
    """
    traffic: dict[ir.Value, tuple[str, int]] = {}
    partly = moved_bytes(interface.group.nodes, roles.region)
    for value in (*interface.inputs, *interface.loaded, *interface.outputs):
        region, copies = regions[name_of(value)], roles.copies(value)
        if not roles.spatial_batches or roles.is_batch(value):
            # A call sees one mini-batch of those that lie in the region.
            traffic[value] = (region.tier, partly.get(value, region.bytes // copies))
    return traffic


def section_record(
    stage: Stage,
    interface: StageInterface,
    target: Target,
    traffic: Mapping[ir.Value, tuple[str, int]],
) -> Section:
    """Return a section with its modelled cost.

    Args:
        stage: The common part.
        interface: What the section is made of.
        target: The device.
        traffic: Tier and bytes of each value that one execution reads or writes.

    Returns:
        The record.
    """
    terms = section_terms(interface.group.nodes, by_tier(traffic), target.summary)
    time = terms.time(target.summary)
    return Section(
        **vars(stage),
        type=interface.group.type,
        flops=terms.flops,
        bytes=terms.bytes,
        seconds=time.seconds,
        time=time,
        sram_bytes=sram_bytes(interface.group.nodes, target),
        collective=collective(interface.group.nodes, target.summary),
        rule=interface.group.rule,
        repeated=tuple(_repeated_bodies(interface.group.nodes)),
    )


def _repeated_bodies(nodes: Iterable[ir.Node]) -> Iterator[RepeatedBody]:
    for node in nodes:
        found = repetition(node)
        if found is not None:
            names = [qualified(inner.domain, inner.op_type) for inner in each_node(found.body)]
            # In the order of the body, which a set would not keep: records are the same on every machine.
            operators = {name: names.count(name) for name in dict.fromkeys(names)}
            yield RepeatedBody(name_of(node), found.steps, operators)


def fallback_record(
    stage: Stage, interface: StageInterface, placement: Placement, roles: Roles, host: HostSummary
) -> Fallback:
    """Return a fallback with the reason of every node and its modelled time.

    Args:
        stage: The common part.
        interface: What the fallback is made of.
        placement: Where the reasons come from.
        roles: What the values are to the device; tell which nodes are computed at load.
        host: The figures of the CPU.

    Returns:
        The record.
    """
    nodes = interface.group.nodes
    at_load = known_at_load(nodes, roles)
    times = {node: host_seconds(node, host) for node in nodes if node not in at_load}
    seconds, unmodelled = fallback_seconds(times.values(), host)
    return Fallback(
        **vars(stage),
        type=interface.group.type,
        reasons=tuple(
            _fallback_node(node, placement, node in at_load, times.get(node) or 0.0)
            for node in nodes
        ),
        seconds=seconds,
        unmodelled=unmodelled,
    )


def symbol_record(
    value: ir.Value,
    kind: SymbolKind,
    regions: Mapping[str, Region],
    *,
    baked: bool,
    roles: Roles,
) -> Symbol:
    """Return a named value.

    Args:
        value: A value of the main graph.
        kind: The part that it plays.
        regions: Regions by the name of their symbol; values of the host have none.
        baked: Whether it is a constant that becomes part of sections.
        roles: What the values are to the device; those that hold mini-batches have the shape of all
            of them.

    Returns:
        The record, without the place of its content in the PEF.
    """
    name = name_of(value)
    symbol = Symbol(
        name=name,
        kind=kind,
        type=type_text(value),
        shape=dimensions(value),
        region=regions[name].name if name in regions else "",
        baked=baked,
        bytes=value_bytes(value),
        sharded=value.meta.get(SHARDED),
    )
    if not roles.is_batch(value):
        return symbol
    size, shape = fixed_bytes(value), tuple(d for d in symbol.shape or () if isinstance(d, int))
    return replace(
        symbol,
        shape=batched_shape(shape, roles.spatial_batches),
        bytes=size * roles.spatial_batches,
        batch_shape=shape,
    )


def _fallback_node(
    node: ir.Node, placement: Placement, at_load: bool, seconds: float
) -> FallbackNode:
    reason = placement.reasons[node]
    return FallbackNode(
        name=name_of(node),
        op_type=node.op_type,
        domain=node.domain,
        code=reason.code.value,
        reason=reason.message,
        hint=reason.hint,
        location=source_location(node),
        supported=placement.supports[node].reason is None,
        at_load=at_load,
        seconds=seconds,
    )
