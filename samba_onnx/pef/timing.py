"""What a section takes besides arithmetic at peak rate: the figures of a target, and the parts of a time.

A section takes its launch, then the longest of compute, on-chip traffic and off-chip traffic, which go on
at the same time, then the filling of its pipeline. ``docs/timing.md`` has the reason of every term.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["LaunchOrigin", "SectionTime", "Term", "TimingFigures"]


class LaunchOrigin(enum.StrEnum):
    """Where a section is launched from."""

    HOST = "host"
    """The host starts every call."""
    DEVICE = "device"
    """The host hands over a schedule, by which the device starts calls itself."""


class Term(enum.StrEnum):
    """A part of a section's time."""

    LAUNCH = "launch"
    COMPUTE = "compute"
    ON_CHIP = "on-chip traffic"
    OFF_CHIP = "off-chip traffic"
    FILL = "fill"


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
class SectionTime:
    """The parts of what one call of a section is modelled to take, in seconds."""

    launch: float = 0.0
    """Load of its program and arguments; 0 where a call before has done it."""
    compute: float = 0.0
    """Arithmetic, by data type and kind of operator."""
    on_chip: float = 0.0
    """Operands and results of its operators through on-chip memory."""
    off_chip: float = 0.0
    """Inputs, weights and outputs from and to off-chip memory."""
    fill: float = 0.0
    """Seconds until the first result has passed all operators on its longest path."""

    @property
    def seconds(self) -> float:
        """Launch, the longest of the parts that go on at the same time, and fill."""
        return self.launch + self.overlapped + self.fill

    @property
    def overlapped(self) -> float:
        """The longest of the parts that go on at the same time."""
        return max(self.compute, self.on_chip, self.off_chip)

    @property
    def bound(self) -> Term:
        """The longest of the parts that go on at the same time; of equal ones the first."""
        parts = {
            Term.COMPUTE: self.compute,
            Term.ON_CHIP: self.on_chip,
            Term.OFF_CHIP: self.off_chip,
        }
        return max(parts, key=lambda term: parts[term])

    @property
    def dominant(self) -> Term:
        """The part that takes the longest; of equal ones the first."""
        parts = {Term.LAUNCH: self.launch, self.bound: self.overlapped, Term.FILL: self.fill}
        return max(parts, key=lambda term: parts[term])
