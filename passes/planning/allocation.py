"""Gives every value that the device keeps a region in one tier of off-chip memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from samba_onnx.errors import OutOfDeviceMemoryError
from samba_onnx.pef.manifest import Region
from samba_onnx.pef.target_summary import TargetSummary, Tier

_NAMED_OFFENDERS = 5
"""Largest values that the refusal names."""


def off_chip_tiers(target: TargetSummary) -> tuple[Tier, ...]:
    """Return the tiers that regions lie in, fastest first.

    Args:
        target: The device's figures.

    Returns:
        All tiers but ``sram``, which sections use for what they hold between their own operators.
    """
    tiers = [tier for tier in target.tiers if tier.name != "sram"]
    return tuple(sorted(tiers, key=lambda tier: -tier.bytes_per_second))


def allocate(
    sizes: Mapping[str, int],
    written: frozenset[str],
    target: TargetSummary,
    used: Sequence[Region] = (),
) -> tuple[Region, ...]:
    """Return a region for every name.

    A region lies whole in one tier: the fastest one with room left. Which values share one is decided
    before: see ``overlays``.

    Args:
        sizes: Bytes by name, in the order in which the fastest tier is to be filled.
        written: Names that a section writes.
        target: The device's figures.
        used: Regions that exist already and take up room.

    Returns:
        Regions in the order of ``sizes``.

    Raises:
        OutOfDeviceMemoryError: There is no room for all of them; names the largest.
    """
    # In the given order if that works out, else the largest first, which leaves fewer gaps.
    by_size = sorted(sizes, key=lambda name: -sizes[name])
    for order in (list(sizes), by_size):
        homes = _fill(order, sizes, target, used)
        if homes is not None:
            return tuple(
                Region(name=name, bytes=size, tier=homes[name], mutable=name in written)
                for name, size in sizes.items()
            )
    # With those of earlier graphs, which take up the same memory: the new ones alone may well have room.
    regions = {region.name: region.bytes for region in used} | dict(sizes)
    raise OutOfDeviceMemoryError(_complaint(regions, by_size, sizes, target), regions=regions)


def _fill(
    order: Sequence[str], sizes: Mapping[str, int], target: TargetSummary, used: Sequence[Region]
) -> dict[str, str] | None:
    """Return a tier for each name, None when one fits nowhere."""
    room = {tier.name: tier.bytes for tier in off_chip_tiers(target)}
    for region in used:
        room[region.tier] -= region.bytes
    homes: dict[str, str] = {}
    for name in order:
        # First fit. A region is not divided between tiers: its record names one, at whose rate traffic is
        # counted.
        tier = next((tier for tier, free in room.items() if sizes[name] <= free), None)
        if tier is None:
            return None
        room[tier] -= sizes[name]
        homes[name] = tier
    return homes


def _complaint(
    regions: Mapping[str, int],
    by_size: Sequence[str],
    sizes: Mapping[str, int],
    target: TargetSummary,
) -> str:
    needed = sum(regions.values())
    tiers = ", ".join(f"{tier.name} {tier.bytes:,}" for tier in off_chip_tiers(target))
    largest = ", ".join(f"{name!r} {sizes[name]:,}" for name in by_size[:_NAMED_OFFENDERS])
    return (
        f"the model needs {needed:,} bytes of device memory, more than {target.name} has room for "
        f"({tiers}); the largest values are {largest}; make dimensions smaller (--dim), store "
        "weights in a narrower data type, or choose a target with more memory"
    )
