"""The times of a schedule's sections, which depend on each other: launches, and what streams beside an exchange."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from samba_onnx.passes.planning.launches import (
    ON_CPU,
    Launchable,
    joined,
    launchable,
    launched,
    with_launches,
)
from samba_onnx.passes.planning.section_terms import section_terms
from samba_onnx.passes.planning.streaming import arrives_in_rows, streamed_terms
from samba_onnx.pef.exchanges import Streaming
from samba_onnx.pef.stage_records import Section
from samba_onnx.pef.target_summary import TargetSummary

__all__ = ["SectionDraft", "by_tier", "exchanged", "in_programs"]


@dataclass(frozen=True)
class SectionDraft:
    """A section with the time that it takes by itself."""

    place: int
    """Its place in the schedule."""
    record: Section
    nodes: Sequence[ir.Node]
    traffic: Mapping[ir.Value, tuple[str, int]]
    """Tier and bytes of each value that it reads or writes in off-chip memory."""


def by_tier(traffic: Mapping[ir.Value, tuple[str, int]]) -> dict[str, list[int]]:
    """Return the bytes of each value by tier.

    Args:
        traffic: Tier and bytes by value.
    """
    sizes: dict[str, list[int]] = {}
    for tier, size in traffic.values():
        sizes.setdefault(tier, []).append(size)
    return sizes


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

    Args:
        drafts: The sections in the order of the schedule.
        programs: The places of stages by program.
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
