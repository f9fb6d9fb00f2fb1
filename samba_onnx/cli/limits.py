"""How much of a conversion a user of ``convert`` and ``analyze`` accepts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from samba_onnx.cli.options import parse_bytes

if TYPE_CHECKING:
    from samba_onnx.report import Report


@dataclass(frozen=True)
class AcceptedLimits:
    """How much of a conversion the user accepts; more is exit status 1."""

    fallbacks: int | None
    transfer_bytes: int | None

    def exceeded(self, report: Report) -> tuple[str, ...]:
        """Return a sentence for every limit that the report exceeds."""
        from samba_onnx.report.units import count_text

        complaints = []
        places = report.coverage.cpu_places
        if self.fallbacks is not None and places > self.fallbacks:
            count = count_text(places, "fallback")
            complaints.append(f"{count} to the CPU, {self.fallbacks} allowed")
        size = sum(total.bytes for total in report.transfers_per_run)
        if self.transfer_bytes is not None and size > self.transfer_bytes:
            complaints.append(
                f"{size} bytes are transferred in every run, {self.transfer_bytes} allowed"
            )
        return tuple(complaints)


def accepted_limits(
    fail_on_fallback: bool, fallbacks: int | None, transfer_bytes: str | None
) -> AcceptedLimits:
    """Read the limits; ``--fail-on-fallback`` is ``--max-fallbacks 0``.

    Args:
        fail_on_fallback: Whether nothing may run on the CPU.
        fallbacks: The most fallbacks; None for any number.
        transfer_bytes: The most bytes in a run, as 1.5MB; None for any number.

    Raises:
        UsageError: The bytes are malformed.
    """
    return AcceptedLimits(
        0 if fail_on_fallback else fallbacks, parse_bytes("--max-transfer-bytes", transfer_bytes)
    )
