"""Which sections of a schedule take a launch of their own.

An exchange between RDUs streams values from the section before it into the one behind it, so that these are
one program where they fit onto the chip together. With kernel looping the device also repeats programs that
it has: a program is launched once for all equal ones that follow it, alone or in turns with up to two others.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import onnx_ir as ir

from samba_onnx.passes.planning.products import units_of
from samba_onnx.pef.manifest import Section
from samba_onnx.pef.target_summary import TargetSummary
from samba_onnx.program.dataflow import dimensions

_LONGEST_TURN: Final = 3
"""Programs that take turns in a loop, at most."""


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
    """Return a section as the question of launches sees it.

    Args:
        section: Its record.
        nodes: Its nodes.
        target: The device's figures.
    """
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
    """Return, for every stage, whether it takes a launch of its own.

    Args:
        stages: The stages of a schedule in the order in which they run.
        target: The device's figures.
    """
    programs = joined(stages, target)
    result = [False] * len(stages)
    for number, program in enumerate(programs):
        if stages[program[0]].on_rdu and not _repeats(programs, number, stages, target):
            result[program[0]] = True
    return tuple(result)


def joined(stages: Sequence[Launchable], target: TargetSummary) -> list[list[int]]:
    """Return the places of the stages that are one program, by program.

    Args:
        stages: The stages of a schedule in the order in which they run.
        target: The device's figures.
    """
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
    """Return sections of which only those that take a launch of their own have its time.

    Args:
        sections: Records in the order of the schedule.
        own: For each whether it does.
    """
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
