"""What a PEF says about the device that it was compiled for: the part of a manifest with figures.

Sizes are bytes, times are modelled seconds, rates are per second.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import Final

from samba_onnx.pef.decoding import MAY_BE_MISSING, NOT_REPORTED, reported_as

SUPPOSED: Final = "asked for by --what-if"
"""The note of a figure that is another one than the target's."""


class LaunchOrigin(enum.StrEnum):
    """Where a section is launched from."""

    HOST = "host"
    """The host starts every call."""
    DEVICE = "device"
    """The host hands over a schedule, by which the device starts calls itself."""


@dataclass(frozen=True)
class Tier:
    """One level of device memory."""

    name: str
    """``sram``, ``hbm`` or ``ddr``."""
    bytes: int = field(metadata=reported_as("capacity_bytes"))
    """Its size."""
    bytes_per_second: float
    """Its bandwidth, as it is published or follows from what is."""
    wide_bytes_per_second: float = field(default=0.0, metadata=MAY_BE_MISSING | NOT_REPORTED)
    """What a section achieves for values that lie in all channels; 0 for the whole bandwidth."""
    narrow_bytes_per_second: float = field(default=0.0, metadata=MAY_BE_MISSING | NOT_REPORTED)
    """What a section achieves for smaller values; 0 for the whole bandwidth."""


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
class TimingFigures:
    """How far a device stays behind its peak figures, and what a launch takes.

    Efficiencies are shares of the peak rate of a data type, above 0 and at most 1.
    """

    host_launch_seconds: float
    """Launch of a section from the host: load of program and arguments."""
    device_launch_seconds: float
    """Launch of a section from a schedule on the device."""
    product_efficiency: float
    """What a matrix product or convolution reaches that is the only one of its section."""
    fused_efficiency: float
    """What products reach that share a section: the slowest stage of a pipeline sets the pace of all."""
    tuned_efficiency: float
    """What products reach that share a section of a mapping that was tuned by hand."""
    streamed_share: float
    """Share of ``product_efficiency`` that is left where operands and result exceed on-chip memory."""
    vector_efficiency: float
    """What operators reach that go through elements: all but products and convolutions."""
    fill_seconds: float
    """What an operator on the longest path of a section adds until the first result leaves it."""
    granule: int
    """Rows, columns and depth of the smallest product that a compute unit executes: sizes of
    products are rounded up to multiples of it."""
    compute_units: int
    """How many units the device has, among which the granules of a product are shared out."""
    product_units: int
    """Compute units that a product needs of a section; ``operator_units`` for any other operator."""
    operator_units: int
    """Compute units that an operator needs that is no product."""
    tile_bytes: int
    """Bytes of an activation that are in on-chip memory at a time, where a section streams it in tiles."""
    wide_bytes: int
    """Size from which a value lies in all channels of off-chip memory."""
    map_seconds: float = field(default=0.0, metadata=MAY_BE_MISSING)
    """What every map of an image adds that a convolution reads or writes in off-chip memory; 0 where nobody states it."""
    position_seconds: float = field(default=0.0, metadata=MAY_BE_MISSING)
    """What every place of a map adds until a convolution's first result leaves it; 0 where nobody states it."""
    tuned_traffic: float = field(default=1.0, metadata=MAY_BE_MISSING)
    """Share of the time of a section's traffic that is left in a mapping that was tuned by hand, which computes
    activations again in the place of copies."""
    launch: LaunchOrigin = LaunchOrigin.DEVICE
    """Where sections are launched from."""
    looped: bool = False
    """Whether equal sections that follow each other are looped on the device, launched once."""
    tuned: bool = False
    """Whether sections are mapped by hand."""

    @property
    def launch_seconds(self) -> float:
        """What a launch takes under the conditions that hold."""
        if self.launch is LaunchOrigin.HOST:
            return self.host_launch_seconds
        return self.device_launch_seconds


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

    def transfer_seconds(self, size: int) -> float:
        """Return the modelled time of one host↔RDU copy.

        Args:
            size: Bytes to copy.

        Returns:
            Latency plus bytes over bandwidth of the link, in seconds. Compiler and emulator both
            use this, so that planned and recorded times agree to the last bit.
        """
        return self.link_latency_seconds + size / self.link_bytes_per_second

    def exchange_seconds(self, size: int, steps: int = 1) -> float:
        """Return the modelled time of one exchange between all RDUs of a program.

        Args:
            size: Bytes that each RDU sends.
            steps: Messages that wait for each other; 0 counts as one.

        Returns:
            Latency plus bytes over bandwidth from one RDU to the next one, in seconds; that of the link to
            the host where the target does not state it.
        """
        rate = self.rdu_link_bytes_per_second or self.link_bytes_per_second
        latency = self.rdu_link_latency_seconds or self.link_latency_seconds
        return max(steps, 1) * latency + size / rate

    def alone(self) -> TargetSummary:
        """Return the figures without those of the link between RDUs, for a program of one RDU."""
        # Assumptions are named after the keys of the target's file.
        own = tuple(
            assumption
            for assumption in self.assumptions
            if not assumption.name.startswith("rdu_link.")
        )
        return replace(
            self, assumptions=own, rdu_link_bytes_per_second=0.0, rdu_link_latency_seconds=0.0
        )
