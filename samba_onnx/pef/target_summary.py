"""What a PEF says about the device that it was compiled for: the part of a manifest with figures.

Sizes are bytes, times are modelled seconds, rates are per second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from samba_onnx.pef.decoding import MAY_BE_MISSING
from samba_onnx.pef.timing import TimingFigures

SHARING: Final = 3
"""Values that share the rate of those that do not lie in all channels: the operands and the result of a product."""


@dataclass(frozen=True)
class Tier:
    """One level of device memory."""

    name: str
    """``sram``, ``hbm`` or ``ddr``."""
    bytes: int
    """Its size."""
    bytes_per_second: float
    """Its bandwidth, as it is published or follows from what is."""
    wide_bytes_per_second: float = field(default=0.0, metadata=MAY_BE_MISSING)
    """What a section achieves for values that lie in all channels; 0 for the whole bandwidth."""
    narrow_bytes_per_second: float = field(default=0.0, metadata=MAY_BE_MISSING)
    """What a section achieves for smaller values; 0 for the whole bandwidth."""

    def seconds(self, sizes: Sequence[int], wide_bytes: int = 0) -> float:
        """Return the modelled time in which a section reads and writes values, each once.

        Args:
            sizes: Bytes of each value.
            wide_bytes: The size from which a value lies in all channels.

        Returns:
            Seconds: all bytes over the wide rate, but not less than the three largest values that do not lie
            in all channels over the narrow rate, which these have to share, as those of a single operator do.
            So one more value never takes less time, nor do more bytes of a value, except where they make
            it lie in all channels.
        """
        rate = self.wide_bytes_per_second or self.bytes_per_second
        narrow = self.narrow_bytes_per_second or self.bytes_per_second
        sharing = sorted((size for size in sizes if size < wide_bytes), reverse=True)[:SHARING]
        return max(sum(sizes) / rate, sum(sharing) / narrow)


@dataclass(frozen=True)
class Assumption:
    """A hardware figure that the vendor has not published, and the value that was used."""

    name: str
    """The figure."""
    value: float
    """What was taken for it."""
    unit: str
    """Its unit."""
    note: str
    """Why that value."""


@dataclass(frozen=True)
class TargetSummary:
    """The hardware figures that the compiler used, so that a report needs no target file."""

    name: str
    """The target."""
    tiers: tuple[Tier, ...]
    """Levels of memory, the fastest first."""
    peak_flops: dict[str, float]
    """Operations per second by dtype (``bfloat16``, ``float32``, ...)."""
    link_bytes_per_second: float
    """Bandwidth of the link to the host."""
    link_latency_seconds: float
    """Seconds that a copy takes however small."""
    assumptions: tuple[Assumption, ...] = ()
    """Figures that the vendor has not published."""
    rdu_link_bytes_per_second: float = field(default=0.0, metadata=MAY_BE_MISSING)
    """Bandwidth from one RDU to the next one; 0 where nobody has stated it."""
    rdu_link_latency_seconds: float = field(default=0.0, metadata=MAY_BE_MISSING)
    """Seconds that an exchange between all RDUs of a program takes however small."""
    overlaps_to_rdu: bool = field(default=False, metadata=MAY_BE_MISSING)
    """Whether copies from the host go on while the device, the host, or copies to it are busy."""
    overlaps_to_host: bool = field(default=False, metadata=MAY_BE_MISSING)
    """Whether copies to the host do."""
    overlaps_cpu: bool = field(default=False, metadata=MAY_BE_MISSING)
    """Whether the device executes sections while the host executes fallbacks."""
    repeats_bodies: bool = field(default=False, metadata=MAY_BE_MISSING)
    """Whether a section repeats the body of a Scan by itself, step by step."""
    timing: TimingFigures | None = field(default=None, metadata=MAY_BE_MISSING)
    """How far sections stay behind the figures above; None for a device of which only these are known,
    whose sections are modelled at peak rate and without a launch."""

    def tier(self, name: str) -> Tier:
        """Return the tier called ``name``.

        Raises:
            KeyError: The target has no such tier.
        """
        for tier in self.tiers:
            if tier.name == name:
                return tier
        raise KeyError(name)

    def traffic_seconds(self, traffic: Mapping[str, Sequence[int]]) -> float:
        """Return the modelled time of a section's traffic with off-chip memory.

        Args:
            traffic: Bytes of each value that is read or written, by tier.

        Returns:
            The sum over tiers, in seconds.
        """
        wide = 0 if self.timing is None else self.timing.wide_bytes
        times = (self.tier(name).seconds(sizes, wide) for name, sizes in traffic.items())
        return sum(times, start=0.0)

    def transfer_seconds(self, size: int) -> float:
        """Return the modelled time of one host↔RDU copy.

        Args:
            size: Bytes to copy.

        Returns:
            Latency plus bytes over bandwidth of the link, in seconds. Compiler and emulator both
            use this, so that planned and recorded times agree to the last bit.
        """
        return self.link_latency_seconds + size / self.link_bytes_per_second

    def exchange_seconds(self, size: int) -> float:
        """Return the modelled time of one exchange between all RDUs of a program.

        Args:
            size: Bytes that each RDU sends.

        Returns:
            Latency plus bytes over bandwidth from one RDU to the next one, in seconds; that of the link to
            the host where the target does not state it.
        """
        rate = self.rdu_link_bytes_per_second or self.link_bytes_per_second
        return (self.rdu_link_latency_seconds or self.link_latency_seconds) + size / rate

    def alone(self) -> TargetSummary:
        """Return the figures without those of the link between RDUs, for a program of one RDU."""
        # Assumptions are named after the keys of the target's file.
        own = tuple(one for one in self.assumptions if not one.name.startswith("rdu_link."))
        return replace(
            self, assumptions=own, rdu_link_bytes_per_second=0.0, rdu_link_latency_seconds=0.0
        )
