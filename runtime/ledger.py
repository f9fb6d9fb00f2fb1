"""The transfer ledger: one record per copy between host and device, in the order they were made."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from samba_onnx.errors import UsageError
from samba_onnx.runtime.pef.manifest import Cause, Direction, Transfer

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
    """Modelled."""


def totals(transfers: Iterable[Transfer]) -> tuple[Total, ...]:
    """Add up transfers by cause and direction.

    Args:
        transfers: Planned or recorded ones.

    Returns:
        One total for every pair that occurs, in the order of the enumerations.
    """
    sums: dict[tuple[Cause, Direction], Total] = {}
    for made in transfers:
        key = (made.cause, made.direction)
        old = sums.get(key) or Total(*key, count=0, bytes=0, seconds=0.0)
        sums[key] = Total(*key, old.count + 1, old.bytes + made.bytes, old.seconds + made.seconds)
    return tuple(
        sums[cause, direction]
        for cause in Cause
        for direction in Direction
        if (cause, direction) in sums
    )


class Ledger:
    """Records of every host↔RDU copy since the PEF was loaded or the ledger was reset."""

    def __init__(self) -> None:
        self._transfers: list[Transfer] = []
        self._starts: list[int] = []

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        """All records, oldest first."""
        return tuple(self._transfers)

    @property
    def runs(self) -> int:
        """Number of runs begun since the last reset."""
        return len(self._starts)

    def run(self, index: int = -1) -> tuple[Transfer, ...]:
        """Return the records of one run.

        Args:
            index: Counts from 0; negative from the end.

        Returns:
            The records, without explicit reads and writes between runs.

        Raises:
            UsageError: There was no such run.
        """
        try:
            start = self._starts[index]
        except IndexError:
            raise UsageError(f"run {index} is not in the ledger, which has {self.runs}") from None
        following = index % self.runs + 1
        end = self._starts[following] if following < self.runs else len(self._transfers)
        # Load and explicit transfers have no call; those after a run are not part of it.
        return tuple(made for made in self._transfers[start:end] if made.call is not None)

    def totals(self) -> tuple[Total, ...]:
        """Add up all records by cause and direction."""
        return totals(self._transfers)

    def begin_run(self) -> None:
        """Mark the start of a run."""
        self._starts.append(len(self._transfers))

    def enter(self, transfer: Transfer) -> None:
        """Add a record; the device calls this beside every copy."""
        self._transfers.append(transfer)

    def reset(self) -> None:
        """Forget all records and runs."""
        self._transfers.clear()
        self._starts.clear()

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
            "transfers": [dataclasses.asdict(made) for made in self._transfers],
        }
