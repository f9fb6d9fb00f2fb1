"""The times of a schedule's sections, which depend on each other: launches, and what streams beside an exchange.

Not every section takes a launch of its own. An exchange between RDUs streams values from the section before it
into the one behind it, so that these are one program where they fit onto the chip together. With kernel looping
the device also repeats programs that it has: a program is launched once for all equal ones that follow it, alone
or in turns with up to two others.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import onnx_ir as ir

from samba_onnx.passes.timing.matrix_products import units_of
from samba_onnx.passes.timing.section_terms import section_terms
from samba_onnx.passes.timing.streaming import arrives_in_rows, streamed_terms
from samba_onnx.passes.timing.traffic import by_tier
from samba_onnx.pef.stage_records import Section, Streaming
from samba_onnx.pef.target_summary import TargetSummary
from samba_onnx.program.dataflow import dimensions

__all__ = [
    "ON_CPU",   "Launchable", "SectionDraft", "exchanged", "in_programs", "joined", "launchable",
    "launched", "with_launches",
]  # fmt: skip

_LONGEST_TURN: Final = 3
"""Programs that take turns in a loop, at most."""


@dataclass(frozen=True)
class SectionDraft:
    """A section with the time that it takes by itself."""

    place: int
    """Its place in the schedule."""
    record: Section
    nodes: Sequence[ir.Node]
    traffic: Mapping[ir.Value, tuple[str, int]]
    """Tier and bytes of each value that it reads or writes in off-chip memory."""


def in_programs(
    drafts: Sequence[SectionDraft], stages: int, target: TargetSummary
) -> tuple[Section, ...]:
    """Return sections with the times that they have in their schedule.

    Args:
        drafts: The sections in the order of the schedule.
        stages: How many stages it has, fallbacks included.
        target: The device's figures.

    Returns:
        Records of which only those have a launch that take one of their own, and those behind an exchange
        of the same program say what of them goes on beside it.
    """
    order: list[Launchable] = [ON_CPU] * stages
    for draft in drafts:
        order[draft.place] = launchable(draft.record, draft.nodes, target)
    own = launched(order, target)
    sections = with_launches([d.record for d in drafts], [own[d.place] for d in drafts])
    # Only a program that was cut for several RDUs exchanges anything.
    behind = exchanged(drafts, joined(order, target)) if any(s.exchanges for s in order) else {}
    return tuple(
        replace(section, streaming=_streaming(draft, behind[draft.place], target))
        if draft.place in behind
        else section
        for draft, section in zip(drafts, sections, strict=True)
    )


def exchanged(
    drafts: Sequence[SectionDraft], programs: Sequence[Sequence[int]]
) -> Mapping[int, Collection[ir.Value]]:
    """Return what exchanges bring, row by row, to the section just behind them, by its place.

    ``programs`` has the places of the stages of each program.
    """
    by_place = {draft.place: draft for draft in drafts}
    result: dict[int, Collection[ir.Value]] = {}
    for program in programs:
        brought: list[ir.Value] = []
        for draft in (by_place[place] for place in program if place in by_place):
            if draft.record.collective is not None:
                # A collective is the only node of its section.
                brought += [draft.nodes[0].outputs[0]]
            else:
                makers = [value.producer() for value in brought]
                # One exchange that brings whole rows of other RDUs keeps the section waiting, whatever the
                # others do.
                if brought and all(maker and arrives_in_rows(maker) for maker in makers):
                    result[draft.place] = tuple(brought)
                brought = []
    return result


def _streaming(
    draft: SectionDraft, brought: Collection[ir.Value], target: TargetSummary
) -> Streaming | None:
    whole = section_terms(draft.nodes, by_tier(draft.traffic), target)
    part = streamed_terms(draft.nodes, brought, draft.traffic, whole, target)
    return None if part is None else part.streaming(whole, target)


@dataclass(frozen=True)
class Launchable:
    """What the question of launches asks of a stage."""

    on_rdu: bool
    exchanges: bool
    """Whether it is an exchange between RDUs."""
    units: int
    """Compute units that it needs."""
    sram_bytes: int
    """On-chip memory that it needs."""
    kind: Hashable
    """Equal for stages that execute the same program on other values."""


def launchable(section: Section, nodes: Sequence[ir.Node], target: TargetSummary) -> Launchable:
    """Return a section as the question of launches sees it."""
    return Launchable(
        on_rdu=True,
        exchanges=section.collective is not None,
        units=sum(units_of(node, target) for node in nodes),
        sram_bytes=section.sram_bytes,
        kind=tuple(_signature(node) for node in nodes),
    )


def _signature(node: ir.Node) -> Hashable:
    """Return what two nodes have in common that do the same with values of the same types and shapes."""
    values = [
        None if value is None else (value.dtype, dimensions(value))
        for value in (*node.inputs, None, *node.outputs)
    ]
    # Types and shapes, as timing.md states it: values and weights are arguments of a program, no part of
    # it.
    return (node.domain, node.op_type, *values)


ON_CPU: Final = Launchable(False, False, 0, 0, None)
"""A fallback."""


def launched(stages: Sequence[Launchable], target: TargetSummary) -> tuple[bool, ...]:
    """Return, for every stage of a schedule in its order, whether it takes a launch of its own."""
    programs = joined(stages, target)
    result = [False] * len(stages)
    for number, program in enumerate(programs):
        if stages[program[0]].on_rdu and not _repeats(programs, number, stages, target):
            result[program[0]] = True
    return tuple(result)


def joined(stages: Sequence[Launchable], target: TargetSummary) -> list[list[int]]:
    """Return the places of the stages that are one program, by program, for a schedule in its order."""
    capacity = target.tier("sram").bytes
    programs: list[list[int]] = []
    units = room = 0
    joins = False
    for place, stage in enumerate(stages):
        # Of a device without figures of units nobody knows what fits together: every section is loaded by
        # itself.
        fits = (
            target.timing is not None
            and units + stage.units <= target.timing.compute_units
            and room + stage.sram_bytes <= capacity
        )
        # An exchange always goes on with the section that computed its values: it streams them out. Behind a
        # fallback nothing streams, and it begins a program.
        streams = stage.exchanges and place > 0 and stages[place - 1].on_rdu
        if stage.on_rdu and (streams or (joins and fits)):
            programs[-1].append(place)
        else:
            programs.append([place])
            units = room = 0
        units, room = units + stage.units, room + stage.sram_bytes
        joins = stage.exchanges
    return programs


def with_launches(sections: Sequence[Section], own: Sequence[bool]) -> tuple[Section, ...]:
    """Return sections of which only those that take a launch of their own, as ``own`` says, have its time."""
    result: list[Section] = []
    for section, launches in zip(sections, own, strict=True):
        if section.time is None or launches:
            result.append(section)
            continue
        time = replace(section.time, launch=0.0)
        result.append(replace(section, time=time, seconds=time.seconds))
    return tuple(result)


def _repeats(
    programs: Sequence[Sequence[int]],
    number: int,
    stages: Sequence[Launchable],
    target: TargetSummary,
) -> bool:
    """Return whether a program is one of those just before it, in a loop on the device.

    A fallback ends the loop: the device waits for the host.
    """
    if target.timing is None or not target.timing.looped:
        return False

    def kinds(program: Sequence[int]) -> list[Hashable]:
        return [stages[place].kind for place in program]

    for program in reversed(programs[max(number - _LONGEST_TURN, 0) : number]):
        # The device waits for the host there, and is started again behind it.
        if not stages[program[0]].on_rdu:
            return False
        if kinds(program) == kinds(programs[number]):
            return True
    return False
