"""How many bytes of device memory hold values now, by tier and kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from samba_onnx.pef.lifetimes import Occupancy, region_kind
from samba_onnx.pef.manifest import Manifest, Symbol
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.runtime.memory import DeviceMemory
from samba_onnx.runtime.residency import Residency

__all__ = ["occupancy"]


def occupancy(
    manifest: Manifest, memory: DeviceMemory, values: Residency, initializers: Mapping[str, int]
) -> Occupancy:
    """Measure what is in device memory.

    Args:
        manifest: The manifest of the PEF that is loaded.
        memory: The device's memory; asked for the size of each tensor that it holds.
        values: Which symbols have their current values there.
        initializers: Bytes of the weights and constants that sections were loaded with, by name.

    Returns:
        Bytes by tier and kind; symbols of one region count once.
    """
    tiers = {region.name: region.tier for region in manifest.regions}
    held: dict[str, list[Symbol]] = {}
    sizes: dict[str, int] = {}
    for symbol in manifest.symbols:
        if not symbol.region:
            continue
        if symbol.name in initializers:
            size = initializers[symbol.name]
        elif values.is_on_device(symbol.name):
            size = memory.whole(symbol.name).items.nbytes
        else:
            continue
        held.setdefault(symbol.region, []).append(symbol)
        # Symbols of one region lie over each other: the largest of them is all that is taken.
        sizes[symbol.region] = max(size, sizes.get(symbol.region, 0))
    totals: Counter[tuple[str, SymbolKind]] = Counter()
    for region, symbols in held.items():
        totals[tiers[region], region_kind(symbol.kind for symbol in symbols)] += sizes[region]
    return dict(totals)
