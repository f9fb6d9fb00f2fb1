"""Whether what a manifest says of several RDUs agrees with itself."""

from __future__ import annotations

from samba_onnx.pef.manifest import Manifest, Section, Symbol
from samba_onnx.pef.sharding import AxisSplit, CollectiveKind

__all__ = ["MOST_RDUS", "sharding_problem"]

MOST_RDUS = 1024
"""No system has more; what claims to is no PEF."""


def sharding_problem(manifest: Manifest) -> str:
    """Return what is wrong with the shards and collectives of a manifest; empty if nothing is.

    Args:
        manifest: Whose stages name known symbols.
    """
    rdus = 0 if manifest.parallel is None else manifest.parallel.rdus
    # One RDU is no parallel program, and has no record.
    if manifest.parallel is not None and not 2 <= rdus <= MOST_RDUS:
        return f"it is for {rdus} RDUs"
    for symbol in manifest.symbols:
        problem = _symbol_problem(symbol, rdus)
        if problem:
            return f"symbol {symbol.name} {problem}"
    symbols = {symbol.name: symbol for symbol in manifest.symbols}
    for section in manifest.sections:
        problem = _collective_problem(section, symbols, rdus)
        if problem:
            return f"section {section.name} {problem}"
    return ""


def _symbol_problem(symbol: Symbol, rdus: int) -> str:
    sharded = symbol.sharded
    if sharded is None:
        return ""
    if not rdus or symbol.shape is None or len(symbol.shape) != len(sharded.shape):
        return "is a shard of no such value"
    sizes: list[int | str | None] = list(sharded.shape)
    last = -1
    for split in sharded.axes:
        # Axes in rising order, so that none is cut twice and a shard has one description.
        if not last < split.axis < len(sizes) or len(split.ranges) != rdus:
            return f"is cut along axis {split.axis} for other RDUs"
        last = split.axis
        size = _held(split, sharded.shape[split.axis])
        if size is None:
            return f"is cut along axis {split.axis} at places that it does not have"
        sizes[split.axis] = size
    return "" if tuple(sizes) == symbol.shape else "has another shape than its shards"


def _held(split: AxisSplit, size: int) -> int | None:
    """Return how many places of an axis each RDU holds; None where the ranges are none of it."""
    lengths = set()
    for flat in split.ranges:
        pairs = list(zip(flat[::2], flat[1::2], strict=False))
        if len(flat) % 2 or any(not 0 <= start < stop <= size for start, stop in pairs):
            # Empty ranges could be written in many ways.
            return None
        lengths.add(sum(stop - start for start, stop in pairs))
    # All RDUs run one program, whose shapes are the same: so must the sizes of shards be.
    return lengths.pop() if len(lengths) == 1 else None


def _collective_problem(section: Section, symbols: dict[str, Symbol], rdus: int) -> str:
    exchange = section.collective
    if exchange is None:
        return ""
    # A section that exchanges does nothing else.
    if not rdus or len(section.inputs) != 1 or len(section.outputs) != 1 or section.weights:
        return "exchanges something else than one value"
    before, after = symbols[section.inputs[0]], symbols[section.outputs[0]]
    gathers = exchange.kind is CollectiveKind.ALL_GATHER
    # A gather reads shards and writes the whole; a reduction keeps the shape of what it adds up.
    whole = before.whole_shape if gathers else before.shape
    if before.type != after.type or after.sharded is not None or whole != after.shape:
        return "exchanges a value for another one"
    if gathers is (before.sharded is None) or exchange.bytes < 0:
        return f"is no {exchange.kind.value} of what it reads"
    return ""
