"""The transfer ledger: one record per copy from or to the device, in the order they were made."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from samba_onnx.errors import MissingLibraryError, UsageError
from samba_onnx.pef.manifest import Cause, Direction, Transfer
from samba_onnx.runtime.locking import DeviceLock, in_turn
from samba_onnx.safety.notebook import notebook_table

if TYPE_CHECKING:
    import pandas

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


class _Runs:
    """Runs that copied the same, one after the other: two or more."""

    __slots__ = ("times", "transfers")

    def __init__(self, transfers: tuple[Transfer, ...]) -> None:
        self.transfers = transfers
        """Records of each of them."""
        self.times = 2
        """How many there were."""


_Entry = Transfer | tuple[Transfer, ...] | _Runs
"""A copy outside of runs, the copies of one run, or of several runs that copied the same."""


def _runs(entry: _Entry) -> tuple[tuple[Transfer, ...], int]:
    """Return the records of each run of an entry, and the number of runs; 0 for a single copy."""
    if isinstance(entry, _Runs):
        return entry.transfers, entry.times
    return (entry, 1) if isinstance(entry, tuple) else ((), 0)


class Ledger:
    """Records of every host↔RDU and RDU↔RDU copy since the PEF was loaded or the ledger was reset.

    Runs that copy the same, one after the other, share their records and are counted, so that a loop
    may run as long as it likes.
    """

    def __init__(self, lock: DeviceLock | None = None) -> None:
        """Begin without records.

        Args:
            lock: What the device holds when it enters copies; None for one of its own.
        """
        self.lock = lock or DeviceLock()
        """Held by whoever reads the records, so that no run is read by halves."""
        self._entries: list[_Entry] = []
        self._open: list[Transfer] | None = None
        """Copies of the run that was begun last, until the next one or another copy."""
        self._sums: dict[tuple[Cause, Direction], Total] = {}
        self._summed = 0
        """Entries that are part of the sums, and will not change."""
        self._summed_runs = 0
        """Runs of the next entry that are part of the sums, too."""

    def __repr__(self) -> str:
        """Return one line: runs, copies and bytes."""
        sums = self.totals()
        copies, size = sum(total.count for total in sums), sum(total.bytes for total in sums)
        return f"Ledger({self.runs} runs, {copies:,} copies, {size:,} bytes)"

    def _repr_html_(self) -> str:
        """Return the totals as a table for a notebook."""
        columns = ("cause", "direction", "copies", "bytes", "modelled seconds")
        rows = [
            (total.cause, total.direction, total.count, total.bytes, f"{total.seconds:.6g}")
            for total in self.totals()
        ]
        return notebook_table(f"{self.runs} runs", rows, columns)

    @property
    @in_turn
    def transfers(self) -> tuple[Transfer, ...]:
        """All records, oldest first."""
        self._close()
        records: list[Transfer] = []
        for entry in self._entries:
            if isinstance(entry, Transfer):
                records.append(entry)
            else:
                of_each, times = _runs(entry)
                records += of_each * times
        return tuple(records)

    @property
    @in_turn
    def runs(self) -> int:
        """Number of runs begun since the last reset."""
        self._close()
        return sum(_runs(entry)[1] for entry in self._entries)

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
        for entry in entries:
            of_each, times = _runs(entry)
            if skipped < times:
                return of_each
            skipped -= times
        raise UsageError(f"run {index} is not in the ledger, which has {self.runs}")

    @in_turn
    def totals(self) -> tuple[Total, ...]:
        """Add up all records by cause and direction; each is looked at once."""
        self._close()
        for entry in itertools.islice(self._entries, self._summed, None):
            if isinstance(entry, Transfer):
                _add_up(self._sums, (entry,))
            else:
                of_each, times = _runs(entry)
                _add_up(self._sums, of_each * (times - self._summed_runs))
            self._summed_runs = 0
        self._summed = len(self._entries)
        if self._entries and not isinstance(self._entries[-1], Transfer):
            # Another run like the last one becomes part of its entry.
            self._summed, self._summed_runs = self._summed - 1, _runs(self._entries[-1])[1]
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
        last = self._entries[-1] if self._entries else None
        # The same object first: a replay enters its records again and again.
        if last is transfers or (type(last) is tuple and last == transfers):
            self._entries[-1] = _Runs(transfers)
        elif type(last) is _Runs and (last.transfers is transfers or last.transfers == transfers):
            last.times += 1
        else:
            self._entries.append(transfers)

    @in_turn
    def reset(self) -> None:
        """Forget all records and runs."""
        self._entries.clear()
        self._open = None
        self._sums.clear()
        self._summed = self._summed_runs = 0

    def _close(self) -> None:
        if self._open is not None:
            records, self._open = tuple(self._open), None
            self.enter_run(records)

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

    @in_turn
    def to_pandas(self) -> pandas.DataFrame:
        """Return the records as a table of pandas, for whoever groups, filters and draws them.

        Returns:
            A row for each copy, the oldest first: ``run`` (from 0; missing for a copy outside a run), ``call`` (likewise),
            ``symbol``, ``cause``, ``direction``, ``bytes`` and ``seconds``, which are modelled. ``cause`` and
            ``direction`` are texts as in :meth:`to_json`.

        Raises:
            MissingLibraryError: The extra ``figures`` is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise MissingLibraryError(
                "Ledger.to_pandas needs pandas: install it with pip install 'samba-onnx[figures]'"
            ) from None
        rows = list(self._numbered())
        columns: dict[str, list[Any]] = {
            "run": [run for run, _ in rows],
            "call": [copy.call for _, copy in rows],
            "symbol": [copy.symbol for _, copy in rows],
            "cause": [str(copy.cause) for _, copy in rows],
            "direction": [str(copy.direction) for _, copy in rows],
            "bytes": [copy.bytes for _, copy in rows],
            "seconds": [copy.seconds for _, copy in rows],
        }
        # Integers that may be missing: as floats, runs and calls could not be looked up by number.
        return pandas.DataFrame(columns).astype({"run": "Int64", "call": "Int64"})

    def _numbered(self) -> Iterator[tuple[int | None, Transfer]]:
        """Yield each record with the number of its run; None outside a run."""
        self._close()
        first = 0
        for entry in self._entries:
            if isinstance(entry, Transfer):
                yield None, entry
                continue
            of_each, times = _runs(entry)
            for number in range(first, first + times):
                yield from ((number, copy) for copy in of_each)
            first += times
