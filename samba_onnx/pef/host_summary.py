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
