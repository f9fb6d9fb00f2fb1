"""What a PEF says about the CPU beside the device: the figures that fallbacks' times are modelled with.

Times are modelled seconds, rates are per second.
"""

from __future__ import annotations

from dataclasses import dataclass

from samba_onnx.pef.target_summary import Assumption


@dataclass(frozen=True)
class HostSummary:
    """The figures of a host's CPU, so that a report needs no profile."""

    name: str
    """``default``, or what the measured profile is called."""
    peak_flops: dict[str, float]
    """Operations per second of products of matrices, by data type; has ``float32``."""
    bytes_per_second: float
    """Read and written by operators that compute."""
    copy_bytes_per_second: float
    """Read and written by operators that only move elements."""
    node_seconds: float
    """Seconds that a node takes however little it has to do."""
    call_seconds: float
    """Seconds that the start of a fallback takes."""
    assumptions: tuple[Assumption, ...] = ()
    """Figures that nobody measured on this host."""

    def node_time(self, flops: int, dtype: str, moved: int, *, copies: bool) -> float:
        """Return the modelled time of one execution of a node.

        Args:
            flops: Arithmetic operations.
            dtype: Data type of the arithmetic; one without a figure counts as float32.
            moved: Bytes read and written.
            copies: Whether the operator only moves elements.

        Returns:
            Seconds: what any node takes, plus the longer of arithmetic and memory.
        """
        rate = self.copy_bytes_per_second if copies else self.bytes_per_second
        peak = self.peak_flops.get(dtype, self.peak_flops["float32"])
        return self.node_seconds + max(flops / peak, moved / rate)
