"""Conditions behind a target's name: ``sn30:4tiles``, ``sn10:host-launch``, ``sn40l:kernel-looping``.

Published figures were measured under conditions that are no property of the chip: on a part of it, with
sections launched from the host, with a mapping tuned by hand. A target's name states them behind a colon,
several with commas between, and the profile that results has that whole name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from samba_onnx.errors import TargetError
from samba_onnx.pef.target_summary import (
    Assumption,
    LaunchOrigin,
    TargetSummary,
    Tier,
    TimingFigures,
)
from samba_onnx.safety.files import printable

_TILES: Final = re.compile(r"([1-9]\d{0,3})tiles?")
# Only what follows the last colon is conditions, and it contains no separator of paths: a path such
# as C:\own.toml keeps its drive.
_SHAPE: Final = re.compile(r"([^:]+|.*[/\\].*):([^:/\\]*)")
_LAUNCHES: Final = ("host-launch", "device-launch")
# The conditions of a run change the timing model alone; a part of a chip changes tiers and peaks
# too, so that it has its own function.
_TIMING: Final[Mapping[str, Callable[[TimingFigures], TimingFigures]]] = {
    "host-launch": lambda timing: replace(timing, launch=LaunchOrigin.HOST),
    "device-launch": lambda timing: replace(timing, launch=LaunchOrigin.DEVICE),
    "kernel-looping": lambda timing: replace(timing, looped=True),
    "tuned": lambda timing: replace(timing, tuned=True),
}
CONDITIONS: Final = ("Ntiles", *_TIMING)
"""The conditions, with N for a number."""
LOOPING: Final = "kernel-looping"


def parted(name: str) -> tuple[str, tuple[str, ...]]:
    """Return a target's name or path without its conditions, and the conditions.

    Args:
        name: As ``sn30``, ``sn30:4tiles`` or ``./own.toml:4tiles,tuned``; a file of this whole name has
            no conditions.
    """
    # A file whose name contains a colon is found as it is called, before the colon is given a
    # meaning.
    match = None if os.path.exists(name) else _SHAPE.fullmatch(name)
    return (match[1], tuple(match[2].split(","))) if match else (name, ())


def listed(text: str) -> tuple[str, ...]:
    """Return the names in a list of targets, each once.

    Args:
        text: Names with commas between; those between the conditions of one are no part of the list, as in
            ``sn10,sn30:4tiles,tuned``.
    """
    names: list[str] = []
    for part in text.split(","):
        name = part.strip()
        # The comma that parts targets also parts the conditions of one: what reads as a condition,
        # behind a target that already has some, belongs to that target.
        if names and parted(names[-1])[1] and (_TILES.fullmatch(name) or name in _TIMING):
            names[-1] += f",{name}"
        else:
            names.append(name)
    # A target that is listed twice would be analyzed twice, with equal results.
    return tuple(dict.fromkeys(names))


def with_condition(name: str, condition: str) -> str:
    """Return the name of a target under one more condition, or as it is where it states this one.

    Args:
        name: A target's name or path, with or without conditions.
        condition: One of ``CONDITIONS``, with a number for N.
    """
    conditions = parted(name)[1]
    if condition in conditions:
        return name
    return f"{name}{',' if conditions else ':'}{condition}"


def ordered(conditions: tuple[str, ...], name: str) -> tuple[str, ...]:
    """Return conditions in the order in which a target's name has them, so that equal targets have one name.

    Args:
        conditions: What :func:`parted` returns.
        name: The target as the user names it.

    Raises:
        TargetError: There is no such condition, or two are about the same, be they equal or not.
    """
    stated: dict[str, str] = {}
    for condition in conditions:
        part = _TILES.fullmatch(condition)
        if not part and condition not in _TIMING:
            known = ", ".join(CONDITIONS)
            raise TargetError(
                f"target {name}: there is no condition {printable(condition)!r}; known: {known}"
            )
        # Two launch origins exclude each other, as do two counts of tiles; whichever came last
        # would win silently.
        matter = "tiles" if part else "launch" if condition in _LAUNCHES else condition
        if matter in stated:
            raise TargetError(
                f"target {name}: it has the conditions {stated[matter]!r} and {condition!r}, which are about "
                "the same: leave one of them out"
            )
        # 4tile and 4tiles are one condition; the name of the result, which reports and PEFs show,
        # has one spelling.
        stated[matter] = f"{part[1]}tile{'s' * (part[1] != '1')}" if part else condition
    # Tiles come first: the other conditions say how that part is used.
    return tuple(
        sorted(stated.values(), key=lambda one: [*_TIMING].index(one) if one in _TIMING else -1)
    )


def under(
    summary: TargetSummary, conditions: tuple[str, ...], tiles: int | None, name: str
) -> TargetSummary:
    """Return the figures of a target under conditions.

    Args:
        summary: The figures of the whole target.
        conditions: What :func:`ordered` returns.
        tiles: Tiles of one RDU; None where the target does not state them.
        name: The name of the result.

    Raises:
        TargetError: The target lacks the figures that a condition changes.
    """
    for condition in conditions:
        part = _TILES.fullmatch(condition)
        if part:
            summary = _part(summary, int(part[1]), tiles, name)
        elif summary.timing is None:
            raise TargetError(
                f"target {name}: its file has no [hardware.timing], which {condition!r} is about"
            )
        else:
            summary = replace(summary, timing=_TIMING[condition](summary.timing))
    return replace(summary, name=name)


def _part(summary: TargetSummary, count: int, tiles: int | None, name: str) -> TargetSummary:
    """Return the figures of some tiles: their share of units, on-chip memory, and room off the chip.

    All channels of off-chip memory are within reach of every tile, so that its rates stay.
    """
    if tiles is None:
        raise TargetError(
            f"target {name}: its file does not state hardware.tiles, so it has no parts"
        )
    if count > tiles:
        raise TargetError(f"target {name}: it has {tiles} tiles")
    if summary.timing is not None:
        # A part is never without a unit: the times of its sections divide by their number.
        units = max(summary.timing.compute_units * count // tiles, 1)
        summary = replace(summary, timing=replace(summary.timing, compute_units=units))
    peaks = {dtype: peak * count / tiles for dtype, peak in summary.peak_flops.items()}
    return replace(
        summary,
        tiers=tuple(_tier_part(tier, count, tiles) for tier in summary.tiers),
        peak_flops=peaks,
        assumptions=tuple(_scaled(assumption, count / tiles) for assumption in summary.assumptions),
    )


def _tier_part(tier: Tier, count: int, tiles: int) -> Tier:
    size = tier.bytes * count // tiles
    # On-chip memory is in the tiles themselves, so that its rate shrinks with their number.
    rate = tier.bytes_per_second * count / tiles if tier.name == "sram" else tier.bytes_per_second
    return replace(tier, bytes=size, bytes_per_second=rate)


def _scaled(one: Assumption, share: float) -> Assumption:
    """Return an assumption about the whole chip with the value that a part of it has."""
    # The notes of assumptions show the figures that the part really has, which are those that _part
    # and _tier_part scaled; the other figures are not shared out.
    owner, _, figure = one.name.partition(".")
    shared = owner == "peak_flops" or one.name == "timing.compute_units" or owner == "sram"
    shared = shared or (owner in ("hbm", "ddr") and figure == "bytes")
    return replace(one, value=one.value * share) if shared else one
