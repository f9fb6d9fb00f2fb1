"""What the session copied between host and device, and limits for it in people's own tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from samba_onnx.errors import TransferLimitError, UsageError
from samba_onnx.pef.manifest import Direction, Transfer
from samba_onnx.runtime.ledger import Ledger, Total, totals

_LISTED = 20
"""Rows of the table of offenders; the rest is counted."""


class Transfers:
    """The copies between host and device since the program was traced, or since ``reset()``.

    With replicas that reduce gradients among their devices, what each device sent to others, too.
    """

    def __init__(self, ledger: Callable[[], Ledger | None]) -> None:
        """Watch a session.

        Args:
            ledger: Returns the ledger of its device, None while it has none.
        """
        self._ledger = ledger

    @property
    def records(self) -> tuple[Transfer, ...]:
        """Every copy, oldest first."""
        ledger = self._ledger()
        return () if ledger is None else ledger.transfers

    @property
    def count(self) -> int:
        """Number of copies."""
        return len(self.records)

    @property
    def bytes(self) -> int:
        """Bytes copied, all ways together."""
        return sum(record.bytes for record in self.records)

    def totals(self) -> tuple[Total, ...]:
        """Add up the copies by cause and direction; pairs that do not occur are left out."""
        return totals(self.records)

    def reset(self) -> None:
        """Forget all copies so far."""
        ledger = self._ledger()
        if ledger is not None:
            ledger.reset()

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Transfer]:
        return iter(self.records)

    def __repr__(self) -> str:
        sums = [
            f"{total.cause} {total.direction}: {total.count} of {total.bytes} bytes"
            for total in self.totals()
        ]
        return f"Transfers({'; '.join(sums) or 'none'})"


@contextmanager
def expecting(
    transfers: Transfers, max_bytes: int | None, max_count: int | None
) -> Iterator[Transfers]:
    """Allow what runs inside only so many copies between host and device.

    Args:
        transfers: What is watched.
        max_bytes: Most bytes that may be copied, both ways together; any when None.
        max_count: Most copies that may be made; any when None.

    Yields:
        What is watched.

    Raises:
        TransferLimitError: There were more. Nothing is checked when the block itself fails.
        UsageError: No limit is given, one is negative, or the records were reset meanwhile.
    """
    # A check without a limit could never fail, which its author would not notice.
    if max_bytes is None and max_count is None:
        raise UsageError("expect_transfers was given no limit; give max_bytes or max_count")
    for name, limit in (("max_bytes", max_bytes), ("max_count", max_count)):
        if limit is not None and limit < 0:
            raise UsageError(f"{name} is {limit}; give 0 or more")
    # Records and not sums: the message lists what was copied inside the block.
    before = transfers.records
    yield transfers
    after = transfers.records
    # Records are shared objects: the same copy, made twice, is two entries of one record.
    is_continued = len(after) >= len(before) and all(
        old is new for old, new in zip(before, after, strict=False)
    )
    # After a ledger that began anew, as by a trace inside the block, all is of the block.
    made = after[len(before) :] if is_continued else after
    # What devices send each other never passes the host, which the limit is about.
    copies = tuple(move for move in made if move.direction is not Direction.RDU_TO_RDU)
    _check(copies, max_bytes, max_count)


def _check(transfers: tuple[Transfer, ...], max_bytes: int | None, max_count: int | None) -> None:
    size = sum(transfer.bytes for transfer in transfers)
    complaints = []
    if max_bytes is not None and size > max_bytes:
        complaints.append(f"{size} bytes, at most {max_bytes} were expected")
    if max_count is not None and len(transfers) > max_count:
        complaints.append(f"{len(transfers)} transfers, at most {max_count} were expected")
    if complaints:
        raise TransferLimitError(
            f"the block made {' and '.join(complaints)}; keep these on the device, or raise the "
            f"limit:\n{_table(transfers)}"
        )


def _table(transfers: Iterable[Transfer]) -> str:
    counts: dict[tuple[str, str, str, int], int] = {}
    for transfer in transfers:
        key = (transfer.symbol, transfer.direction, transfer.cause, transfer.bytes)
        counts[key] = counts.get(key, 0) + 1
    # The largest first: they are what is worth changing.
    ordered = sorted(counts.items(), key=lambda item: -item[0][3] * item[1])
    head = ("symbol", "direction", "cause", "count", "bytes")
    rows = [
        (symbol, direction, cause, str(count), str(size * count))
        for (symbol, direction, cause, size), count in ordered
    ]
    shown = [head, *rows[:_LISTED]]
    widths = [max(len(row[column]) for row in shown) for column in range(len(head))]
    lines = [
        "  ".join(
            cell.rjust(width) if column > 2 else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in shown
    ]
    if len(rows) > _LISTED:
        lines.append(f"... and {len(rows) - _LISTED} more")
    return "\n".join(lines)
