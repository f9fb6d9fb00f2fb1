"""Conditions behind a target's name: ``sn30:4tiles``, ``sn10:host-launch``, ``sn40l:kernel-looping``.

Published figures were measured under conditions that are no property of the chip: on a part of it, with
sections launched from the host, with a mapping tuned by hand. A target's name states them behind a colon,
several with commas between, and the profile that results has that whole name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from samba_onnx.errors import TargetError
from samba_onnx.pef.target_summary import Assumption, TargetSummary, Tier
from samba_onnx.pef.timing import LaunchOrigin, TimingFigures

_TILES: Final = re.compile(r"([1-9]\d{0,3})tiles?")
_SHAPE: Final = re.compile(r"([^:]+|.*[/\\].*):([a-z0-9-]+(?:,[a-z0-9-]+)*)")
_TIMING: Final[Mapping[str, Callable[[TimingFigures], TimingFigures]]] = {
    "host-launch": lambda timing: replace(timing, launch=LaunchOrigin.HOST),
    "device-launch": lambda timing: replace(timing, launch=LaunchOrigin.DEVICE),
    "kernel-looping": lambda timing: replace(timing, looped=True),
    "tuned": lambda timing: replace(timing, tuned=True),
}
CONDITIONS: Final = ("Ntiles", *_TIMING)
"""The conditions, with N for a number."""


def parted(name: str) -> tuple[str, tuple[str, ...]]:
    """Return a target's name or path without its conditions, and these.

    Args:
        name: As ``sn30``, ``sn30:4tiles`` or ``./own.toml:4tiles,tuned``.
    """
    match = _SHAPE.fullmatch(name)
    return (match[1], tuple(match[2].split(","))) if match else (name, ())


def under(
    summary: TargetSummary, conditions: tuple[str, ...], tiles: int | None, name: str
) -> TargetSummary:
    """Return the figures of a target under conditions.

    Args:
        summary: The figures of the whole target.
        conditions: What :func:`parted` returns.
        tiles: Tiles of one RDU; None where the target does not state them.
        name: The name of the result.

    Raises:
        TargetError: There is no such condition, or the target lacks the figures that it changes.
    """
    for condition in conditions:
        part = _TILES.fullmatch(condition)
        if part:
            summary = _part(summary, int(part[1]), tiles, name)
        elif condition not in _TIMING:
            known = ", ".join(CONDITIONS)
            raise TargetError(f"target {name}: there is no condition {condition!r}; known: {known}")
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
        units = summary.timing.compute_units * count // tiles
        summary = replace(summary, timing=replace(summary.timing, compute_units=units))
    peaks = {dtype: peak * count / tiles for dtype, peak in summary.peak_flops.items()}
    return replace(
        summary,
        tiers=tuple(_tier_part(tier, count, tiles) for tier in summary.tiers),
        peak_flops=peaks,
        assumptions=tuple(_scaled(one, count / tiles) for one in summary.assumptions),
    )


def _tier_part(tier: Tier, count: int, tiles: int) -> Tier:
    size = tier.bytes * count // tiles
    rate = tier.bytes_per_second * count / tiles if tier.name == "sram" else tier.bytes_per_second
    return replace(tier, bytes=size, bytes_per_second=rate)


def _scaled(one: Assumption, share: float) -> Assumption:
    """Return an assumption with the value that a part has of it."""
    owner, _, figure = one.name.partition(".")
    shared = owner == "peak_flops" or one.name == "timing.compute_units" or owner == "sram"
    shared = shared or (owner in ("hbm", "ddr") and figure == "bytes")
    return replace(one, value=one.value * share) if shared else one
