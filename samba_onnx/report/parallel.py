"""What a program of several RDUs needs of each: memory, room for a cache, and exchanges."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from samba_onnx.passes.timing.schedule_time import token_seconds
from samba_onnx.pef.manifest import Cause, Manifest
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.report.layout import table, titled
from samba_onnx.report.report_records import record
from samba_onnx.report.sizes import run_graphs
from samba_onnx.report.units import byte_text, count_text, second_text

__all__ = ["ExchangeReport", "ParallelReport", "RoomReport", "parallel", "parallel_text"]

_LENGTH = 8192
"""Tokens of the sequences that a cache is counted in."""


@record
class RoomReport:
    """What one tier of off-chip memory has room for, besides the program."""

    tier: str
    """``hbm`` or ``ddr``."""
    capacity_bytes: int
    """Its size on one RDU."""
    used_bytes: int
    """What the program takes of it."""
    cache_tokens: int
    """Tokens, of all sequences together, whose keys and values fit into the rest; 0 without attention."""


@record
class ExchangeReport:
    """Exchanges between all RDUs of one kind, in one run."""

    kind: str
    """``all_reduce`` or ``all_gather``."""
    calls: int
    """How many."""
    bytes: int
    """What each RDU sends in all of them."""
    modelled_seconds: float
    """Time of all of them."""


@record
class ParallelReport:
    """How a program was cut for several RDUs; every size is that of one of them."""

    mode: str
    """``weight`` or ``batch``."""
    rdus: int
    """Number of RDUs."""
    weight_bytes: int
    """Weights, on one RDU."""
    other_bytes: int
    """All else in off-chip memory, on one RDU."""
    fits: bool
    """Whether all of it fits into the fastest off-chip memory."""
    cache_bytes_per_token: int
    """Keys and values that attention reads of one token, on one RDU; 0 without attention."""
    rooms: tuple[RoomReport, ...]
    """Off-chip memory, the fastest first."""
    exchanges: tuple[ExchangeReport, ...]
    """By kind."""
    token_exchange_seconds: float
    """Modelled time of the exchanges of a run that reads one token of one sequence; 0 without attention."""


def parallel(manifest: Manifest) -> ParallelReport | None:
    """Return what a manifest says of several RDUs; None for a program of one."""
    cut = manifest.parallel
    if cut is None:
        return None
    weights = _weight_bytes(manifest)
    # In the order of a target, HBM before DDR: the first one is what `fits` is about.
    tiers = [tier for tier in manifest.target.tiers if tier.name != "sram"]
    used = {tier.name: 0 for tier in manifest.target.tiers}
    for region in manifest.regions:
        used[region.tier] += region.bytes
    per_token = cut.cache_bytes_per_token
    total = sum(used.values())
    return ParallelReport(
        mode=cut.mode,
        rdus=cut.rdus,
        weight_bytes=weights,
        other_bytes=total - weights,
        fits=total <= tiers[0].bytes,
        cache_bytes_per_token=per_token,
        rooms=tuple(
            RoomReport(
                tier.name,
                tier.bytes,
                used[tier.name],
                (tier.bytes - used[tier.name]) // per_token if per_token else 0,
            )
            for tier in tiers
        ),
        exchanges=_exchanges(manifest),
        token_exchange_seconds=token_seconds(manifest, run_graphs(manifest)),
    )


def _weight_bytes(manifest: Manifest) -> int:
    """Return the bytes of the regions of weights."""
    # By region: a weight and its update are in one place.
    places = {s.region for s in manifest.symbols if s.kind is SymbolKind.WEIGHT and s.region}
    return sum(region.bytes for region in manifest.regions if region.name in places)


def _exchanges(manifest: Manifest) -> tuple[ExchangeReport, ...]:
    totals: dict[str, list[float]] = {}
    stages = {section.id: section for section in manifest.sections}
    for graph in run_graphs(manifest):
        for transfer in graph.run_transfers:
            # Copies to and from the host are in the table of transfers.
            if transfer.cause is not Cause.COLLECTIVE or transfer.call is None:
                continue
            exchange = stages[graph.calls[transfer.call].stage].collective
            assert exchange is not None
            total = totals.setdefault(exchange.kind.value, [0, 0, 0.0])
            total[0] += 1
            total[1] += transfer.bytes
            total[2] += transfer.seconds
    return tuple(
        ExchangeReport(kind, int(calls), int(size), seconds)
        for kind, (calls, size, seconds) in totals.items()
    )


def parallel_text(cut: ParallelReport | None) -> RenderableType | None:
    """Return the block of several RDUs; None for a program of one."""
    if cut is None:
        return None
    what = "the batch" if cut.mode == "batch" else "weights"
    first = cut.rooms[0]
    lines = [
        f"{byte_text(cut.weight_bytes)} of weights and {byte_text(cut.other_bytes)} of other values on each: "
        + (f"fits into {first.tier}" if cut.fits else f"does not fit into {first.tier} alone")
    ]
    if cut.cache_bytes_per_token:
        lines.append(
            f"keys and values of a token take {byte_text(cut.cache_bytes_per_token)} on each: a cache "
            f"holds at most {_cache_text(cut)}"
        )
    contents: list[RenderableType] = [Text(line) for line in lines]
    if cut.exchanges:
        cells = [
            (
                exchange.kind,
                f"{exchange.calls:,}",
                byte_text(exchange.bytes),
                second_text(exchange.modelled_seconds),
            )
            for exchange in cut.exchanges
        ]
        contents.append(table(("exchange", ">calls", ">sent by each", ">time per run"), cells))
    if cut.token_exchange_seconds:
        seconds = second_text(cut.token_exchange_seconds)
        contents.append(Text(f"exchanges of a run that reads one token: {seconds}"))
    return titled(f"{cut.rdus} RDUs, {what} cut between them; all else here is of one", *contents)


def _cache_text(cut: ParallelReport) -> str:
    """Say how many tokens fit into each tier."""
    return ", ".join(
        f"{room.cache_tokens:,} tokens in {room.tier} "
        f"({count_text(room.cache_tokens // _LENGTH, 'sequence')} of {_LENGTH:,})"
        for room in cut.rooms
    )
