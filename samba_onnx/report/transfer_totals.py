"""Transfers of a plan or of a run, added up."""

from __future__ import annotations

from collections.abc import Iterable

from samba_onnx.pef.manifest import Transfer
from samba_onnx.report.report_records import TransferTotal


def total_transfers(transfers: Iterable[Transfer]) -> tuple[TransferTotal, ...]:
    """Add transfers up by cause and direction.

    Args:
        transfers: Planned or recorded ones.

    Returns:
        One total per cause and direction, in the order in which they occur first.
    """
    totals: dict[tuple[str, str], TransferTotal] = {}
    for copy in transfers:
        key = (copy.cause, copy.direction)
        old = totals.get(key) or TransferTotal(copy.cause, copy.direction, 0, 0, 0.0)
        totals[key] = TransferTotal(
            copy.cause,
            copy.direction,
            old.transfers + 1,
            old.bytes + copy.bytes,
            old.modelled_seconds + copy.seconds,
        )
    return tuple(totals.values())
