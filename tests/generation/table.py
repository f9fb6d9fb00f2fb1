"""The table of outcomes by family: where it lies, and how an outcome differs from it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.generation.outcome import Outcome
from tests.json_tables import read_table, write_table

__all__ = ["UPDATE", "Table", "difference", "read", "write"]

PATH: Final = Path(__file__).with_name("expected.json")
UPDATE: Final = "run `python -m tests.generation` to write it"

Table = Mapping[str, Outcome]


def read(path: Path = PATH) -> dict[str, Outcome]:
    """Return the outcomes by family that were written last."""
    return read_table(path, Outcome)


def write(table: Table, path: Path = PATH) -> None:
    """Write outcomes, one family a line, in the order of their names."""
    write_table(path, {name: outcome.as_json() for name, outcome in table.items()})


def difference(outcome: Outcome, expected: Outcome | None) -> str:
    """Return in what an outcome is not that of the table; empty where it is.

    Args:
        outcome: What was measured.
        expected: What the table has; None for a family that it does not know.
    """
    if outcome == expected:
        return ""
    return f"{outcome} in the place of {expected}; {UPDATE}"
