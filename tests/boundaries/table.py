"""The table of counts before and after: where it lies, and what is worse than it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.boundaries.counting import Counts
from tests.json_tables import read_table, write_table

__all__ = ["BEFORE", "UPDATE", "Row", "Table", "difference", "read", "write"]

PATH: Final = Path(__file__).with_name("expected.json")
BEFORE: Final = "0c6c413"
"""The last commit without rules of legalisation and without placement by a minimum cut."""
UPDATE: Final = "run `python -m tests.boundaries` to write it"


@dataclass(frozen=True)
class Row:
    """One architecture."""

    before: Counts
    """By ``BEFORE``, of the same ONNX model."""
    after: Counts

    @classmethod
    def from_fields(cls, before: Mapping[str, Any], after: Mapping[str, Any]) -> Row:
        """Return the row that a file has.

        Args:
            before: Fields of the counts before.
            after: Fields of those after.
        """
        return cls(Counts(**before), Counts(**after))


Table = Mapping[str, Row]


def read(path: Path = PATH) -> dict[str, Row]:
    """Return the rows by architecture that were written last."""
    return read_table(path, Row.from_fields)


def write(table: Table, path: Path = PATH) -> None:
    """Write rows, one architecture a line, in the order of their names."""
    write_table(path, {name: dataclasses.asdict(row) for name, row in table.items()})


def difference(counts: Counts, row: Row) -> str:
    """Return in what counts are worse than those of the table; empty where they are not.

    Args:
        counts: What was measured now.
        row: What the table has.
    """
    worse = [
        f"{name}: {getattr(row.after, name)} -> {getattr(counts, name)}"
        for name in ("boundaries", "transfers", "bytes")
        if getattr(counts, name) > getattr(row.after, name)
    ]
    return f"{'; '.join(worse)}; {UPDATE}" if worse else ""
