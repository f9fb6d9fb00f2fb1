"""The transfer ledger: one record per copy between host and device, in the order they were made."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from samba_onnx.errors import UsageError
from samba_onnx.pef.manifest import Cause, Direction, Transfer
from samba_onnx.runtime.locking import DeviceLock, in_turn

JSON_VERSION = 1
"""Version of the layout of :meth:`Ledger.to_json`."""


@dataclass(frozen=True)
class Total:
    """The copies of one cause and direction, added up."""

    cause: Cause
    direction: Direction
    count: int
    bytes: int
    seconds: float
    """Modelled time of all these copies."""


def totals(transfers: Iterable[Transfer]) -> tuple[Total, ...]:
    """Add up transfers by cause and direction.

    Args:
        transfers: Planned or recorded ones.

    Returns:
        One total for every pair that occurs, in the order of the enumerations.
    """
    sums: dict[tuple[Cause, Direction], Total] = {}
    _add_up(sums, transfers)
    return _in_order(sums)


def _add_up(sums: dict[tuple[Cause, Direction], Total], transfers: Iterable[Transfer]) -> None:
    for transfer in transfers:
        key = (transfer.cause, transfer.direction)
        old = sums.get(key) or Total(*key, count=0, bytes=0, seconds=0.0)
        sums[key] = Total(
            *key, old.count + 1, old.bytes + transfer.bytes, old.seconds + transfer.seconds
        )


def _in_order(sums: Mapping[tuple[Cause, Direction], Total]) -> tuple[Total, ...]:
    return tuple(
        sums[cause, direction]
        for cause in Cause
        for direction in Direction
        if (cause, direction) in sums
    )


def _flat(entries: Iterable[Transfer | tuple[Transfer, ...]]) -> Iterator[Transfer]:
    for entry in entries:
        if isinstance(entry, tuple):
            yield from entry
        else:
            yield entry


class Ledger:
    """Records of every host↔RDU copy since the PEF was loaded or the ledger was reset.

    Runs that copy the same share their records, so that a run costs the ledger one reference.
    """

    def __init__(self, lock: DeviceLock | None = None) -> None:
        """Begin without records.

        Args:
            lock: What the device holds when it enters copies; None for one of its own.
        """
        self.lock = lock or DeviceLock()
        """Held by whoever reads the records, so that no run is read by halves."""
        self._entries: list[Transfer | tuple[Transfer, ...]] = []
        """Copies between runs one by one, those of a run together."""
        self._open: list[Transfer] | None = None
        """Copies of the run that was begun last, until the next one or another copy."""
        self._sums: dict[tuple[Cause, Direction], Total] = {}
        self._summed = 0
        """Entries that are part of the sums."""

    @property
    @in_turn
    def transfers(self) -> tuple[Transfer, ...]:
        """All records, oldest first."""
        self._close()
        return tuple(_flat(self._entries))

    @property
    @in_turn
    def runs(self) -> int:
        """Number of runs begun since the last reset."""
        self._close()
        return sum(isinstance(entry, tuple) for entry in self._entries)

    @in_turn
    def run(self, index: int = -1) -> tuple[Transfer, ...]:
        """Return the records of one run.

        Args:
            index: Counts from 0; negative from the end.

        Returns:
            The records, without explicit reads and writes between runs.

        Raises:
            UsageError: There was no such run.
        """
        self._close()
        entries = self._entries if index >= 0 else reversed(self._entries)
        skipped = index if index >= 0 else -index - 1
        runs = (entry for entry in entries if isinstance(entry, tuple))
        records = next(itertools.islice(runs, skipped, None), None)
        if records is None:
            raise UsageError(f"run {index} is not in the ledger, which has {self.runs}")
        return records

    @in_turn
    def totals(self) -> tuple[Total, ...]:
        """Add up all records by cause and direction; each is looked at once."""
        self._close()
        _add_up(self._sums, _flat(self._entries[self._summed :]))
        self._summed = len(self._entries)
        return _in_order(self._sums)

    def begin_run(self) -> None:
        """Mark the start of a run."""
        self._close()
        self._open = []

    def enter(self, transfer: Transfer) -> None:
        """Add a record; the device calls this beside every copy."""
        if transfer.call is not None and self._open is not None:
            self._open.append(transfer)
        else:
            # Copies at load or on request have no call, and are part of no run.
            self._close()
            self._entries.append(transfer)

    def enter_run(self, transfers: tuple[Transfer, ...]) -> None:
        """Add a whole run.

        Args:
            transfers: Its records, in order; all have a call.
        """
        if self._open is not None:
            self._close()
        self._entries.append(transfers)

    @in_turn
    def reset(self) -> None:
        """Forget all records and runs."""
        self._entries.clear()
        self._open = None
        self._sums.clear()
        self._summed = 0

    def _close(self) -> None:
        if self._open is not None:
            records = tuple(self._open)
            last = self._entries[-1] if self._entries else None
            self._entries.append(last if isinstance(last, tuple) and last == records else records)
            self._open = None

    @in_turn
    def to_json(self) -> dict[str, Any]:
        """Return the ledger as JSON-able data.

        Returns:
            ``{"version", "runs", "totals": [{"cause", "direction", "count", "bytes", "seconds"}],
            "transfers": [{"symbol", "bytes", "direction", "cause", "seconds", "call"}]}``; sizes in
            bytes, times modelled in seconds, ``call`` null for copies outside a run.
        """
        return {
            "version": JSON_VERSION,
            "runs": self.runs,
            "totals": [dataclasses.asdict(total) for total in self.totals()],
            "transfers": [dataclasses.asdict(transfer) for transfer in self.transfers],
        }
